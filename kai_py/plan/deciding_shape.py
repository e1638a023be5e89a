"""Which asks need the same room, so that what one gang was told holds for others?

Where all pods are of one shape, and neither a topology nor nodes that are kept for others bind the
gang, the shape and how many there are decide. O(pods asked for).
"""

from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.placement.topology import constrained
from kai_py.plan.session import CycleState
from kai_py.snapshot.gangs import Gang


def deciding_shape(state: CycleState, gang: Gang, ask: Ask) -> int | None:
    """The number of the shape of all pods asked for; None where more than it decides over room."""
    if state.placer.reservations.kept or constrained(gang.tree):
        return None
    first = ask.members[0].shape.number
    return first if all(member.shape.number == first for member in ask.members) else None
