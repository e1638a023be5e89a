"""The order of the gangs of one queue.

The smaller key goes first:

1. higher priority; with *ageing*, including the points gained by waiting, so that work of low
priority is served in the end; 2. below minMember, before at minMember, before above it; 3. older;
4. by name.

The order is total. Ageing changes the order, not which gangs may be evicted.

*Rotation* precedes all that, over all queues: a gang whose victim search ran out of budget comes
after all gangs that did not, and of several the one that ran out the longest ago comes first. So no
gang heads two cycles with the same search, and every gang has its turn however small the budget.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from kai_py.snapshot.gangs import Gang

GangKey = tuple[float, int, float, str]


def gang_key(gang: Gang, elastic_rank: int, ageing_points: int = 0) -> GangKey:
    """The key of ``gang``; ``elastic_rank``: 0 below minMember, 1 at it, 2 above it."""
    return (-gang.priority - ageing_points, elastic_rank, gang.created, gang.key)


def in_rotation(gangs: Sequence[Gang], out_of_budget: Mapping[str, int]) -> list[list[Gang]]:
    """Groups of gangs in rotation order; ``out_of_budget``: cycle of the last time, by gang key."""

    def last_exhausted(gang: Gang) -> int:
        return out_of_budget.get(gang.key, -1)

    return [
        list(group) for _, group in groupby(sorted(gangs, key=last_exhausted), key=last_exhausted)
    ]
