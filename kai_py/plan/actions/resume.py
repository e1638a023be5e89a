"""Resume: nominated gangs, and gangs started in part, take the capacity that is kept for them.

A gang whose pods are nominated starts, on the nominated nodes, once all victims there are gone;
pods that start together go to the nodes of these if they can, so that the others find theirs free.
Until then it is placed on their future idle capacity, so that no other gang gets it. A nomination
that can't be kept any more is dropped, and the gang queues like every other. A nomination is also
dropped if the gang would be evicted as soon as it runs: if a gang of its queue with a higher
priority would fit in its place and nowhere else, not even if all running pods that may be evicted
for it were, that gang gets the capacity.

A gang whose framework creates its pods in stages started because all of it fitted. Its later pods
start first; until they exist, placeholders take their capacity, for at most the reservation time
after the gang's first pod was bound. Placeholders are never written to the API.
"""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from itertools import chain, islice

import numpy as np

from kai_py.api.times import lies_ahead
from kai_py.plan.actions.preempt import Preemption
from kai_py.plan.actions.reclaim import Reclaim
from kai_py.plan.observations import CapacityHold
from kai_py.plan.placement.next_pods import next_request
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.later_alternatives import try_placing
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.victims.order import VictimPool
from kai_py.policy.queue_order import by_priority_and_age
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.placeholders import placeholder_for
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.snapshot import Snapshot

MAX_AHEAD = 16
"""Gangs that may go before nominated ones in one cycle."""

MAX_VICTIMS = 256
"""Pods, or sets of pods, that are evicted on trial to see whether these gangs find victims."""


