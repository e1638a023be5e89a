"""Gangs and queues that keep a cycle from being opened: they are left out, the others are planned.

    if opening a cycle fails: forget the results of earlier cycles, and open it again
    if it fails again: find the gangs without which it opens; if there are none, such queues
    if there are none either: leave out the parts of a cycle that it can do without

A gang that is left out starts nothing and is no victim; what its pods hold counts as before. A
queue is left out with all that are below it: their gangs start nothing and are no victims, and what
they hold counts for the nearest queue above. Both are tried again when their backoff ends.

Opening is tried O(log(gangs)) times for each gang or queue that is found.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kai_py.grouping.gang import Owner
from kai_py.plan.observations import ObjectProblem
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import QueueInfo

MAX_FOUND = 16
"""Gangs that are found one by one; if there are more, all of their namespaces are left out."""
MAX_NAMESPACES = 64
"""Namespaces, or queues, that are left out at most."""

LISTS_OF_GANGS = (
    "pending",
    "below_min_members",
    "started_in_part",
    "choosing_spot",
    "sharing",
    "refused",
)
BY_GANG = ("gangs", "disrupted", "unhealthy", "starting", "in_backoff")
BY_QUEUE = ("queue_allocated", "queue_requested", "queue_non_preemptible", "queue_leaving")


class LeftOut(Struct, frozen=True):
    """Keys of gangs and names of queues; ``error``: what opening failed with."""

    gangs: Set[str] = frozenset()
    queues: Set[str] = frozenset()
    error: Exception | None = None


def without(snapshot: Snapshot, left_out: LeftOut) -> Snapshot:
    """The snapshot without the gangs, and without the queues and all below them."""
    if left_out.gangs:
        snapshot = _without_gangs(snapshot, left_out.gangs)
    if left_out.queues:
        snapshot = _without_queues(snapshot, left_out.queues)
    return snapshot


def _without_gangs(snapshot: Snapshot, keys: Set[str]) -> Snapshot:
    kept: dict[str, Any] = {
        name: tuple([key for key in getattr(snapshot, name) if key not in keys])
        for name in LISTS_OF_GANGS
    }
    kept |= {
        name: {key: each for key, each in getattr(snapshot, name).items() if key not in keys}
        for name in BY_GANG
    }
    return replace(snapshot, **kept)


def _without_queues(snapshot: Snapshot, names: Set[str]) -> Snapshot:
    gone = with_descendants(snapshot.queues, names)
    parents = {spec.name: spec.parent for spec in snapshot.queues}
    kept = tuple(spec for spec in snapshot.queues if spec.name not in gone)
    sums: dict[str, Any] = {
        name: _moved_up(getattr(snapshot, name), parents, gone) for name in BY_QUEUE
    }
    return replace(snapshot, queues=kept, **sums)


def with_descendants(specs: Iterable[QueueInfo], names: Set[str]) -> Set[str]:
    """The queues and all below them."""
    children: dict[str, list[str]] = {}
    for spec in specs:
        children.setdefault(spec.parent, []).append(spec.name)
    found, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += children.get(name, ())
    return frozenset(found)


def _moved_up(
    amounts: Mapping[str, Mapping[str, float]], parents: Mapping[str, str], gone: Set[str]
) -> dict[str, dict[str, float]]:
    """By queue, amounts; those of queues that are ``gone`` count for the nearest one above."""
    moved = {name: dict(each) for name, each in amounts.items() if name not in gone}
    for name in sorted(gone & amounts.keys()):
        above, seen = parents[name], {name}
        while above in gone and above not in seen:
            seen.add(above)
            above = parents[above]
        sums = moved.setdefault(above, {})
        for resource, amount in amounts[name].items():
            sums[resource] = sums.get(resource, 0.0) + amount
    return moved


def find_failing(
    snapshot: Snapshot, attempt: Callable[[Snapshot], Exception | None]
) -> LeftOut | None:
    """What must be left out so that ``attempt`` gives no error; None if that is not known."""
    errors: list[Exception] = []

    def fails(left_out: LeftOut) -> bool:
        error = attempt(without(snapshot, left_out))
        errors.extend(() if error is None else (error,))
        return error is not None

    gangs = _failing_gangs(snapshot, lambda keys: fails(LeftOut(gangs=keys)))
    if gangs:
        return LeftOut(gangs=gangs, error=errors[-1])
    names = [spec.name for spec in snapshot.queues]
    queues = _failing(names, lambda keys: fails(LeftOut(queues=keys)), MAX_NAMESPACES)
    return LeftOut(queues=frozenset(queues), error=errors[-1]) if queues else None


def _failing_gangs(snapshot: Snapshot, fails: Callable[[Set[str]], bool]) -> Set[str]:
    """The gangs without which it does not fail; none if it does without all of them, too."""
    by_namespace: dict[str, list[str]] = {}
    for key, gang in snapshot.gangs.items():
        by_namespace.setdefault(gang.owner.namespace, []).append(key)

    def keys_of(namespaces: Iterable[str]) -> Set[str]:
        return frozenset(key for each in namespaces for key in by_namespace[each])

    found = _failing(sorted(by_namespace), lambda each: fails(keys_of(each)), MAX_NAMESPACES)
    all_of_them = keys_of(found or ())
    one_by_one = _failing(sorted(all_of_them), fails, MAX_FOUND)
    return all_of_them if one_by_one is None else frozenset(one_by_one)


def _failing(keys: Sequence[str], fails: Callable[[Set[str]], bool], most: int) -> list[str] | None:
    """Those of ``keys`` without which it does not fail; None if there are more than ``most``.

    ``fails``: whether it does without the given keys.
    """
    if not keys or fails(frozenset(keys)):
        return None
    left, found = list(keys), list[str]()
    good = 0  # The first ``good`` keys that are left do not make it fail.
    while fails(frozenset(found)):
        if len(found) == most:
            return None
        bad = len(left)
        while bad - good > 1:
            middle = (good + bad) // 2
            if fails(frozenset((*found, *left[middle:]))):
                bad = middle
            else:
                good = middle
        found.append(left.pop(bad - 1))
    return found


def set_aside_reason(queue: str) -> Unschedulable:
    """Why a gang waits whose queue is left out."""
    return Unschedulable(
        Stage.SCHEDULER_ERROR,
        f'queue "{queue}", or one above it, can\'t be processed and is set aside; see its events.',
    )


def queue_problems(
    queues: Iterable[QueueInfo], messages: Mapping[str, str]
) -> tuple[ObjectProblem, ...]:
    """The problem of each queue that is left out; ``messages`` by name."""
    return tuple(
        ObjectProblem(Owner(spec.api_version, "Queue", "", spec.name, ""), messages[spec.name])
        for spec in queues
        if spec.name in messages
    )
