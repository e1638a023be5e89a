"""Reserve: keep nodes for gangs that have waited longer than their queue's ``reserveAfter``.

    for every queue with a ``reserveAfter``, the first gang whose pods waited longer for its
    minMember; over all queues, the longest waiting first:
        let running pods end, one after the other, until the gang fits
        reserve the nodes that it takes then (``reservations``); if none has to end, place it

Pods are assumed to end by their expected runtimes; those without one after all others, on the
emptiest nodes first. So a node that drains stays the first choice, and the choice is stable between
cycles. Pods of long-running kinds count only with an expected runtime. Nothing is reserved for a
gang that could not keep the capacity: one that requests more than its queue's fair share, or more
non-preemptible pods than the queue deserves. O(pods that must end x log of them) per gang.

A declared runtime is a promise: because of it a pod may use reserved nodes, and the gang waits for
the pod. Once all pods in the way of the gang have run longer than they declared, they are evicted
for it, whatever protects them otherwise. If the end of a pod in the way is unknown, the gang might
wait forever; so the reservation ends ``MAX_MULTIPLE`` times the ``reserveAfter`` of the queue after
it began, and the gang's reason says why.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from kai_py.api.texts import first_of
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState, PodEnd
from kai_py.plan.session.later_alternatives import try_placing
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.reservations import Reservation, exclude_rows
from kai_py.plan.victims.survival import would_fail
from kai_py.policy.queue_limits import check_deserved
from kai_py.policy.queue_usage import exceeds_fair_share
from kai_py.policy.runtime_history import is_service
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.tables.queues import inherited

MAX_MULTIPLE, LEAST_SECONDS = 10, 600.0
"""A reservation without a foreseeable start lasts for so many times ``reserveAfter``, or longer."""

MAX_ENDING_PODS = 4096
"""The most running pods whose end is considered for one gang."""


def reserve(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Reserve nodes for those of ``gangs`` that have waited too long."""
    for gang in state.turns.eligible(_waited_too_long(state, gangs)):
        with state.turns.of(gang):
            _reserve_for(state, gang)


def _reserve_for(state: CycleState, gang: Gang) -> None:
    request = state.next_request(gang)
    if request is None or request.is_elastic or not _may_reserve(state, gang, request):
        return
    reserved = tuple(row for each in state.placer.reservations.active for row in each.rows)
    allowed = exclude_rows(reserved, None, len(state.snapshot.nodes))
    found = _earliest_rows(state, gang, request, allowed)
    if found is None:
        return
    rows, in_the_way = found
    if not in_the_way and _start_now(state, gang, request, allowed):
        return
    if _start_in_place_of(state, gang, request, rows, in_the_way):
        return
    start = max((state.snapshot.now, *(end.at for end in in_the_way)))
    if math.isinf(start) and _has_expired(state, gang):
        state.placer.reservations.ended.append((gang, in_the_way[-1].member.pod))
        return
    cost = state.quota.cost_of(request.members)
    state.placer.reservations.active.append(Reservation(gang, rows, start, cost))


def report_reservations(state: CycleState) -> None:
    """Add the reserved nodes to the unschedulable reasons of the gangs they are kept for."""
    for each in state.placer.reservations.active:
        reason = state.unschedulable.get(each.gang.key)
        if reason is not None:
            names = [state.snapshot.nodes.names[row] for row in each.rows]
            named = first_of(names)
            note = f"Nodes are reserved for it as their pods end: {named}."
            state.mark_unschedulable(each.gang, reason.with_sentence(note))
    for gang, pod in state.placer.reservations.ended:
        reason = state.unschedulable.get(gang.key)
        if reason is not None:
            note = f"No nodes are reserved for it any more: it is not known when pod {pod} ends."
            state.mark_unschedulable(gang, reason.with_sentence(note))


def _has_expired(state: CycleState, gang: Gang) -> bool:
    """Whether a reservation that may never come true has lasted long enough."""
    after = inherited(state.snapshot.queues, lambda spec: spec.reserve_after)[gang.queue]
    lasts = max(MAX_MULTIPLE * after, LEAST_SECONDS)
    return state.snapshot.now >= gang.waiting_since + after + lasts


def _start_now(state: CycleState, gang: Gang, request: PlacementRequest, allowed: Bools) -> bool:
    """Place a gang that waits for no pod to end; whether it was placed.

    If its nodes were reserved until its turn, gangs before it might evict pods for want of what it
    leaves of them. Gangs of its queue that have a higher priority still go first.
    """
    priority = state.ageing.priority
    queued = (state.snapshot.gangs[key] for key in state.snapshot.pending)
    if any(each.queue == gang.queue and priority(each) > priority(gang) for each in queued):
        return False
    if check_quota(state.quota, gang, request.members, state.request_cost(gang)) is not None:
        return False
    if not try_placing(state, gang, request.members, allowed):
        return False
    state.mark_placed(gang)
    return True


