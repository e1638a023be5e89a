"""Keep room: gangs whose framework makes pods in stages get the rest of what they started for.

Such a gang started because all of it fitted. Its pods to come find their room still there: they
start first, and until they exist, or the time for promised room is over since the first pod of the
gang was bound, stand-ins for them take it. They are never written anywhere.
"""

from kai_py.plan.quota_check import over_bounds
from kai_py.plan.session import CycleState
from kai_py.plan.soonest import place_soonest
from kai_py.snapshot.awaited import stand_in
from kai_py.snapshot.gangs import Gang


def keep_room(state: CycleState) -> None:
    """Run the action for all gangs that started in part."""
    now = state.snapshot.now
    staged = (state.snapshot.gangs[key] for key in state.snapshot.staged)
    started = [gang for gang in staged if gang.started + state.hold_seconds > now]
    for gang in sorted(started, key=lambda g: (-g.priority, g.created, g.key)):
        _start(state, gang)
        left = [m for m in gang.pending if m.pod.uid not in state.statement.placed]
        rest = [*gang.awaited, *(stand_in(member) for member in left)]
        if rest:
            place_soonest(state, gang, rest, told=False)


def _start(state: CycleState, gang: Gang) -> None:
    """Place the pods that may start, as far as the queue has room for them."""
    ask = state.ask(gang)
    if ask is None or state.quota.queue_of(gang) is None or gang.key in state.snapshot.held_back:
        return
    over = over_bounds(state.quota, gang, ask.members, state.ask_cost(gang))
    if over is None and place_soonest(state, gang, ask.members, told=False) is None:
        state.clear(gang)
