"""In which order do the gangs of one queue act?

The smaller key goes first:

1. higher priority; with *ageing*, every so many seconds of waiting count as one point more, up to
   a limit, so that work of low priority is served in the end;
2. below its floor before at it before above it;
3. older;
4. by name.

The order is total, and ages only move gangs of different priority against each other: of two gangs
that wait, the older one stays the older one. Ageing changes who asks first, not who may be evicted.

*Rotation* comes before all that, over all queues: a gang whose search for victims ran out of budget
asks after everybody who has not, and of several the one that ran out the longest ago asks first. So
no gang heads two cycles with the same search, and everybody has a turn however small the budget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kai_py.snapshot.gangs import Gang

Rank = tuple[float, int, float, str]


@dataclass(frozen=True, slots=True)
class Ageing:
    """``seconds`` of waiting that count as one point of priority, ``most`` points at most."""

    seconds: float
    most: int = 1000

    def points(self, waited: float) -> int:
        """What a gang gains by having waited so long."""
        return min(self.most, max(0, int(waited // self.seconds)))


def gang_rank(gang: Gang, served: int, now: float, ageing: Ageing | None) -> Rank:
    """The key of ``gang``; ``served``: 0 below its floor, 1 at it, 2 above it."""
    gained = 0 if ageing is None else ageing.points(now - gang.created)
    return (-gang.priority - gained, served, gang.created, gang.key)


def in_turns(gangs: Sequence[Gang], exhausted: Mapping[str, int]) -> list[list[Gang]]:
    """Groups of gangs that ask one after the other; ``exhausted``: key to the cycle it ran out."""

    def turn(gang: Gang) -> int:
        return exhausted.get(gang.key, -1)

    return [list(group) for _, group in groupby(sorted(gangs, key=turn), key=turn)]
