"""Best-fit order of devices, which keeps the most valuable devices free.

For one device of a request, smaller first, given the devices taken before it:

    1. no binding conditions before some, then fewer taints that only a toleration allows, then
       devices of the node, of the nodes of a selector, of all nodes
    2. more in common (PCIe root, NUMA node) with the devices already taken for the pod
    3. used before unused: a share of a device that is already shared, a partition of a GPU that is
       already partitioned
    4. shares: the device whose scarcest capacity is tightest; partitions: the placement with the
       least loss for later ones (``placement_loss``)
    5. whole devices: the smallest group of nearby devices that has all that the pod requests
    6. the order of pools, slices and lists

The search tries devices in this order and so returns the best-ranked feasible choice; which
alternative of a request is taken does not depend on rank. Kubernetes has no such order (KEP-4970).
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct, field

from kai_py.api.quantity import ratio
from kai_py.api.records.node import HARD_EFFECTS
from kai_py.api.records.resource import DeviceAttribute
from kai_py.dra.constraints import find_attribute
from kai_py.dra.eligibility import Eligible
from kai_py.dra.node_classes import LOCALITY_ATTRIBUTES
from kai_py.dra.parsed_claims import Option
from kai_py.dra.placement_loss import CurrentLosses, PlacementLoss
from kai_py.dra.rows import DeviceRow
from kai_py.dra.search_state import SearchState

Locality = tuple[DeviceAttribute | None, ...]
"""Values of ``LOCALITY_ATTRIBUTES`` of a device."""

Rank = tuple[float, ...]

PARTITIONS_PER_STEP = 8

DevicesByPhysical = dict[int, list[tuple[int, int]]]
"""By physical device, its partitions with their positions in it."""


class BestFit(Struct, frozen=True, eq=False):
    """The best-fit order on one node view."""

    losses: PlacementLoss
    _localities: dict[int, Locality] = field(default_factory=dict)
    _penalties: dict[int, Rank] = field(default_factory=dict)
    _by_physical: dict[int, DevicesByPhysical] = field(default_factory=dict)
    """By option."""

    def __call__(self, search_state: SearchState, option: Option) -> Sequence[int]:
        """The devices that ``option`` may take now, best first.

        A device that is rejected now stays rejected in later slots of the option, so it is left
        out.
        """
        by_physical = self._physical_devices(search_state, option)
        if by_physical:
            losses = self.losses.with_left(search_state.counters_left)
            possible = _free_partitions(search_state, by_physical, losses)
        else:
            eligible = search_state.eligibility.eligible_devices(option)
            possible = [d for d in eligible if search_state.rejection(option, d) is None]
        return self._ranked(search_state, option, possible)

    def again(
        self, search_state: SearchState, option: Option, left: Sequence[int]
    ) -> Sequence[int]:
        """The devices ``left`` after one of the option's slots was filled, best first."""
        possible = [d for d in left if search_state.rejection(option, d) is None]
        return self._ranked(search_state, option, possible)

    def _ranked(
        self, search_state: SearchState, option: Option, possible: Sequence[int]
    ) -> Sequence[int]:
        if len(possible) <= 1:
            return possible
        rows = search_state.eligibility.view.rows
        losses = self.losses.with_left(search_state.counters_left)
        by_physical = self._physical_devices(search_state, option)
        localities = {device: self._locality(rows[device], device) for device in possible}
        groups = _rank_groups(localities, _remaining_count(search_state, option))
        taken_devices = [each.pick.device for each in search_state.records]
        taken = Counter(self._locality(rows[device], device) for device in taken_devices)
        shared = {
            locality: sum(
                count * _shared_attributes(locality, other) for other, count in taken.items()
            )
            for locality in groups
        }
        ranks = {
            device: (
                *self._penalty(rows[device], device),
                -shared[localities[device]],
                *(
                    losses.of(device)
                    if by_physical
                    else _tightness(search_state, option, device, losses)
                ),
                *groups[localities[device]],
                device,
            )
            for device in possible
        }
        return sorted(possible, key=ranks.__getitem__)

    def steps(self, search_state: SearchState, option: Option) -> int:
        """What finding the order costs, in devices tried: each is looked at."""
        devices = len(search_state.eligibility.eligible_devices(option))
        if self._physical_devices(search_state, option):
            # Their counters are looked up together.
            return -(-devices // PARTITIONS_PER_STEP)
        return devices

    def _physical_devices(self, search_state: SearchState, option: Option) -> DevicesByPhysical:
        """The partitions of an option by physical device; empty if more than counters decide."""
        cached = self._by_physical.get(option.position)
        if cached is None:
            cached = self._by_physical[option.position] = self._find_physical_devices(
                search_state, option
            )
        return cached

    def _find_physical_devices(
        self, search_state: SearchState, option: Option
    ) -> DevicesByPhysical:
        if option.constraints or option.admin_access or search_state.layout.has_groups:
            return {}
        by_physical: DevicesByPhysical = {}
        for device in search_state.eligibility.eligible_devices(option):
            if not search_state.layout.draws[device] or search_state.is_shareable(device):
                return {}
            physical, position = self.losses.position_of(device)
            by_physical.setdefault(physical, []).append((device, position))
        return by_physical

    def _locality(self, row: DeviceRow, device: int) -> Locality:
        locality = self._localities.get(device)
        if locality is None:
            locality = self._localities[device] = tuple(
                find_attribute(row, name) for name in LOCALITY_ATTRIBUTES
            )
        return locality

    def _penalty(self, row: DeviceRow, device: int) -> Rank:
        penalty = self._penalties.get(device)
        if penalty is None:
            penalty = self._penalties[device] = _risk_penalty(row)
        return penalty


def _free_partitions(
    search_state: SearchState, by_physical: DevicesByPhysical, losses: CurrentLosses
) -> list[int]:
    """Partitions that are not allocated and whose counters suffice, in the order of the view."""
    holders, allocations = search_state.claims_by_device, search_state.usage.devices
    free: list[int] = []
    for physical, devices in by_physical.items():
        fits = losses.fits(physical)
        free += [
            device
            for device, position in devices
            if fits[position] and allocations[device].is_free and device not in holders
        ]
    return sorted(free)


def _tightness(
    search_state: SearchState, option: Option, device: int, losses: CurrentLosses
) -> tuple[float, float]:
    """Whether the device is unused, and the loss of taking it; zeros for plain devices."""
    if search_state.is_shareable(device):
        unused = (
            search_state.usage.devices[device].is_free
            and device not in search_state.claims_by_device
        )
        return (float(unused), _capacity_left(search_state, option, device))
    if search_state.layout.draws[device]:
        return losses.of(device)
    return (0.0, 0.0)


def _risk_penalty(row: DeviceRow) -> Rank:
    blocking = sum(taint.effect in HARD_EFFECTS for taint in row.taints)
    return (float(bool(row.device.binding_conditions)), float(blocking), float(row.reach.width))


def _remaining_count(search_state: SearchState, option: Option) -> int:
    """Devices of the option's class that the pod still needs, counting first alternatives."""
    claims = search_state.eligibility.claims.claims
    requested = sum(
        request[0].count
        for claim in claims
        for request in claim.requests
        if request[0].device_class is option.device_class and not request[0].is_all_mode
    )
    records = search_state.records
    filled = sum(record.pick.option == option.position for record in records)
    return max(option.count - filled, requested - len(records))


def _rank_groups(localities: dict[int, Locality], requested: int) -> dict[Locality, Rank]:
    """Rank groups of nearby devices: the smallest that is enough, else the largest."""
    sizes = Counter(localities.values())
    return {
        locality: (
            float(size < requested),
            float(size if size >= requested else -size),
            float(number),
        )
        for number, (locality, size) in enumerate(sizes.items())
    }


def _shared_attributes(place: Locality, other: Locality) -> int:
    return sum(a is not None and a == b for a, b in zip(place, other, strict=True))


def _capacity_left(search_state: SearchState, option: Option, device: int) -> float:
    """The smallest fraction of a capacity that is left after taking a share."""
    result = search_state.eligibility.check(option, device)
    amounts = dict(result.consumed_capacity) if isinstance(result, Eligible) else {}
    before = dict(search_state.usage.devices[device].consumed)
    now = search_state.consumed.get(device, {})
    return min(
        (
            1 - ratio(sum(part.get(c.name, 0) for part in (before, now, amounts)), c.value)
            for c in search_state.eligibility.view.rows[device].capacities
            if c.value > 0
        ),
        default=1.0,
    )