def resume(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Place those of ``gangs`` that have nominated pods, by priority and age."""
    if not state.snapshot.nominations:
        return
    pending = list(state.turns.eligible(gangs))
    nominated = sorted((g for g in pending if _is_nominated(state, g)), key=by_priority_and_age)
    preempts = Action.PREEMPT in state.settings.actions
    ahead = _waiting_ahead(state, pending, nominated) if preempts else []
    if ahead:
        pool = VictimPool(state)
        ahead = [gang for gang in ahead if not _has_victims(state, gang, pool, nominated)]
    order = _with_those_ahead(state, nominated, ahead) if ahead else nominated
    if ahead or not _place_all(state, order):
        for gang in order:
            _place(state, gang)


def _place_all(state: CycleState, nominated: Sequence[Gang]) -> bool:
    """Place all the gangs, if need be in another order; whether that was possible.

    They were nominated in an order in which all fitted: a gang that comes first now may have got
    its devices last then, so those that do not fit after it are tried before all others.
    """
    with state.statement.trial() as trial:
        left = [gang for gang in nominated if not _place(state, gang)]
        if not left:
            trial.keep()
            return True
    first = {gang.key for gang in left}
    others = (gang for gang in nominated if gang.key not in first)
    with state.statement.trial() as trial:
        if all(_place(state, gang) for gang in chain(left, others)):
            trial.keep()
    return trial.kept


def _waiting_ahead(
    state: CycleState, pending: Iterable[Gang], nominated: Iterable[Gang]
) -> list[Gang]:
    """The first gangs below minMember for which a nominated one would be evicted once it runs."""
    lowest: dict[str, int] = {}
    for gang in nominated:
        if gang.yields_in_queue:
            lowest[gang.queue] = min(gang.priority, lowest.get(gang.queue, gang.priority))
    found = (
        gang
        for gang in pending
        if gang.queue in lowest
        and gang.priority > lowest[gang.queue]
        and gang.may_preempt
        and gang.preempts_from <= state.snapshot.now
        and not gang.is_satisfied
        and not _is_nominated(state, gang)
    )
    return nsmallest(MAX_AHEAD, found, key=by_priority_and_age)


def _has_victims(
    state: CycleState, gang: Gang, pool: VictimPool, nominated: Iterable[Gang]
) -> bool:
    """Whether pods that run may be evicted for the gang, so that it fits beside ``nominated``.

    Each of them at least alone. Of more than ``MAX_VICTIMS`` this is taken for granted.
    """
    request = next_request(gang, state.statement, state.can_never_run)
    if request is None or state.precondition(gang) is not None:
        return False
    kinds = [kind for kind in (Preemption, Reclaim) if kind.action in state.settings.actions]
    strategies = [kind(state, pool, gang, request) for kind in kinds]
    found = [
        (each, unit)
        for each in strategies
        if each.may_find_victims()
        for unit in islice(each.candidates() or (), MAX_VICTIMS + 1)
        if each.refused_unit([unit]) is None
    ]
    if not found or len(found) > MAX_VICTIMS:
        return bool(found)
    with state.statement.trial():
        for each in nominated:
            _place(state, each)
        for strategy, unit in found:
            strategy.evict(unit, "")
        return _place(state, gang)


def _with_those_ahead(
    state: CycleState, nominated: Sequence[Gang], ahead: Sequence[Gang]
) -> Sequence[Gang]:
    """``nominated`` in the order in which they are placed, with those that go before some of them.

    These are the gangs ``ahead`` of one queue that do not fit beside all that is nominated. They
    come after what no gang of that queue may take.
    """
    with state.statement.trial():
        for gang in nominated:
            _place(state, gang)
        left = [gang for gang in ahead if not _place(state, gang)]
    if not left:
        return nominated
    queue = left[0].queue
    first = [gang for gang in left if gang.queue == queue]
    behind = [
        gang
        for gang in nominated
        if gang.queue == queue and gang.yields_in_queue and gang.priority < first[0].priority
    ]
    kept = [gang for gang in nominated if gang not in behind]
    return [*kept, *sorted((*first, *behind), key=by_priority_and_age)]


def _place(state: CycleState, gang: Gang) -> bool:
    """Place the requests of a nominated gang, or the first of another; whether any was placed."""
    placed, is_nominated = False, _is_nominated(state, gang)
    if state.turns.may_plan(gang):
        with state.turns.of(gang):
            placed = _place_next(state, gang, is_nominated=is_nominated)
            while is_nominated and placed and _place_next(state, gang, is_nominated=True):
                pass
    return placed


def _place_next(state: CycleState, gang: Gang, *, is_nominated: bool) -> bool:
    """Place the next request; of a nominated gang, only one with nominated pods. Whether it was."""
    request = next_request(gang, state.statement, state.can_never_run)
    if request is None or state.precondition(gang) is not None:
        return False
    nominations = state.snapshot.nominations
    if is_nominated and not any(member.pod.uid in nominations for member in request.members):
        return False
    if (
        check_quota(state.quota, gang, request.members, state.quota.cost_of(request.members))
        is not None
    ):
        return False
    if gang.placeholders or not is_nominated:
        return try_placing(state, gang, request.members)
    own = _nominated_nodes(state, request.members)
    if try_placing(state, gang, request.members, own):
        return True
    of_gang = _nominated_nodes(state, gang.pending)
    is_other = not np.array_equal(own, of_gang)
    return is_other and try_placing(state, gang, request.members, of_gang)


def _is_nominated(state: CycleState, gang: Gang) -> bool:
    """Whether any pending pod of the gang has a nominated node."""
    return any(member.pod.uid in state.snapshot.nominations for member in gang.pending)


def _nominated_nodes(state: CycleState, members: Iterable[Member]) -> Bools:
    """(nodes,) bool: the nodes that any of the pods is nominated on."""
    nodes = state.snapshot.nodes
    allowed = np.zeros(len(nodes), dtype=np.bool_)
    for member in members:
        nomination = state.snapshot.nominations.get(member.pod.uid)
        if nomination is not None and nomination.node in nodes.positions:
            allowed[nodes.positions[nomination.node]] = True
    return allowed


def reserve_expected(state: CycleState) -> None:
    """Place the existing and the expected pods of all gangs that started in part."""
    now = state.snapshot.now
    in_part = (state.snapshot.gangs[key] for key in state.snapshot.started_in_part)
    started = [gang for gang in in_part if _is_held(gang, state.settings.reservation_seconds, now)]
    order = sorted(started, key=by_priority_and_age)
    for gang in state.turns.eligible(order):
        with state.turns.of(gang):
            _place_existing(state, gang)
            unplaced = [m for m in gang.pending if m.pod.uid not in state.statement.placed]
            rest = [*gang.placeholders, *(placeholder_for(member) for member in unplaced)]
            if rest and _may_be_held(state, gang, rest):
                try_placing(state, gang, rest)


def _place_existing(state: CycleState, gang: Gang) -> None:
    """Place the pods that may start, as far as their queue's quota allows."""
    request = state.next_request(gang)
    if (
        request is None
        or state.quota.queue_of(gang) is None
        or not gang.charged
        or gang.key in state.snapshot.in_backoff
    ):
        return
    exceeded = check_quota(state.quota, gang, request.members, state.request_cost(gang))
    if exceeded is None and try_placing(state, gang, request.members):
        state.mark_placed(gang)


def _may_be_held(state: CycleState, gang: Gang, members: Sequence[Member]) -> bool:
    """Whether the queue may have what is held; workloads can be changed after they have started."""
    if state.quota.queue_of(gang) is None or not gang.charged:
        return False
    return check_quota(state.quota, gang, members, state.quota.cost_of(members)) is None


def _is_held(gang: Gang, reservation_seconds: float, now: float) -> bool:
    """Whether capacity is held for the pods of a gang that its framework has not created yet."""
    return lies_ahead(gang.started + reservation_seconds, now, reservation_seconds)


def capacity_holds(snapshot: Snapshot, reservation_seconds: float) -> tuple[CapacityHold, ...]:
    """What is held, or was, for pods that do not exist yet of gangs that started in part."""
    gangs = (snapshot.gangs[key] for key in snapshot.started_in_part)
    return tuple(
        _capacity_hold(gang, reservation_seconds, snapshot.now)
        for gang in gangs
        if gang.placeholders
    )


def _capacity_hold(gang: Gang, reservation_seconds: float, now: float) -> CapacityHold:
    count = len(gang.placeholders)
    pods, them = (f"{count} pods", "them") if count > 1 else ("a pod", "it")
    if _is_held(gang, reservation_seconds, now):
        held = f"Capacity for {pods} of the gang is held until its framework creates {them}"
        message = f"{held}, for {reservation_seconds:.0f} s from its start"
        return CapacityHold(gang.key, gang.owner, message)
    released = f"Capacity that was held for {pods} of the gang is released"
    reason = f"its framework has not created {them} within {reservation_seconds:.0f} s"
    return CapacityHold(gang.key, gang.owner, f"{released}: {reason}", is_over=True)
