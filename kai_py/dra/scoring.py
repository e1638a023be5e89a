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
from kai_py.dra.claims import Option
from kai_py.dra.constraints import find_attribute
from kai_py.dra.node_classes import LOCALITY
from kai_py.dra.placement_loss import LossesNow, PlacementLoss
from kai_py.dra.rows import DeviceRow
from kai_py.dra.selection import Fit
from kai_py.dra.taints import BLOCKING_EFFECTS
from kai_py.dra.trial import Trial

Place = tuple[DeviceAttribute | None, ...]
"""Where a device sits: its values of ``LOCALITY``."""

Rank = tuple[float, ...]

Cards = dict[int, list[tuple[int, int]]]
"""Card to devices, each with its place in the card."""


@dataclass(frozen=True, slots=True, eq=False)
class BestFit:
    """The order of best fit on one node view."""

    losses: PlacementLoss
    _places: dict[int, Place] = field(default_factory=dict)
    _cautions: dict[int, Rank] = field(default_factory=dict)
    _cards: dict[int, Cards] = field(default_factory=dict)
    """By option."""

    def __call__(self, trial: Trial, option: Option) -> Sequence[int]:
        """Return the devices that ``option`` may take now, best first.

        What is refused now stays refused in later slots of the option, so it is left out.
        """
        rows = trial.eligibility.view.rows
        losses = self.losses.with_left(trial.left)
        cards = self._cards_of(trial, option)
        if cards:
            possible = _free_parts(trial, cards, losses)
        else:
            suitable = trial.eligibility.suitable(option)
            possible = [d for d in suitable if trial.refusal(option, d) is None]
        if len(possible) <= 1:
            return possible
        places = {device: self._place(rows[device], device) for device in possible}
        groups = _rank_groups(places, _wanted(trial, option))
        picks = [each.pick.device for each in trial.taken]
        taken = Counter(self._place(rows[device], device) for device in picks)
        near = {
            place: sum(count * _common(place, other) for other, count in taken.items())
            for place in groups
        }
        ranks = {
            device: (
                *self._caution(rows[device], device),
                -near[places[device]],
                *(losses.of(device) if cards else _tightness(trial, option, device, losses)),
                *groups[places[device]],
                device,
            )
            for device in possible
        }
        return sorted(possible, key=ranks.__getitem__)

    def _cards_of(self, trial: Trial, option: Option) -> Cards:
        """The devices of an option by card; none if more than counters and holders decide."""
        known = self._cards.get(option.position)
        if known is None:
            known = self._cards[option.position] = self._find_cards(trial, option)
        return known

    def _find_cards(self, trial: Trial, option: Option) -> Cards:
        if option.constraints or option.admin_access or trial.layout.grouped:
            return {}
        cards: Cards = {}
        for device in trial.eligibility.suitable(option):
            if not trial.layout.draws[device] or trial.is_shareable(device):
                return {}
            card, place = self.losses.place_of(device)
            cards.setdefault(card, []).append((device, place))
        return cards

    def _place(self, row: DeviceRow, device: int) -> Place:
        place = self._places.get(device)
        if place is None:
            place = self._places[device] = tuple(find_attribute(row, name) for name in LOCALITY)
        return place

    def _caution(self, row: DeviceRow, device: int) -> Rank:
        caution = self._cautions.get(device)
        if caution is None:
            caution = self._cautions[device] = _caution(row)
        return caution


def _free_parts(trial: Trial, cards: Cards, losses: LossesNow) -> list[int]:
    """Partitions that nobody holds and whose counters are there, in the order of the view."""
    holders, holdings = trial.holders, trial.standing.holdings
    free: list[int] = []
    for card, devices in cards.items():
        fits = losses.fits(card)
        free += [
            device
            for device, place in devices
            if fits[place] and holdings[device].empty and device not in holders
        ]
    return sorted(free)


def _tightness(trial: Trial, option: Option, device: int, losses: LossesNow) -> tuple[float, float]:
    """Whether the device is fresh, and what taking it costs others; zeros for plain devices."""
    if trial.is_shareable(device):
        fresh = trial.standing.holdings[device].empty and device not in trial.holders
        return (float(fresh), _room_left(trial, option, device))
    if trial.layout.draws[device]:
        return losses.of(device)
    return (0.0, 0.0)


def _caution(row: DeviceRow) -> Rank:
    blocking = sum(taint.effect in BLOCKING_EFFECTS for taint in row.taints)
    return (float(bool(row.device.binding_conditions)), float(blocking))


def _wanted(trial: Trial, option: Option) -> int:
    """Devices of the option's class that the pod still wants, counting first alternatives."""
    claims = trial.eligibility.claims.claims
    wanted = sum(
        request[0].count
        for claim in claims
        for request in claim.requests
        if request[0].device_class is option.device_class and not request[0].everything
    )
    return max(option.count, wanted - len(trial.taken))


def _rank_groups(places: dict[int, Place], wanted: int) -> dict[Place, Rank]:
    """Rank groups of near devices: the smallest that is enough, else the largest."""
    sizes = Counter(places.values())
    return {
        place: (float(size < wanted), float(size if size >= wanted else -size), float(number))
        for number, (place, size) in enumerate(sizes.items())
    }


def _common(place: Place, other: Place) -> int:
    return sum(a is not None and a == b for a, b in zip(place, other, strict=True))


def _room_left(trial: Trial, option: Option, device: int) -> float:
    """The smallest fraction of a capacity that is left after taking a share."""
    outcome = trial.eligibility.judge(option, device)
    amounts = dict(outcome.consumed) if isinstance(outcome, Fit) else {}
    before = dict(trial.standing.holdings[device].consumed)
    now = trial.consumed.get(device, {})
    return min(
        (
            1 - (before.get(c.name, 0) + now.get(c.name, 0) + amounts.get(c.name, 0)) / c.value
            for c in trial.eligibility.view.rows[device].capacities
            if c.value > 0
        ),
        default=1.0,
    )
