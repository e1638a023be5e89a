"""Counting bounds that prove a search infeasible; a solvable problem is never refused.

Whole devices serve one slot each, so by Hall's theorem the requests must have enough eligible
devices between them: a bipartite flow from requests to devices, which are grouped by the requests
they are eligible for. The least that the requests draw on counters must be available. Under a match
constraint some single value must allow that flow; under a distinct constraint there must be as many
values as devices. Shareable devices and requests with admin access only loosen these bounds. What
shares take of shared devices must be left in sum, and no more than k shares that are larger than
1/(k+1) of the largest device fit on one.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from kai_py.dra.constraints import AttributeElement, ConstraintKind
from kai_py.dra.eligibility import Eligible
from kai_py.dra.identity import AllocationError
from kai_py.dra.parsed_claims import Option, ParsedClaim
from kai_py.dra.search_state import SearchState

MAX_PARTS = 8
"""Shares of one device, at most, with which the bound by large shares is tried."""

MAX_VALUES = 256
"""Values of an attribute that are tried for a match constraint; with more nothing is proven."""

EligibleDevices = Mapping[int, frozenset[int]]
"""Devices that an option may take, by the option's position."""


class _CountingProblem(Struct, frozen=True):
    """The input of the bounds: the requests, and how many devices each option needs."""

    search_state: SearchState
    requests: Sequence[tuple[Option, ...]]
    counts: Mapping[int, int]


def provably_infeasible(
    search_state: SearchState,
    requests: Sequence[tuple[Option, ...]],
    all_mode_devices: Mapping[int, tuple[int, ...]],
) -> bool:
    """Whether counting rules out every solution from an untouched state.

    False where the result may be the error of a device or claim, which the search has to raise.
    """
    untouched = SearchState(search_state.eligibility, search_state.layout, search_state.usage)
    try:
        eligible = _eligible_by_option(untouched, requests, all_mode_devices)
        counts = {
            option.position: len(all_mode_devices.get(option.position, ())) or option.count
            for request in requests
            for option in request
        }
        problem = _CountingProblem(untouched, requests, counts)
        return (
            not _has_enough_devices(problem, eligible)
            or _shared_capacity_rules_out(problem, eligible)
            or _counters_rule_out(problem, eligible)
            or _constraint_rules_out(problem, eligible)
        )
    except AllocationError:
        return False


def _eligible_by_option(
    untouched: SearchState,
    requests: Sequence[tuple[Option, ...]],
    all_mode_devices: Mapping[int, tuple[int, ...]],
) -> dict[int, frozenset[int]]:
    """The devices that each option may take, by its position; the same set for options alike."""
    found: dict[int, frozenset[int]] = {}
    known: dict[tuple[int, bool], frozenset[int]] = {}
    for option in (option for request in requests for option in request):
        key = untouched.eligibility.alike[option.position], option.admin_access
        if option.position in all_mode_devices:
            found[option.position] = _eligible_devices(untouched, option, all_mode_devices)
            continue
        if key not in known:
            known[key] = _eligible_devices(untouched, option, all_mode_devices)
        found[option.position] = known[key]
    return found


def _eligible_devices(
    search_state: SearchState, option: Option, all_mode_devices: Mapping[int, tuple[int, ...]]
) -> frozenset[int]:
    devices: Iterable[int] = all_mode_devices.get(
        option.position, range(len(search_state.usage.devices))
    )
    return frozenset(d for d in devices if search_state.rejection(option, d) is None)


def _has_enough_devices(problem: _CountingProblem, eligible: EligibleDevices) -> bool:
    """Hall's condition for all requests together."""
    demand: list[int] = []
    supply: Counter[int] = Counter()
    masks: dict[int, int] = {}
    for request in problem.requests:
        possible = _possible_options(problem, request, eligible)
        if not possible:
            return False
        if any(option.admin_access for option in possible):
            continue
        devices = frozenset().union(*(eligible[option.position] for option in possible))
        shared = {device for device in devices if problem.search_state.is_shareable(device)}
        least = min(problem.counts[option.position] for option in possible)
        for device in devices - shared:
            masks[device] = masks.get(device, 0) | 1 << len(demand)
        demand.append(max(0, least - len(shared)))
    supply.update(masks.values())
    return _has_full_flow(demand, supply)


