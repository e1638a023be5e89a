"""Resume: gangs that were promised room come first, and on the nodes they were promised.

When everybody who had to leave has left, the gang starts. Until then its room is held, so that
nobody else takes what was won. A promise that can't be kept any more is dropped and the gang stands
in line like every other.

Keep room: gangs whose framework makes pods in stages get the rest of what they started for.

Such a gang started because all of it fitted. Its pods to come find their room still there: they
start first, and until they exist, or the time for promised room is over since the first pod of the
gang was bound, stand-ins for them take it. They are never written anywhere.
"""

from collections.abc import Iterable

import numpy as np

from kai_py.plan.placement.next_pods import next_request
from kai_py.plan.quota_check import check_quota
from kai_py.plan.session import CycleState, place_earliest
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.placeholders import placeholder_for
from kai_py.snapshot.resources import Bools


def resume(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Run the action for those of ``gangs`` that hold a promise."""
    if not state.snapshot.nominations:
        return
    promised = [gang for gang in gangs if any(_are_nominated(state, gang))]
    for gang in sorted(promised, key=lambda g: (-g.priority, g.created, g.key)):
        while _place_nominated(state, gang):
            pass


def _place_nominated(state: CycleState, gang: Gang) -> bool:
    """Place what the gang asks for next, if it was promised; whether that was done."""
    ask = next_request(gang, state.statement)
    if ask is None or state.precondition(gang) is not None:
        return False
    if not any(member.pod.uid in state.snapshot.nominations for member in ask.members):
        return False
    if check_quota(state.quota, gang, ask.members, state.quota.cost_of(ask.members)) is not None:
        return False
    allowed = None if gang.placeholders else _nominated_nodes(state, gang)
    return place_earliest(state, gang, ask.members, allowed=allowed, explain=False) is None


def _are_nominated(state: CycleState, gang: Gang) -> list[bool]:
    return [member.pod.uid in state.snapshot.nominations for member in gang.pending]


def _nominated_nodes(state: CycleState, gang: Gang) -> Bools:
    nodes = state.snapshot.nodes
    allowed = np.zeros(len(nodes), dtype=np.bool_)
    for member in gang.pending:
        hold = state.snapshot.nominations.get(member.pod.uid)
        if hold is not None and hold.node in nodes.positions:
            allowed[nodes.positions[hold.node]] = True
    return allowed


def reserve_expected(state: CycleState) -> None:
    """Run the action for all gangs that started in part."""
    now = state.snapshot.now
    staged = (state.snapshot.gangs[key] for key in state.snapshot.started_in_part)
    started = [gang for gang in staged if gang.started + state.reservation_seconds > now]
    for gang in sorted(started, key=lambda g: (-g.priority, g.created, g.key)):
        _place_existing(state, gang)
        left = [m for m in gang.pending if m.pod.uid not in state.statement.placed]
        rest = [*gang.placeholders, *(placeholder_for(member) for member in left)]
        if rest:
            place_earliest(state, gang, rest, explain=False)


def _place_existing(state: CycleState, gang: Gang) -> None:
    """Place the pods that may start, as far as the queue has room for them."""
    ask = state.next_request(gang)
    if ask is None or state.quota.queue_of(gang) is None or gang.key in state.snapshot.in_backoff:
        return
    over = check_quota(state.quota, gang, ask.members, state.request_cost(gang))
    if over is None and place_earliest(state, gang, ask.members, explain=False) is None:
        state.mark_placed(gang)
