"""In which order are devices tried, so that what stays free is worth most?

For one device of a request, smaller first:

    1. no binding conditions before some, then fewer taints that only a toleration allows
    2. more in common (PCIe root, NUMA node) with the devices already taken for the pod
    3. used before fresh: a share of a device that is shared already, a partition of a GPU that is
       partitioned already
    4. shares: the device whose scarcest capacity is tightest; partitions: the placement that costs
       later ones least (``placement_loss``)
    5. whole devices: the smallest group of near devices with room for all that the pod wants
    6. the order of pools, slices and lists

The search tries devices in this order and so returns the best-ranked feasible choice; which
alternative of a request is taken is not a matter of rank. Kubernetes has no such order (KEP 4970).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kai_py.api.records.resource import DeviceAttribute
from kai_py.dra.constraints import find_attribute
from kai_py.dra.eligibility import Eligible
from kai_py.dra.node_classes import LOCALITY_ATTRIBUTES
from kai_py.dra.parsed_claims import Option
from kai_py.dra.placement_loss import CurrentLosses, PlacementLoss
from kai_py.dra.rows import DeviceRow
from kai_py.dra.search_state import SearchState
from kai_py.dra.taints import BLOCKING_EFFECTS

Locality = tuple[DeviceAttribute | None, ...]
"""Where a device sits: its values of ``LOCALITY``."""

Rank = tuple[float, ...]

DevicesByPhysical = dict[int, list[tuple[int, int]]]
"""Card to devices, each with its place in the card."""


@dataclass(frozen=True, slots=True, eq=False)
class BestFit:
    """The order of best fit on one node view."""

    losses: PlacementLoss
    _localities: dict[int, Locality] = field(default_factory=dict)
    _penalties: dict[int, Rank] = field(default_factory=dict)
    _by_physical: dict[int, DevicesByPhysical] = field(default_factory=dict)
    """By option."""

    def __call__(self, search_state: SearchState, option: Option) -> Sequence[int]:
        """Return the devices that ``option`` may take now, best first.

        What is refused now stays refused in later slots of the option, so it is left out.
        """
        rows = search_state.eligibility.view.rows
        losses = self.losses.with_left(search_state.counters_left)
        cards = self._physical_devices(search_state, option)
        if cards:
            possible = _free_partitions(search_state, cards, losses)
        else:
            suitable = search_state.eligibility.eligible_devices(option)
            possible = [d for d in suitable if search_state.rejection(option, d) is None]
        if len(possible) <= 1:
            return possible
        places = {device: self._locality(rows[device], device) for device in possible}
        groups = _rank_groups(places, _remaining_count(search_state, option))
        picks = [each.pick.device for each in search_state.records]
        taken = Counter(self._locality(rows[device], device) for device in picks)
        near = {
            place: sum(count * _shared_attributes(place, other) for other, count in taken.items())
            for place in groups
        }
        ranks = {
            device: (
                *self._penalty(rows[device], device),
                -near[places[device]],
                *(losses.of(device) if cards else _tightness(search_state, option, device, losses)),
                *groups[places[device]],
                device,
            )
            for device in possible
        }
        return sorted(possible, key=ranks.__getitem__)

    def _physical_devices(self, search_state: SearchState, option: Option) -> DevicesByPhysical:
        """The devices of an option by card; none if more than counters and holders decide."""
        known = self._by_physical.get(option.position)
        if known is None:
            known = self._by_physical[option.position] = self._find_physical_devices(
                search_state, option
            )
        return known

    def _find_physical_devices(
        self, search_state: SearchState, option: Option
    ) -> DevicesByPhysical:
        if option.constraints or option.admin_access or search_state.layout.has_groups:
            return {}
        cards: DevicesByPhysical = {}
        for device in search_state.eligibility.eligible_devices(option):
            if not search_state.layout.draws[device] or search_state.is_shareable(device):
                return {}
            card, place = self.losses.position_of(device)
            cards.setdefault(card, []).append((device, place))
        return cards

    def _locality(self, row: DeviceRow, device: int) -> Locality:
        place = self._localities.get(device)
        if place is None:
            place = self._localities[device] = tuple(
                find_attribute(row, name) for name in LOCALITY_ATTRIBUTES
            )
        return place

    def _penalty(self, row: DeviceRow, device: int) -> Rank:
        caution = self._penalties.get(device)
        if caution is None:
            caution = self._penalties[device] = _risk_penalty(row)
        return caution


def _free_partitions(
    search_state: SearchState, by_physical: DevicesByPhysical, losses: CurrentLosses
) -> list[int]:
    """Partitions that nobody holds and whose counters are there, in the order of the view."""
    holders, holdings = search_state.claims_by_device, search_state.usage.devices
    free: list[int] = []
    for card, devices in by_physical.items():
        fits = losses.fits(card)
        free += [
            device
            for device, place in devices
            if fits[place] and holdings[device].is_free and device not in holders
        ]
    return sorted(free)


def _tightness(
    search_state: SearchState, option: Option, device: int, losses: CurrentLosses
) -> tuple[float, float]:
    """Whether the device is fresh, and what taking it costs others; zeros for plain devices."""
    if search_state.is_shareable(device):
        fresh = (
            search_state.usage.devices[device].is_free
            and device not in search_state.claims_by_device
        )
        return (float(fresh), _capacity_left(search_state, option, device))
    if search_state.layout.draws[device]:
        return losses.of(device)
    return (0.0, 0.0)


def _risk_penalty(row: DeviceRow) -> Rank:
    blocking = sum(taint.effect in BLOCKING_EFFECTS for taint in row.taints)
    return (float(bool(row.device.binding_conditions)), float(blocking))


def _remaining_count(search_state: SearchState, option: Option) -> int:
    """Devices of the option's class that the pod still wants, counting first alternatives."""
    claims = search_state.eligibility.claims.claims
    wanted = sum(
        request[0].count
        for claim in claims
        for request in claim.requests
        if request[0].device_class is option.device_class and not request[0].is_all_mode
    )
    return max(option.count, wanted - len(search_state.records))


def _rank_groups(localities: dict[int, Locality], wanted: int) -> dict[Locality, Rank]:
    """Rank groups of near devices: the smallest that is enough, else the largest."""
    sizes = Counter(localities.values())
    return {
        place: (float(size < wanted), float(size if size >= wanted else -size), float(number))
        for number, (place, size) in enumerate(sizes.items())
    }


def _shared_attributes(place: Locality, other: Locality) -> int:
    return sum(a is not None and a == b for a, b in zip(place, other, strict=True))


def _capacity_left(search_state: SearchState, option: Option, device: int) -> float:
    """The smallest fraction of a capacity that is left after taking a share."""
    outcome = search_state.eligibility.check(option, device)
    amounts = dict(outcome.consumed_capacity) if isinstance(outcome, Eligible) else {}
    before = dict(search_state.usage.devices[device].consumed)
    now = search_state.consumed.get(device, {})
    return min(
        (
            1 - (before.get(c.name, 0) + now.get(c.name, 0) + amounts.get(c.name, 0)) / c.value
            for c in search_state.eligibility.view.rows[device].capacities
            if c.value > 0
        ),
        default=1.0,
    )