def _start_in_place_of(
    state: CycleState,
    gang: Gang,
    request: PlacementRequest,
    rows: tuple[int, ...],
    in_the_way: Sequence[PodEnd],
) -> bool:
    """If all pods in the way overstay, evict them; returns whether the gang was placed."""
    now = state.snapshot.now
    if not in_the_way or any(end.at > now for end in in_the_way):
        return False
    if any(would_fail(gang, members) for gang, members in _by_gang(in_the_way)):
        return False
    allowed = np.zeros(len(state.snapshot.nodes), dtype=np.bool_)
    allowed[list(rows)] = True
    with state.statement.trial() as trial:
        for each in in_the_way:
            ran = now - each.member.bound_since
            reason = (
                f"has run for {ran:.0f} s, longer than its expected runtime "
                f"({each.gang.expected_runtime or 0.0:g} s), on a node reserved for gang {gang.key}"
            )
            state.statement.evict(Evicted(each.member, each.gang, Action.PREEMPT, gang, reason))
        if try_placing(state, gang, request.members, allowed):
            trial.keep()
            state.mark_placed(gang)
            return True
    return False


def _waited_too_long(state: CycleState, gangs: Iterable[Gang]) -> list[Gang]:
    """Per queue, the oldest of the gangs with the highest priority that waited too long."""
    after = inherited(state.snapshot.queues, lambda spec: spec.reserve_after)
    now = state.snapshot.now
    if not after:
        return []
    first: dict[str, Gang] = {}
    priority = state.ageing.priority
    for gang in sorted(gangs, key=lambda each: (-priority(each), each.waiting_since, each.key)):
        wait = after.get(gang.queue)
        if wait is None or gang.queue in first or now < gang.waiting_since + wait:
            continue
        nominated = any(member.pod.uid in state.snapshot.nominations for member in gang.pending)
        if not nominated and state.precondition(gang) is None:
            first[gang.queue] = gang
    return sorted(first.values(), key=lambda each: (each.waiting_since, each.key))


def _may_reserve(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    quota = state.quota
    queue, cost = quota.queues.positions[gang.queue], quota.cost_of(request.members)
    if exceeds_fair_share(quota.usage, queue, cost):
        return False
    if gang.is_preemptible(request.members):
        return True
    return check_deserved(quota.usage_beside(gang, request.members), queue, cost) is None


def _earliest_rows(
    state: CycleState, gang: Gang, request: PlacementRequest, allowed: Bools
) -> tuple[tuple[int, ...], list[PodEnd]] | None:
    """The nodes on which the gang fits first, and what is in its way; None if it never does."""
    endings = _ending_pods(state, allowed)
    rows, failed, count = _rows_once_ended(state, gang, request, endings[:0], allowed), -1, 0
    # Doubling and bisection need one placement per step: fitting is monotone in the pods that end.
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
    return rows, [each for each in endings[:count] if each.member.node in names]


def _by_gang(in_the_way: Iterable[PodEnd]) -> Iterable[tuple[Gang, list[Member]]]:
    found: dict[str, tuple[Gang, list[Member]]] = {}
    for each in in_the_way:
        found.setdefault(each.gang.key, (each.gang, []))[1].append(each.member)
    return found.values()


def _ending_pods(state: CycleState, allowed: Bools) -> list[PodEnd]:
    """Running pods in the order in which they are expected to end; inf if that is unknown."""
    positions = state.snapshot.nodes.positions
    ending: list[PodEnd] = []
    pods_by_node: dict[str, int] = {}
    for key in sorted(state.snapshot.gangs):
        gang = state.snapshot.gangs[key]
        for member in gang.bound:
            row = positions.get(member.node)
            if row is None or not allowed[row] or member.pod.uid in state.statement.evicted:
                continue
            at = _expected_end(state, gang, member)
            if math.isinf(at) and is_service(gang):
                continue
            ending.append(PodEnd(at, gang, member))
            pods_by_node[member.node] = pods_by_node.get(member.node, 0) + 1
    ending.sort(
        key=lambda end: (
            end.at,
            pods_by_node[end.member.node],
            end.member.node,
            end.member.pod.uid,
        )
    )
    return ending[:MAX_ENDING_PODS]


def _expected_end(state: CycleState, gang: Gang, member: Member) -> float:
    """When the pod is expected to end; now, if it has run longer than it declared."""
    now, declared = state.snapshot.now, gang.expected_runtime
    if declared is not None and member.bound_since and member.bound_since + declared <= now:
        return now
    return state.expected_ends.end_of(gang, member)


def _rows_once_ended(
    state: CycleState,
    gang: Gang,
    request: PlacementRequest,
    ended: Sequence[PodEnd],
    allowed: Bools,
) -> tuple[int, ...] | None:
    """The nodes that the gang takes once the pods of ``ended`` are gone; None if none fit."""
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
