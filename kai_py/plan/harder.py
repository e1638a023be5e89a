"""Does room for a pod of one shape mean room for one of another? Then the other is no harder.

Every node that takes the one takes the other, it asks for no more of anything, and nothing but
room decides about either. A whole GPU is no less than any part of one. O(nodes).
"""

from kai_py.api.gpu_share import CARD
from kai_py.plan.placement.fit import ShapeFits
from kai_py.plan.state.statement import Statement
from kai_py.policy.neighbours import has_rules
from kai_py.snapshot.shape import Shape


def is_no_easier(statement: Statement, fits: ShapeFits, shape: Shape, other: Shape) -> bool:
    """Whether a pod of ``shape`` has room nowhere where one of ``other`` has none."""
    if shape is other:
        return True
    if not _by_room(shape) or not _by_room(other) or statement.limits.of(other):
        return False
    if any(shape.requests.get(name, 0.0) < amount for name, amount in other.requests.items()):
        return False
    if not _shares_no_less(shape, other):
        return False
    nodes = statement.snapshot.nodes
    return not (fits.statics.of(shape, nodes).mask & ~fits.statics.of(other, nodes).mask).any()


def _by_room(shape: Shape) -> bool:
    return not (shape.uses_claims or shape.mirrored or has_rules(shape))


def _shares_no_less(shape: Shape, other: Shape) -> bool:
    ours, theirs = shape.gpu_share, other.gpu_share
    if theirs is None:
        return True
    if ours is None:
        return not theirs.memory and shape.requests.get(CARD, 0.0) >= theirs.devices
    return ours.devices == theirs.devices and (
        ours.portion >= theirs.portion and ours.memory >= theirs.memory
    )
