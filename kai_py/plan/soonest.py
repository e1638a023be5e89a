"""Pods of a gang go into room that is free now, or else into room that is being freed."""

from collections.abc import Sequence

from kai_py.plan.explain.reasons import Obstacle
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Room
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools


def place_soonest(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    *,
    allowed: Bools | None = None,
    told: bool = True,
) -> Obstacle | None:
    """Place all of ``members``, or say what stops them now; arguments as of ``Placer.place``."""
    obstacle: Obstacle | None = None
    for room in (Room.NOW, Room.LATER):
        with state.statement.trial() as trial:
            blocked = state.placer.place(
                state.statement,
                gang,
                members,
                Action.ALLOCATE,
                room=room,
                allowed=allowed,
                told=told and obstacle is None,
            )
            if blocked is None:
                trial.keep()
                return None
        obstacle = obstacle or blocked
        if not state.frees_room:
            break
    return obstacle
