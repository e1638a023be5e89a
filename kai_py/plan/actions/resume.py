"""Resume: nominated gangs, and gangs started in part, take the capacity that is kept for them.

A gang whose pods are nominated starts, on the nominated nodes, once all victims there are gone.
Until then it is placed on their future idle capacity, so that no other gang gets it. A nomination
that can't be kept any more is dropped, and the gang queues like every other.

A gang whose framework creates its pods in stages started because all of it fitted. Its later pods
start first; until they exist, placeholders take their capacity, for at most the reservation time
after the gang's first pod was bound. Placeholders are never written to the API.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from kai_py.plan.observations import CapacityHold
from kai_py.plan.placement.next_pods import next_request
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.session.requests import place_earliest
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.placeholders import placeholder_for
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.snapshot import Snapshot


def resume(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Place those of ``gangs`` that have nominated pods, by priority and age."""
    if not state.snapshot.nominations:
        return
    nominated = [gang for gang in gangs if any(_are_nominated(state, gang))]
    order = sorted(nominated, key=lambda g: (-g.priority, g.created, g.key))
    for gang in state.turns.eligible(order):
        with state.turns.of(gang):
            while _place_nominated(state, gang):
                pass


def _place_nominated(state: CycleState, gang: Gang) -> bool:
    """Place the gang's next request if it is nominated; returns whether that was done."""
    request = next_request(gang, state.statement)
    if request is None or state.precondition(gang) is not None:
        return False
    if not any(member.pod.uid in state.snapshot.nominations for member in request.members):
        return False
    if (
        check_quota(state.quota, gang, request.members, state.quota.cost_of(request.members))
        is not None
    ):
        return False
    allowed = None if gang.placeholders else _nominated_nodes(state, gang)
    return place_earliest(state, gang, request.members, allowed=allowed, explain=False) is None


def _are_nominated(state: CycleState, gang: Gang) -> list[bool]:
    return [member.pod.uid in state.snapshot.nominations for member in gang.pending]


def _nominated_nodes(state: CycleState, gang: Gang) -> Bools:
    nodes = state.snapshot.nodes
    allowed = np.zeros(len(nodes), dtype=np.bool_)
    for member in gang.pending:
        nomination = state.snapshot.nominations.get(member.pod.uid)
        if nomination is not None and nomination.node in nodes.positions:
            allowed[nodes.positions[nomination.node]] = True
    return allowed


def reserve_expected(state: CycleState) -> None:
    """Place the existing and the expected pods of all gangs that started in part."""
    now = state.snapshot.now
    in_part = (state.snapshot.gangs[key] for key in state.snapshot.started_in_part)
    started = [gang for gang in in_part if gang.started + state.reservation_seconds > now]
    order = sorted(started, key=lambda g: (-g.priority, g.created, g.key))
    for gang in state.turns.eligible(order):
        with state.turns.of(gang):
            _place_existing(state, gang)
            unplaced = [m for m in gang.pending if m.pod.uid not in state.statement.placed]
            rest = [*gang.placeholders, *(placeholder_for(member) for member in unplaced)]
            if rest:
                place_earliest(state, gang, rest, explain=False)


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
    if exceeded is None and place_earliest(state, gang, request.members, explain=False) is None:
        state.mark_placed(gang)


def capacity_holds(snapshot: Snapshot, reservation_seconds: float) -> Iterator[CapacityHold]:
    """What is held, or was, for pods that do not exist yet of gangs that started in part."""
    for gang in (snapshot.gangs[key] for key in snapshot.started_in_part):
        count = len(gang.placeholders)
        if not count:
            continue
        pods = f"{count} pods" if count > 1 else "a pod"
        them = "them" if count > 1 else "it"
        if gang.started + reservation_seconds > snapshot.now:
            held = f"Capacity for {pods} of the gang is held until its framework creates {them}"
            message = f"{held}, for {reservation_seconds:.0f} s from its start"
            yield CapacityHold(gang.key, gang.owner, message)
        else:
            released = f"Capacity that was held for {pods} of the gang is released"
            reason = f"its framework has not created {them} within {reservation_seconds:.0f} s"
            yield CapacityHold(gang.key, gang.owner, f"{released}: {reason}", is_over=True)
