"""Reserve: a gang that has waited too long for room gets nodes that empty for it.

    of every queue with a ``reserveAfter``, the first gang that waited longer for the pods of its
    floor; the longest waiting of all queues first:
        let running pods end, one after the other, until the gang has room
        keep the nodes that it then takes (``reservations``)

Pods end by their expected runtime; those that say nothing after all others, those on the emptiest
nodes first. So a node that empties stays the first choice, and the choice settles. Pods that serve
for ever count only if they say when they end. A gang that could never have the room as its own,
because it asks for more than its queue's fair share, or more non-preemptible pods than the queue
deserves, gets nothing kept. O(pods in the way x log of them) per gang.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.reservations import Reservation, exclude_rows
from kai_py.plan.state.statement import Evicted
from kai_py.policy.limits import check_deserved
from kai_py.policy.queue_usage import exceeds_any
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.tables.queues import inherited

LONG_RUNNING_KINDS = frozenset({"DaemonSet", "Deployment", "ReplicaSet", "Service", "StatefulSet"})
"""Kinds of owners whose pods run until somebody ends them."""

MAX_ENDING_PODS = 4096
"""Pods that are thought away for one gang at most."""


@dataclass(frozen=True, slots=True)
class _EndingPod:
    """A running pod, and when it is expected to end; inf if it does not say."""

    member: Member
    gang: Gang
    ends_at: float


def reserve(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Keep nodes for those of ``gangs`` that waited too long."""
    for gang in _waited_too_long(state, gangs):
        ask = state.next_request(gang)
        if ask is None or ask.is_elastic or not _may_reserve(state, gang, ask):
            continue
        taken = tuple(row for each in state.placer.reservations.active for row in each.rows)
        allowed = exclude_rows(taken, None, len(state.snapshot.nodes))
        found = _earliest_rows(state, gang, ask, allowed)
        if found is not None:
            rows, start = found
            cost = state.quota.cost_of(ask.members)
            state.placer.reservations.active.append(Reservation(gang, rows, start, cost))


def report_reservations(state: CycleState) -> None:
    """Tell the gangs that still wait which nodes are kept for them."""
    for each in state.placer.reservations.active:
        obstacle = state.unschedulable.get(each.gang.key)
        if obstacle is not None:
            names = ", ".join(state.snapshot.nodes.names[row] for row in each.rows[:3])
            more = f" and {len(each.rows) - 3} more" if len(each.rows) > 3 else ""
            kept = f"{obstacle.message} Nodes are kept for it as they empty: {names}{more}."
            state.mark_unschedulable(each.gang, replace(obstacle, message=kept))


def _waited_too_long(state: CycleState, gangs: Iterable[Gang]) -> list[Gang]:
    """At most one gang per queue: of the highest priority among those due, the oldest."""
    after = inherited(state.snapshot.queues, lambda spec: spec.reserve_after)
    now = state.snapshot.now
    if not after:
        return []
    first: dict[str, Gang] = {}
    rank = state.ageing.priority
    for gang in sorted(gangs, key=lambda each: (-rank(each), each.waiting_since, each.key)):
        wait = after.get(gang.queue)
        if wait is None or gang.queue in first or now < gang.waiting_since + wait:
            continue
        promised = any(member.pod.uid in state.snapshot.nominations for member in gang.pending)
        if not promised and state.precondition(gang) is None:
            first[gang.queue] = gang
    return sorted(first.values(), key=lambda each: (each.waiting_since, each.key))


def _may_reserve(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    quota = state.quota
    queue, cost = quota.queues.positions[gang.queue], quota.cost_of(request.members)
    fair = quota.shares.fair[:, quota.queues.ancestors(queue)].min(axis=1)
    if exceeds_any(np.where(cost > 0, cost, 0.0)[:, None], fair[:, None]).any():
        return False
    return gang.is_preemptible(request.members) or check_deserved(quota.usage, queue, cost) is None


def _earliest_rows(
    state: CycleState, gang: Gang, request: PlacementRequest, allowed: Bools
) -> tuple[tuple[int, ...], float] | None:
    """The nodes that have room for the gang first, and when; None if none ever has."""
    endings = _ending_pods(state, allowed)
    rows, failed, count = _rows_once_ended(state, gang, request, endings[:0], allowed), -1, 0
    while rows is None and count < len(endings):
        failed, count = count, min(max(1, 2 * count), len(endings))
        rows = _rows_once_ended(state, gang, request, endings[:count], allowed)
    if rows is None:
        return None
    while count - failed > 1:
        middle = (failed + count) // 2
        tried = _rows_once_ended(state, gang, request, endings[:middle], allowed)
        if tried is None:
            failed = middle
        else:
            count, rows = middle, tried
    names = {state.snapshot.nodes.names[row] for row in rows}
    waits = [each.ends_at for each in endings[:count] if each.member.node in names]
    return rows, max((state.snapshot.now, *waits))


def _ending_pods(state: CycleState, allowed: Bools) -> list[_EndingPod]:
    """Running pods in the order in which they are thought to end."""
    positions = state.snapshot.nodes.positions
    found: list[_EndingPod] = []
    held: dict[str, int] = {}
    for key in sorted(state.snapshot.gangs):
        gang = state.snapshot.gangs[key]
        if gang.expected_runtime is None and gang.owner.kind in LONG_RUNNING_KINDS:
            continue
        for member in gang.bound:
            row = positions.get(member.node)
            if row is None or not allowed[row] or member.pod.uid in state.statement.evicted:
                continue
            found.append(_EndingPod(member, gang, _expected_end(gang, member, state.snapshot.now)))
            held[member.node] = held.get(member.node, 0) + 1
    found.sort(key=lambda e: (e.ends_at, held[e.member.node], e.member.node, e.member.pod.uid))
    return found[:MAX_ENDING_PODS]


def _expected_end(gang: Gang, member: Member, now: float) -> float:
    if gang.expected_runtime is None or not member.bound_since:
        return math.inf
    return max(member.bound_since + gang.expected_runtime, now)


def _rows_once_ended(
    state: CycleState,
    gang: Gang,
    request: PlacementRequest,
    ended: Sequence[_EndingPod],
    allowed: Bools,
) -> tuple[int, ...] | None:
    """The nodes the gang takes once ``ended`` are gone; None if it finds no room."""
    statement = state.statement
    with statement.trial():
        for each in ended:
            statement.evict(Evicted(each.member, each.gang, Action.ALLOCATE, gang, ""))
        blocked = state.placer.place(
            statement,
            gang,
            request.members,
            Action.ALLOCATE,
            capacity=Capacity.FUTURE_IDLE,
            allowed=allowed,
            explain=False,
        )
        if blocked is not None:
            return None
        return tuple(sorted({statement.placed[m.pod.uid].row for m in request.members}))
