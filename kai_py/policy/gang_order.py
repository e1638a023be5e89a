"""In which order do the gangs of one queue act?

The smaller key goes first:

1. higher priority; with *ageing*, what was gained by waiting counts, so that work of low priority
   is served in the end;
2. below its floor before at it before above it;
3. older;
4. by name.

The order is total. Ageing changes who asks first, not who may be evicted.

*Rotation* comes before all that, over all queues: a gang whose search for victims ran out of budget
asks after everybody who has not, and of several the one that ran out the longest ago asks first. So
no gang heads two cycles with the same search, and everybody has a turn however small the budget.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from kai_py.snapshot.gangs import Gang

GangKey = tuple[float, int, float, str]


def gang_key(gang: Gang, elastic_rank: int, ageing_points: int = 0) -> GangKey:
    """The key of ``gang``; ``served``: 0 below its floor, 1 at it, 2 above it.

    ``gained``: points of priority that it gained by waiting.
    """
    return (-gang.priority - ageing_points, elastic_rank, gang.created, gang.key)


def in_rotation(gangs: Sequence[Gang], out_of_budget: Mapping[str, int]) -> list[list[Gang]]:
    """Groups of gangs that ask one after the other; ``exhausted``: key to the cycle it ran out."""

    def last_exhausted(gang: Gang) -> int:
        return out_of_budget.get(gang.key, -1)

    return [
        list(group) for _, group in groupby(sorted(gangs, key=last_exhausted), key=last_exhausted)
    ]
