"""Which queue may place its next gang first?

The first difference decides; a smaller key goes first:

1. over its fair share or not (kai profile: over in every resource; native: in some resource that
   its gang asks for);
2. within what it deserves with its gang, or not (kai: in all resources; native: in those that
   its gang asks for);
3. higher priority;
4. would use a resource of which it may hold nothing, or not;
5. dominant share with its gang: max over resources of (allocated + gang - released) / allocatable;
6. dominant share without the gang;
7. less allocatable, resource by resource (the weaker queue);
8. older, then by name.

So starved queues come before those that borrow, guarantees before priorities, and among equals the
one that holds least of its due (dominant resource fairness; Ghodsi et al., NSDI 2011). Keys of one
queue do not depend on other queues: the order is total, and a change of one queue moves only that
queue and those above it. Victims are taken in the reverse order, with what was already taken from a
queue as ``released``.

In the tree an inner queue stands for the best of its children: it competes with that child's gang.
"""

import numpy as np

from kai_py.policy.rules import Compared, Rules
from kai_py.policy.standing import Standing, exceeds
from kai_py.snapshot.queues import Index
from kai_py.snapshot.resources import Floats

NO_SHARE_PENALTY = 1000.0
"""Dominant share per unit held of a resource of which nothing may be held."""


def order_keys(
    standing: Standing,
    at: Index,
    request: Floats,
    rules: Rules,
    released: Floats | None = None,
    *,
    held: Floats | None = None,
) -> Floats:
    """(keys, n) the keys of the queues ``at`` (n,), most significant first.

    ``request`` (resources, n) is what the next gang of each queue asks for, ``released`` what is
    assumed to be taken from it already, ``held`` what it holds if that is not what it holds now.
    """
    queues = standing.queues
    allocated = standing.allocated[:, at] if held is None else held
    fair = standing.fair[:, at]
    allocatable, deserved = standing.allocatable[:, at], queues.deserved[:, at]
    with_gang = allocated + request
    over = exceeds(allocated, fair)
    beyond = exceeds(with_gang, deserved)
    if rules.compared is Compared.ALL:
        is_over, is_beyond = over.all(axis=0), beyond.any(axis=0)
    else:
        asked = request > 0
        is_over, is_beyond = (over & asked).any(axis=0), (beyond & asked).any(axis=0)
    uses_none = ((allocatable == 0) & (with_gang > 0)).any(axis=0)
    bound = np.where(np.isinf(allocatable), standing.total[:, None], allocatable)
    left = with_gang if released is None else with_gang - released
    return np.vstack(
        (
            is_over,
            is_beyond,
            -queues.priority[at],
            uses_none,
            dominant_share(left, bound),
            dominant_share(allocated, bound),
            allocatable,
            queues.creation_order[at],
        )
    )


def dominant_share(held: Floats, bound: Floats) -> Floats:
    """(n,) the largest part that is held of any resource."""
    part = np.divide(held, bound, out=held * NO_SHARE_PENALTY, where=bound > 0)
    share: Floats = part.max(axis=0, initial=0.0)
    return share
