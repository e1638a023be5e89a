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

from kai_py.snapshot.tables.numa import Alignment, AmountsByZone, NumaNode, NumaPolicy, ZoneAmounts

ZoneRequest = Sequence[tuple[int, float]]
"""Position among the resources of a node, and how much."""


class ZoneAllocation(NamedTuple):
    """What is ``left`` once something has started, and how many zones that took."""

    free: AmountsByZone
    zone_count: int


def allocate_zones(
    node: NumaNode, free: AmountsByZone, alignment: Alignment
) -> ZoneAllocation | None:
    """What it takes of ``free`` to start such a pod; None where the kubelet refuses it.

    Its zones are those of the container that needs most of them, unless the scope is the pod.
    """
    if node.pod_scope:
        return _allocate_container(node, free, alignment.pod)
    left, zones = free, 1
    for each in alignment.starting:
        taken = _allocate_container(node, free, each)
        if taken is None:
            return None
        zones = max(zones, taken.zone_count)
    for each in alignment.running:
        taken = _allocate_container(node, left, each)
        if taken is None:
            return None
        left, zones = taken.free, max(zones, taken.zone_count)
    return ZoneAllocation(left, zones)


def free_after_start(
    node: NumaNode, free: AmountsByZone, alignment: Alignment
) -> AmountsByZone | None:
    """What is left of ``free`` once such a pod has started; None where the kubelet refuses it."""
    taken = allocate_zones(node, free, alignment)
    return None if taken is None else taken.free


def replicas_by_zones(
    node: NumaNode, free: AmountsByZone, alignment: Alignment, max_replicas: int
) -> tuple[int, ...]:
    """(zones,) how many such pods, at most ``most``, start in a row with so many zones or fewer.

    The last is how many start at all. Who comes later never needs fewer than those before.
    """
    needs: list[int] = []
    while len(needs) < max_replicas:
        taken = allocate_zones(node, free, alignment)
        if taken is None:
            break
        again = max_replicas - len(needs) if taken.free == free else 1
        needs += [taken.zone_count] * again
        free = taken.free
    return tuple(bisect_right(needs, zones) for zones in range(1, len(node.zones) + 1))


def free_after_end(
    node: NumaNode, free: AmountsByZone, alignment: Alignment, observed: ZoneAmounts = ()
) -> AmountsByZone:
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
    used = subtract(node.allocatable, free)
    for each in (alignment.pod,) if node.pod_scope else alignment.running:
        taken = _allocate_container(node, used, each)
        used = used if taken is None else taken.free
    return subtract(node.allocatable, used)


def subtract(one: AmountsByZone, other: AmountsByZone) -> AmountsByZone:
    """Zone by zone and resource by resource, ``one`` without ``other``."""
    return tuple(
        tuple(a - b for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(one, other, strict=True)
    )


def _allocate_container(
    node: NumaNode, free: AmountsByZone, requests: Mapping[str, float]
) -> ZoneAllocation | None:
    asked = [(at, requests[name]) for at, name in enumerate(node.resources) if name in requests]
    if not asked:
        return ZoneAllocation(free, 1)
    for zones in _zone_sets(node, free, asked):
        if all(sum(free[zone][at] for zone in zones) >= amount for at, amount in asked):
            return ZoneAllocation(_subtract_from_zones(free, zones, asked), len(zones))
    if node.policy is not None:
        return None
    return ZoneAllocation(
        _subtract_from_zones(free, range(len(node.zones)), asked), len(node.zones)
    )


def _zone_sets(
    node: NumaNode, free: AmountsByZone, asked: ZoneRequest
) -> Iterator[tuple[int, ...]]:
    """The sets of zones that the policy accepts, in order."""
    for size in _zone_set_sizes(node, free, asked):
        yield from combinations(range(len(node.zones)), size)


def _zone_set_sizes(node: NumaNode, free: AmountsByZone, asked: ZoneRequest) -> Sequence[int]:
    """How many zones there may be, in order."""
    if node.policy is NumaPolicy.SINGLE_NUMA_NODE:
        return (1,)
    if node.policy is NumaPolicy.RESTRICTED:
        sizes = {_min_zones(node.allocatable, *each) for each in asked}
        return tuple(sizes) if len(sizes) == 1 else ()
    least = max(_min_zones(free, *each) for each in asked)
    return range(least, len(node.zones) + 1)


def _min_zones(amounts: AmountsByZone, at: int, amount: float) -> int:
    """Zones that it takes where they have so much; one more than there are if it is too little."""
    room = 0.0
    for zones, has in enumerate(sorted((zone[at] for zone in amounts), reverse=True)):
        room += has
        if room >= amount:
            return zones + 1
    return len(amounts) + 1


def _subtract_from_zones(
    free: AmountsByZone, zones: Sequence[int], asked: ZoneRequest
) -> AmountsByZone:
    left = [list(zone) for zone in free]
    for at, amount in asked:
        lacking = amount
        for zone in zones:
            part = min(lacking, left[zone][at])
            left[zone][at] -= part
            lacking -= part
    return tuple(map(tuple, left))
