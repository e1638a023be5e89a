"""Faults of queues: parents, cycles, depth, duplicates, amounts.

A fault is a value that names the queue, the field and what to do. Nothing is dropped: a queue
without a usable parent becomes a root, an impossible number counts as none, and of
two queues of one name the older counts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kai_py.snapshot.tables.queue_objects import QueueFields
from kai_py.snapshot.tables.queues import QueueFault, QueueInfo, QueueProblem

MAX_DEPTH = 32
"""Most levels of queues below a root: a cycle does work for every level."""


MAX_WEIGHT = 1e15
"""Weights of memory may be in bytes, as in queues of KAI."""


MIN_PRIORITY, MAX_PRIORITY = -(2**31), 2**31 - 1
"""The priorities that our CRD admits; a queue of KAI may have any int64."""

MAX_LISTED = 8
"""Most queues that a message about a cycle lists."""


class CheckedQueues(Struct, frozen=True):
    """Queues by age with unique names and usable numbers; a parent of "" means root."""

    queues: tuple[QueueInfo, ...]
    parents: Mapping[str, str]
    problems: tuple[QueueProblem, ...]


def check_queues(specs: Iterable[QueueInfo], resources: Sequence[str]) -> CheckedQueues:
    """Usable queues, oldest first, and every fault, in an order that listing does not change."""
    problems: list[QueueProblem] = []
    unique: dict[str, QueueInfo] = {}
    for spec in _oldest_first(specs):
        if spec.name in unique:
            problems.append(_duplicate(unique[spec.name], spec))
            continue
        problems.extend(spec.problems)
        unique[spec.name] = _with_usable_amounts(spec, resources, problems)
    parents = {name: spec.parent for name, spec in unique.items()}
    broken = _broken_parents(parents)
    broken.update(_too_deep(parents, broken))
    return CheckedQueues(
        queues=tuple(unique.values()),
        parents={name: "" if name in broken else parent for name, parent in parents.items()},
        problems=(*problems, *broken.values()),
    )


def _oldest_first(specs: Iterable[QueueInfo]) -> list[QueueInfo]:
    """By age, then name; only duplicates by their text, which is slow to make."""
    listed = sorted(specs, key=lambda spec: (spec.created, spec.name))
    if len({spec.name for spec in listed}) < len(listed):
        listed.sort(key=lambda spec: (spec.created, spec.name, repr(spec)))
    return listed


def _duplicate(first: QueueInfo, other: QueueInfo) -> QueueProblem:
    reason = (
        f"queue {first.name!r} is declared more than once; the oldest declaration takes precedence"
    )
    if first.api_version != other.api_version:
        reason += f", here that of {first.api_version}; delete that of {other.api_version}"
    return QueueProblem(first.name, QueueFault.DUPLICATE, reason)


def _with_usable_amounts(
    spec: QueueInfo, resources: Sequence[str], problems: list[QueueProblem]
) -> QueueInfo:
    """The queue with every negative or undefined amount replaced by 0; itself if there is none."""
    if _is_usable(spec):
        return spec
    known, fields = len(problems), QueueFields(spec.api_version)
    least = "a number of at least 0"

    def report(field: str, amount: float, wanted: str, treated_as: float) -> float:
        written = str(amount) if isinstance(amount, int) else f"{amount:.10g}"
        reason = (
            f"queue {spec.name!r}: {field} is {written}, must be {wanted}; "
            f"it is treated as {treated_as:.10g}"
        )
        problems.append(QueueProblem(spec.name, QueueFault.INVALID_AMOUNT, reason))
        return treated_as

    def bounds(bound: str, amounts: Mapping[str, float]) -> dict[str, float]:
        found = {name: amounts[name] for name in resources if name in amounts}
        wanted = least + (", or -1 for unlimited" if fields.is_kai else "")
        for name, amount in found.items():
            if not amount >= 0:
                written = amount / fields.unit(name)
                found[name] = report(fields.path(name, bound), written, wanted, 0.0)
        return found

    def usable_weight(field: str, weight: float) -> float:
        if not weight >= 0 or math.isinf(weight):
            return report(field, weight, f"{least}, and finite", 0.0)
        if weight > MAX_WEIGHT:
            return report(field, weight, f"at most {MAX_WEIGHT:g}", MAX_WEIGHT)
        return weight

    deserved, most = bounds("deserved", spec.deserved), bounds("max", spec.max)
    weight = usable_weight("spec.weight", spec.weight)
    weights = {
        name: usable_weight(fields.path(name, "weight"), spec.weights[name])
        for name in resources
        if name in spec.weights
    }
    priority = max(MIN_PRIORITY, min(spec.priority, MAX_PRIORITY))
    if priority != spec.priority:
        wanted = f"from {MIN_PRIORITY} to {MAX_PRIORITY}"
        report("spec.priority", spec.priority, wanted, priority)
    if len(problems) == known:
        return spec
    return replace(
        spec, deserved=deserved, max=most, weight=weight, weights=weights, priority=priority
    )


def _is_usable(spec: QueueInfo) -> bool:
    """Whether no amount at all has to be replaced: a quick look, as that is so as a rule."""
    return (
        all(amount >= 0 for amount in (*spec.deserved.values(), *spec.max.values()))
        and all(0 <= weight <= MAX_WEIGHT for weight in (spec.weight, *spec.weights.values()))
        and MIN_PRIORITY <= spec.priority <= MAX_PRIORITY
    )


def _broken_parents(parents: Mapping[str, str]) -> dict[str, QueueProblem]:
    """Queues whose parent cannot be used: it does not exist, or they are their own ancestor."""
    broken = {
        name: _missing_parent(name, parent)
        for name, parent in parents.items()
        if parent and parent not in parents
    }
    settled = {"", *broken}
    for start in parents:
        walk: dict[str, None] = {}
        name = start
        while name not in settled and name not in walk:
            walk[name] = None
            name = parents[name]
        if name in walk:
            cycle = list(walk)[list(walk).index(name) :]
            broken.update({member: _cycle(member, cycle) for member in cycle})
        settled.update(walk)
    return broken


def _too_deep(
    parents: Mapping[str, str], broken: Mapping[str, QueueProblem]
) -> dict[str, QueueProblem]:
    """The queues at which a tree is cut, so that no queue is more than ``MAX_DEPTH`` below one."""
    depth: dict[str, int] = {}
    cut: dict[str, QueueProblem] = {}
    for start in parents:
        walk: list[str] = []
        name = start
        while name not in depth:
            walk.append(name)
            if name in broken or not parents[name]:
                break
            name = parents[name]
        for each in reversed(walk):
            is_root = each in broken or not parents[each]
            below = 0 if is_root else depth[parents[each]] + 1
            if below > MAX_DEPTH:
                cut[each] = _cut(each, parents[each])
                below = 0
            depth[each] = below
    return cut


def _cut(name: str, parent: str) -> QueueProblem:
    reason = (
        f"queue {name!r}: parent {parent!r} is {MAX_DEPTH} levels deep, the most that queues may "
        "be nested; give it a parent nearer to the root"
    )
    return QueueProblem(name, QueueFault.TOO_DEEP, reason)


def _missing_parent(name: str, parent: str) -> QueueProblem:
    reason = f"queue {name!r}: parent {parent!r} does not exist; create it or correct parent"
    return QueueProblem(name, QueueFault.MISSING_PARENT, reason)


def _cycle(name: str, cycle: Sequence[str]) -> QueueProblem:
    at = cycle.index(name)
    others = (*cycle[at + 1 :], *cycle[:at])
    listed = (*others[:MAX_LISTED], "…") if len(others) > MAX_LISTED else others
    ring = " > ".join((name, *listed, name))
    reason = f"queue {name!r} is its own ancestor ({ring}); give one of them another parent"
    return QueueProblem(name, QueueFault.CYCLE, reason)
