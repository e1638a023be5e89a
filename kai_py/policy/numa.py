"""May a pod start on a node that reports NUMA zones, and which zones does it get?

The rule of the kubelet's TopologyManager, over the resources that the zones report:

- *single-numa-node*: one zone has enough of all that is aligned.
- *restricted*: a set of zones has enough of all, and for each resource no smaller set could have it
  even on an empty node.
- others refuse nobody: the smallest set that has enough of all, or else whatever there is.

Scope *pod* asks this once for the pod, scope *container* for each container: init containers one
after the other, then all that run together. Of several sets the one with fewest, then lowest zones
is taken, and its zones are used up in order. O(sets of zones) per container.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from kai_py.snapshot.alignment import Alignment, ZoneAmounts
from kai_py.snapshot.numa import Amounts, NumaNode, NumaPolicy

Asked = Sequence[tuple[int, float]]
"""Position among the resources of a node, and how much."""


class Taken(NamedTuple):
    """What is ``left`` once something has started, and how many zones that took."""

    left: Amounts
    zones: int


def aligned(node: NumaNode, free: Amounts, wanted: Alignment) -> Taken | None:
    """What it takes of ``free`` to start such a pod; None where the kubelet refuses it.

    Its zones are those of the container that needs most of them, unless the scope is the pod.
    """
    if node.by_pod:
        return _taken(node, free, wanted.pod)
    left, zones = free, 1
    for each in wanted.starting:
        taken = _taken(node, free, each)
        if taken is None:
            return None
        zones = max(zones, taken.zones)
    for each in wanted.running:
        taken = _taken(node, left, each)
        if taken is None:
            return None
        left, zones = taken.left, max(zones, taken.zones)
    return Taken(left, zones)


def admitted(node: NumaNode, free: Amounts, wanted: Alignment) -> Amounts | None:
    """What is left of ``free`` once such a pod has started; None where the kubelet refuses it."""
    taken = aligned(node, free, wanted)
    return None if taken is None else taken.left


def pods_by_zones(node: NumaNode, free: Amounts, wanted: Alignment, most: int) -> tuple[int, ...]:
    """(zones,) how many such pods, at most ``most``, start in a row with so many zones or fewer.

    The last is how many start at all. Who comes later never needs fewer than those before.
    """
    needs: list[int] = []
    while len(needs) < most:
        taken = aligned(node, free, wanted)
        if taken is None:
            break
        again = most - len(needs) if taken.left == free else 1
        needs += [taken.zones] * again
        free = taken.left
    return tuple(bisect_right(needs, zones) for zones in range(1, len(node.zones) + 1))


def given_back(
    node: NumaNode, free: Amounts, wanted: Alignment, observed: ZoneAmounts = ()
) -> Amounts:
    """What is free once a pod has left; where nobody ``observed`` its zones, the first it fits."""
    if observed:
        amounts = dict(observed)
        freed = [
            [amounts.get(zone, {}).get(resource, 0.0) for resource in node.resources]
            for zone in node.zones
        ]
        return tuple(
            tuple(min(full, has + more) for has, more, full in zip(*rows, strict=True))
            for rows in zip(free, freed, node.allocatable, strict=True)
        )
    used = minus(node.allocatable, free)
    for each in (wanted.pod,) if node.by_pod else wanted.running:
        taken = _taken(node, used, each)
        used = used if taken is None else taken.left
    return minus(node.allocatable, used)


def minus(one: Amounts, other: Amounts) -> Amounts:
    """Zone by zone and resource by resource, ``one`` without ``other``."""
    return tuple(
        tuple(a - b for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(one, other, strict=True)
    )


def _taken(node: NumaNode, free: Amounts, amounts: Mapping[str, float]) -> Taken | None:
    asked = [(at, amounts[name]) for at, name in enumerate(node.resources) if name in amounts]
    if not asked:
        return Taken(free, 1)
    for zones in _sets(node, free, asked):
        if all(sum(free[zone][at] for zone in zones) >= amount for at, amount in asked):
            return Taken(_without(free, zones, asked), len(zones))
    if node.policy is not None:
        return None
    return Taken(_without(free, range(len(node.zones)), asked), len(node.zones))


def _sets(node: NumaNode, free: Amounts, asked: Asked) -> Iterator[tuple[int, ...]]:
    """The sets of zones that the policy accepts, in order."""
    for size in _sizes(node, free, asked):
        yield from combinations(range(len(node.zones)), size)


def _sizes(node: NumaNode, free: Amounts, asked: Asked) -> Sequence[int]:
    """How many zones there may be, in order."""
    if node.policy is NumaPolicy.SINGLE:
        return (1,)
    if node.policy is NumaPolicy.RESTRICTED:
        sizes = {_fewest(node.allocatable, *each) for each in asked}
        return tuple(sizes) if len(sizes) == 1 else ()
    least = max(_fewest(free, *each) for each in asked)
    return range(least, len(node.zones) + 1)


def _fewest(amounts: Amounts, at: int, amount: float) -> int:
    """Zones that it takes where they have so much; one more than there are if it is too little."""
    room = 0.0
    for zones, has in enumerate(sorted((zone[at] for zone in amounts), reverse=True)):
        room += has
        if room >= amount:
            return zones + 1
    return len(amounts) + 1


def _without(free: Amounts, zones: Sequence[int], asked: Asked) -> Amounts:
    left = [list(zone) for zone in free]
    for at, amount in asked:
        lacking = amount
        for zone in zones:
            part = min(lacking, left[zone][at])
            left[zone][at] -= part
            lacking -= part
    return tuple(map(tuple, left))