def _possible_options(
    problem: _CountingProblem, request: tuple[Option, ...], eligible: EligibleDevices
) -> list[Option]:
    return [
        option
        for option in request
        if len(eligible[option.position]) >= problem.counts[option.position]
        and (problem.counts[option.position] or not option.is_all_mode)
    ]


def _counters_rule_out(problem: _CountingProblem, eligible: EligibleDevices) -> bool:
    """Compare the least that all requests draw with what all counter sets have left."""
    search_state = problem.search_state
    family_of = {
        number: (search_state.eligibility.view.pools[pool].id.driver, name.rstrip("0123456789"))
        for (pool, (_, name)), number in search_state.layout.numbers.items()
    }
    left: Counter[tuple[str, str]] = Counter()
    for number, family in family_of.items():
        left[family] += max(0, search_state.counters_left[number])
    least: Counter[tuple[str, str]] = Counter()
    for request in problem.requests:
        least.update(_least_consumption(problem, request, eligible, family_of))
    return any(amount > left[family] for family, amount in least.items())


def _least_consumption(
    problem: _CountingProblem,
    request: tuple[Option, ...],
    eligible: EligibleDevices,
    family_of: Mapping[int, tuple[str, str]],
) -> Counter[tuple[str, str]]:
    """Per family of counters (``memory-slice-0`` to ``-7`` are one) the least a request draws."""
    least: Counter[tuple[str, str]] | None = None
    for option in _possible_options(problem, request, eligible):
        for device in eligible[option.position]:
            drawn: Counter[tuple[str, str]] = Counter()
            if not problem.search_state.is_shareable(device):
                for number, amount in problem.search_state.layout.draws[device]:
                    drawn[family_of[number]] += amount * problem.counts[option.position]
            least = drawn if least is None else least & drawn
            if not least:
                return Counter()
    return least or Counter()


def _shared_capacity_rules_out(problem: _CountingProblem, eligible: EligibleDevices) -> bool:
    """Compare the least that the requests take of shared devices with what these have left."""
    shares: dict[str, list[int]] = {}
    devices: set[int] = set()
    for request in problem.requests:
        least, slots = _least_share(problem, request, eligible)
        if least:
            devices.update(*(eligible[option.position] for option in request))
        for name, amount in least.items():
            shares.setdefault(name, []).extend([amount] * slots)
    return any(
        _do_not_fit(amounts, [_capacity_left(problem.search_state, d, name) for d in devices])
        for name, amounts in shares.items()
    )


def _least_share(
    problem: _CountingProblem, request: tuple[Option, ...], eligible: EligibleDevices
) -> tuple[dict[str, int], int]:
    """The least of each capacity that a device of the request takes, and its least devices.

    Nothing where some option may get a whole device or has admin access.
    """
    state, least, slots = problem.search_state, dict[str, int](), 0
    options = _possible_options(problem, request, eligible)
    for option in options:
        count = problem.counts[option.position]
        slots = min(slots or count, count)
        for device in eligible[option.position]:
            fit = state.eligibility.check(option, device)
            if (
                option.admin_access
                or not isinstance(fit, Eligible)
                or not state.is_shareable(device)
            ):
                return {}, 0
            taken = dict(fit.consumed_capacity)
            least = {
                n: min(least.get(n, a), a) for n, a in taken.items() if not least or n in least
            }
            if not least:
                return {}, 0
    return least, slots


def _capacity_left(search_state: SearchState, device: int, name: str) -> int:
    capacities = search_state.eligibility.view.rows[device].capacities
    value = next((each.value for each in capacities if each.name == name), 0)
    return max(0, value - dict(search_state.usage.devices[device].consumed).get(name, 0))


