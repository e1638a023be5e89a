"""Can there be any solution at all? Counting arguments that never refuse a solvable question.

Whole devices serve one slot each, so by Hall's theorem the requests must have enough suitable
devices between them: a bipartite flow from requests to devices, which are grouped by the requests
they suit. What the requests draw on counters at the least must be there. Under a match constraint
some single value must allow that flow, under a distinct constraint there must be as many values as
devices are wanted. Shareable devices and requests with admin access only loosen the bounds.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kai_py.dra.claims import ClaimPlan, Option
from kai_py.dra.constraints import ConstraintKind, Element
from kai_py.dra.errors import AllocationError
from kai_py.dra.trial import Trial

Suitable = Mapping[int, frozenset[int]]
"""Option by position to the devices that it may take."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What the bounds look at: the requests, and how many devices each option wants."""

    trial: Trial
    requests: Sequence[tuple[Option, ...]]
    counts: Mapping[int, int]


def provably_infeasible(
    trial: Trial,
    requests: Sequence[tuple[Option, ...]],
    everything: Mapping[int, tuple[int, ...]],
) -> bool:
    """Tell whether counting rules out every solution from an untouched state.

    A question whose answer may be an error of a device or claim is left to the search.
    """
    fresh = Trial(trial.eligibility, trial.layout, trial.standing)
    try:
        suitable = {
            option.position: _suitable(fresh, option, everything)
            for request in requests
            for option in request
        }
        counts = {
            option.position: len(everything.get(option.position, ())) or option.count
            for request in requests
            for option in request
        }
        question = _Question(fresh, requests, counts)
        return (
            not _supplied(question, suitable)
            or _counters_rule_out(question, suitable)
            or _constraint_rules_out(question, suitable)
        )
    except AllocationError:
        return False


def _suitable(
    fresh: Trial, option: Option, everything: Mapping[int, tuple[int, ...]]
) -> frozenset[int]:
    devices: Iterable[int] = everything.get(option.position, range(len(fresh.standing.holdings)))
    return frozenset(d for d in devices if fresh.refusal(option, d) is None)


def _supplied(question: _Question, suitable: Suitable) -> bool:
    """Hall's condition for all requests together."""
    wanted: list[int] = []
    suits: Counter[int] = Counter()
    masks: dict[int, int] = {}
    for request in question.requests:
        possible = _possible(question, request, suitable)
        if not possible:
            return False
        if any(option.admin_access for option in possible):
            continue
        devices = frozenset().union(*(suitable[option.position] for option in possible))
        shared = {device for device in devices if question.trial.is_shareable(device)}
        least = min(question.counts[option.position] for option in possible)
        for device in devices - shared:
            masks[device] = masks.get(device, 0) | 1 << len(wanted)
        wanted.append(max(0, least - len(shared)))
    suits.update(masks.values())
    return _flows(wanted, suits)


def _possible(question: _Question, request: tuple[Option, ...], suitable: Suitable) -> list[Option]:
    return [
        option
        for option in request
        if len(suitable[option.position]) >= question.counts[option.position]
        and (question.counts[option.position] or not option.everything)
    ]


def _counters_rule_out(question: _Question, suitable: Suitable) -> bool:
    """Compare the least that all requests draw with what all counter sets have left together."""
    trial = question.trial
    family_of = {
        number: (trial.eligibility.view.pools[pool].id.driver, name.rstrip("0123456789"))
        for (pool, (_, name)), number in trial.layout.numbers.items()
    }
    left: Counter[tuple[str, str]] = Counter()
    for number, family in family_of.items():
        left[family] += max(0, trial.left[number])
    least: Counter[tuple[str, str]] = Counter()
    for request in question.requests:
        least.update(_least_draw(question, request, suitable, family_of))
    return any(amount > left[family] for family, amount in least.items())


