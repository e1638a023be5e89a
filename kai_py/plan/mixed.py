"""Gangs of pods of several sizes: where the largest first finds no room, a search may.

Only where room alone decides, for few pods, and where nobody leaves for them: searches for victims
try many placements, each of which would pay for a search of its own.
"""

from collections.abc import Sequence

from kai_py.plan.placement.running_fit import fits_by_room
from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.statement import Statement
from kai_py.policy.repair import Kind, assignment
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools

MOST_PODS = 64
MOST_STEPS = 256
"""Pods that the search tries on a node."""


def can_search(statement: Statement, parts: Sequence[Sequence[Member]], action: Action) -> bool:
    """Whether the pods of ``parts``, one per shape, are such a gang."""
    if len(parts) < 2 or action is not Action.ALLOCATE or statement.snapshot.neighbours:
        return False
    known = statement.snapshot.resources.positions
    plain = all(fits_by_room(part[0].shape, statement.limits) for part in parts)
    listed = all(name in known for part in parts for name in part[0].shape.requests)
    return plain and listed and sum(len(part) for part in parts) <= MOST_PODS


def place_by_search(
    statement: Statement,
    gang: Gang,
    parts: Sequence[Sequence[Member]],
    masks: Sequence[Bools],
    action: Action,
    *,
    room: Room,
) -> bool:
    """Place all of ``parts`` or nothing; ``masks``: (nodes,) per part, where its pods may go."""
    kinds = [
        Kind(len(part), statement.vector(part[0].shape), mask)
        for part, mask in zip(parts, masks, strict=True)
    ]
    found = assignment(kinds, statement.free(room), MOST_STEPS)
    for part, rows in zip(parts, found or (), strict=found is not None):
        for member, row in zip(part, rows, strict=True):
            statement.place(gang, [member], row, action, room=room)
    return found is not None