def _do_not_fit(amounts: Sequence[int], left: Sequence[int]) -> bool:
    """Whether the sum exceeds what is left, or too many are larger than 1/2, 1/3, … of a device."""
    if sum(amounts) > sum(left):
        return True
    largest = max(left, default=0)
    return any(
        sum(amount * (parts + 1) > largest for amount in amounts) > parts * len(left)
        for parts in range(1, MAX_PARTS + 1)
    )


def _constraint_rules_out(problem: _CountingProblem, eligible: EligibleDevices) -> bool:
    for claim in problem.search_state.eligibility.claims.claims:
        options = [option for request in claim.requests for option in request]
        for index in range(len(claim.constraints)):
            bound = [option for option in options if index in option.constraints]
            if bound and not _satisfiable(problem, eligible, index, bound):
                return True
    return False


def _satisfiable(
    problem: _CountingProblem, eligible: EligibleDevices, index: int, bound: Sequence[Option]
) -> bool:
    read = problem.search_state.eligibility.elements
    found = {
        option.position: {
            device: read(option, index, device) for device in eligible[option.position]
        }
        for option in bound
    }
    if any(elements == frozenset() for each in found.values() for elements in each.values()):
        return True
    values = {
        option: {device: elements or frozenset() for device, elements in by_device.items()}
        for option, by_device in found.items()
    }
    occurring = {
        e for by_device in values.values() for elements in by_device.values() for e in elements
    }
    claim = problem.search_state.eligibility.claims.claims[bound[0].claim]
    if claim.constraints[index].kind is ConstraintKind.DISTINCT:
        if not all(elements for by_device in values.values() for elements in by_device.values()):
            return True
        return _constrained_count(problem, eligible, claim, index) <= len(occurring)
    if len(occurring) > MAX_VALUES:
        return True
    unbound = {**eligible, **dict.fromkeys(values, frozenset[int]())}
    return _has_enough_devices(problem, unbound) or any(
        _has_enough_devices(problem, {**eligible, **_with_value(values, element)})
        for element in sorted(occurring, key=repr)
    )


def _with_value(
    values: Mapping[int, Mapping[int, frozenset[AttributeElement]]], element: AttributeElement
) -> EligibleDevices:
    return {
        option: frozenset(device for device, elements in by_device.items() if element in elements)
        for option, by_device in values.items()
    }


def _constrained_count(
    problem: _CountingProblem, eligible: EligibleDevices, claim: ParsedClaim, index: int
) -> int:
    """The number of devices that a constraint covers in any solution."""
    total = 0
    for request in claim.requests:
        possible = _possible_options(problem, request, eligible)
        if possible and all(index in option.constraints for option in possible):
            total += min(problem.counts[option.position] for option in possible)
    return total


def _has_full_flow(demand: Sequence[int], supply: Mapping[int, int]) -> bool:
    """Whether every request gets its amount; ``supply``: devices by bit mask of requests."""
    masks = sorted(supply)
    available = [supply[mask] for mask in masks]
    flow = [[0] * len(masks) for _ in demand]
    return all(
        _augment(request, masks, available, flow)
        for request, amount in enumerate(demand)
        for _ in range(amount)
    )


def _augment(start: int, masks: Sequence[int], available: list[int], flow: list[list[int]]) -> bool:
    """Find one more device for ``start``, moving devices of other requests where it helps."""
    reached: dict[int, tuple[int, int] | None] = {start: None}
    queue = deque((start,))
    while queue:
        request = queue.popleft()
        for group, mask in enumerate(masks):
            if not mask >> request & 1:
                continue
            if available[group]:
                available[group] -= 1
                _shift_flow(request, group, reached, flow)
                return True
            for other, row in enumerate(flow):
                if row[group] and other not in reached:
                    reached[other] = (request, group)
                    queue.append(other)
    return False


def _shift_flow(
    request: int,
    group: int,
    reached: Mapping[int, tuple[int, int] | None],
    flow: list[list[int]],
) -> None:
    flow[request][group] += 1
    step = reached[request]
    while step is not None:
        before, shared = step
        flow[request][shared] -= 1
        flow[before][shared] += 1
        request, step = before, reached[before]