def _least_draw(
    question: _Question,
    request: tuple[Option, ...],
    suitable: Suitable,
    family_of: Mapping[int, tuple[str, str]],
) -> Counter[tuple[str, str]]:
    """Per family of counters (``memory-slice-0`` to ``-7`` are one) the least a request draws."""
    least: Counter[tuple[str, str]] | None = None
    for option in _possible(question, request, suitable):
        for device in suitable[option.position]:
            drawn: Counter[tuple[str, str]] = Counter()
            if not question.trial.is_shareable(device):
                for number, amount in question.trial.layout.draws[device]:
                    drawn[family_of[number]] += amount * question.counts[option.position]
            least = drawn if least is None else least & drawn
            if not least:
                return Counter()
    return least or Counter()


def _constraint_rules_out(question: _Question, suitable: Suitable) -> bool:
    for plan in question.trial.eligibility.claims.claims:
        options = [option for request in plan.requests for option in request]
        for index in range(len(plan.constraints)):
            bound = [option for option in options if index in option.constraints]
            if bound and not _satisfiable(question, suitable, index, bound):
                return True
    return False


def _satisfiable(
    question: _Question, suitable: Suitable, index: int, bound: Sequence[Option]
) -> bool:
    values = {
        option.position: {
            device: question.trial.eligibility.elements(option, index, device) or frozenset()
            for device in suitable[option.position]
        }
        for option in bound
    }
    occurring = {
        e for by_device in values.values() for elements in by_device.values() for e in elements
    }
    plan = question.trial.eligibility.claims.claims[bound[0].claim]
    if plan.constraints[index].kind is ConstraintKind.DISTINCT:
        if not all(elements for by_device in values.values() for elements in by_device.values()):
            return True
        return _wanted_by(question, suitable, plan, index) <= len(occurring)
    unbound = {**suitable, **dict.fromkeys(values, frozenset[int]())}
    return _supplied(question, unbound) or any(
        _supplied(question, {**suitable, **_with_value(values, element)})
        for element in sorted(occurring, key=repr)
    )


def _with_value(
    values: Mapping[int, Mapping[int, frozenset[Element]]], element: Element
) -> Suitable:
    return {
        option: frozenset(device for device, elements in by_device.items() if element in elements)
        for option, by_device in values.items()
    }


def _wanted_by(question: _Question, suitable: Suitable, plan: ClaimPlan, index: int) -> int:
    """Count the devices that a constraint binds in any solution."""
    wanted = 0
    for request in plan.requests:
        possible = _possible(question, request, suitable)
        if possible and all(index in option.constraints for option in possible):
            wanted += min(question.counts[option.position] for option in possible)
    return wanted


def _flows(wanted: Sequence[int], supply: Mapping[int, int]) -> bool:
    """Tell whether every request gets what it wants; ``supply`` is devices by mask of requests."""
    masks = sorted(supply)
    left = [supply[mask] for mask in masks]
    given = [[0] * len(masks) for _ in wanted]
    return all(
        _augment(request, masks, left, given)
        for request, amount in enumerate(wanted)
        for _ in range(amount)
    )


def _augment(start: int, masks: Sequence[int], left: list[int], given: list[list[int]]) -> bool:
    """Find one more device for ``start``, moving devices of other requests where it helps."""
    reached: dict[int, tuple[int, int] | None] = {start: None}
    queue = deque((start,))
    while queue:
        request = queue.popleft()
        for group, mask in enumerate(masks):
            if not mask >> request & 1:
                continue
            if left[group]:
                left[group] -= 1
                _shift(request, group, reached, given)
                return True
            for other, row in enumerate(given):
                if row[group] and other not in reached:
                    reached[other] = (request, group)
                    queue.append(other)
    return False


def _shift(
    request: int,
    group: int,
    reached: Mapping[int, tuple[int, int] | None],
    given: list[list[int]],
) -> None:
    given[request][group] += 1
    step = reached[request]
    while step is not None:
        before, shared = step
        given[request][shared] -= 1
        given[before][shared] += 1
        request, step = before, reached[before]
