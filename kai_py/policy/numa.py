"""NUMA alignment of pods: admission by the kubelet, the zones that a pod gets, the nodes preferred.

The rules of the kubelet's TopologyManager, over the resources that the zones report:

- *single-numa-node*: one zone has enough of everything that is aligned.
- *restricted*: a set of zones has enough of everything, and for each resource no smaller set could
  have it even on an empty node.
- others reject no pod: the smallest set that has enough of everything, else all zones.

Scope *pod* applies this once to the pod, scope *container* to each container: init containers one
after the other, then all that run together. Of several sets the one with the fewest, then the
lowest zones is taken, and its zones are used up in order. O(sets of zones) per container.

Nodes on which pods need the fewest zones are preferred: of nodes that are equal in all that users
state, a pod goes where one zone has all of its aligned resources. A node that reports no zones
counts as one zone. As a node fills, the next pod may need more of them: its capacity is split into
layers, so many pods with one zone each, then so many with two, and the layers of all nodes are
filled together. O(zones x nodes) beside the fill. The rule is that of *least NUMA nodes* of the
scheduler-plugins' NodeResourceTopologyMatch, counted on what is free as the cycle places pods.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.policy.fill import fill
from kai_py.snapshot.numa_alignment import Alignment, ZoneAmounts
from kai_py.snapshot.resources import Floats, Ints
from kai_py.snapshot.tables.numa import AmountsByZone, NumaNode, NumaPolicy

ZoneRequest = Sequence[tuple[int, float]]
"""Position among the resources of a node, and the amount requested."""


class ZoneAllocation(NamedTuple):
    """The amounts that are ``free`` after an allocation, and how many zones it took."""

    free: AmountsByZone
    zone_count: int


def allocate_zones(
    node: NumaNode, free: AmountsByZone, alignment: Alignment
) -> ZoneAllocation | None:
    """What remains of ``free`` once the pod has started; None where the kubelet rejects it.

    Its zone count is that of the container that needs the most zones, unless the scope is the pod.
    """
    if node.pod_scope:
        return _allocate_container(node, free, alignment.pod)
    left, zones = free, 1
    for each in alignment.starting:
        # Init containers have ended before the others start, so each starts from `free`.
        allocation = _allocate_container(node, free, each)
        if allocation is None:
            return None
        zones = max(zones, allocation.zone_count)
    for each in alignment.running:
        allocation = _allocate_container(node, left, each)
        if allocation is None:
            return None
        left, zones = allocation.free, max(zones, allocation.zone_count)
    return ZoneAllocation(left, zones)


def free_after_start(
    node: NumaNode, free: AmountsByZone, alignment: Alignment
) -> AmountsByZone | None:
    """What remains of ``free`` once such a pod has started; None where the kubelet rejects it."""
    allocation = allocate_zones(node, free, alignment)
    return None if allocation is None else allocation.free


def replicas_by_zones(
    node: NumaNode, free: AmountsByZone, alignment: Alignment, max_replicas: int
) -> tuple[int, ...]:
    """(zones,) how many such pods, at most ``max_replicas``, start with so many zones or fewer.

    The last element counts all that start. Later pods never need fewer zones than earlier ones.
    """
    needs: list[int] = []
    while len(needs) < max_replicas:
        allocation = allocate_zones(node, free, alignment)
        if allocation is None:
            break
        # If a pod takes nothing, all further ones fit the same way.
        repeats = max_replicas - len(needs) if allocation.free == free else 1
        needs += [allocation.zone_count] * repeats
        free = allocation.free
    return tuple(bisect_right(needs, zones) for zones in range(1, len(node.zones) + 1))


def free_after_end(
    node: NumaNode, free: AmountsByZone, alignment: Alignment, observed: ZoneAmounts = ()
) -> AmountsByZone:
    """What is free once a pod has ended; without ``observed`` zones, the first that it fits."""
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
        allocation = _allocate_container(node, used, each)
        used = used if allocation is None else allocation.free
    return subtract(node.allocatable, used)


def subtract(one: AmountsByZone, other: AmountsByZone) -> AmountsByZone:
    """``one`` minus ``other``, zone by zone and resource by resource."""
    return tuple(
        tuple(a - b for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(one, other, strict=True)
    )


def _allocate_container(
    node: NumaNode, free: AmountsByZone, requests: Mapping[str, float]
) -> ZoneAllocation | None:
    requested = [(at, requests[name]) for at, name in enumerate(node.resources) if name in requests]
    if not requested:
        return ZoneAllocation(free, 1)
    for zones in _zone_sets(node, free, requested):
        if all(sum(free[zone][at] for zone in zones) >= amount for at, amount in requested):
            return ZoneAllocation(_subtract_from_zones(free, zones, requested), len(zones))
    if node.policy is not None:
        return None
    return ZoneAllocation(
        _subtract_from_zones(free, range(len(node.zones)), requested), len(node.zones)
    )


def _zone_sets(
    node: NumaNode, free: AmountsByZone, requested: ZoneRequest
) -> Iterator[tuple[int, ...]]:
    """The sets of zones that the policy accepts, in order."""
    for size in _zone_set_sizes(node, free, requested):
        yield from combinations(range(len(node.zones)), size)


def _zone_set_sizes(node: NumaNode, free: AmountsByZone, requested: ZoneRequest) -> Sequence[int]:
    """The accepted numbers of zones, in order."""
    if node.policy is NumaPolicy.SINGLE_NUMA_NODE:
        return (1,)
    if node.policy is NumaPolicy.RESTRICTED:
        sizes = {_min_zones(node.allocatable, *each) for each in requested}
        return tuple(sizes) if len(sizes) == 1 else ()
    least = max(_min_zones(free, *each) for each in requested)
    return range(least, len(node.zones) + 1)


def _min_zones(amounts: AmountsByZone, at: int, amount: float) -> int:
    """The number of zones that have ``amount`` together; one more than there are if none do."""
    total = 0.0
    for zones, available in enumerate(sorted((zone[at] for zone in amounts), reverse=True)):
        total += available
        if total >= amount:
            return zones + 1
    return len(amounts) + 1


def _subtract_from_zones(
    free: AmountsByZone, zones: Sequence[int], requested: ZoneRequest
) -> AmountsByZone:
    left = [list(zone) for zone in free]
    for at, amount in requested:
        missing = amount
        for zone in zones:
            part = min(missing, left[zone][at])
            left[zone][at] -= part
            missing -= part
    return tuple(map(tuple, left))


def fill_by_numa_zones(
    count: int,
    replicas: Ints,
    preference: Ints,
    slack: Floats,
    strategy: FillStrategy,
    *,
    replicas_by_zones: Ints | None,
    preferred_replicas: Ints | None = None,
) -> list[tuple[int, int]]:
    """(node row, pods) in placement order, as ``fill`` with the preference for few zones.

    ``preference``: ranks, higher first: (zones, nodes) by the zones that a pod needs, or (nodes,)
    if those make no difference. ``replicas_by_zones``: (zones, nodes) pods that start in a row with
    at most so many zones each, ``count`` where there are as many or more; None where no node
    differs.
    """
    if replicas_by_zones is None or (replicas_by_zones[0] >= np.minimum(replicas, count)).all():
        ranks = preference if preference.ndim == 1 else preference[0]
        return fill(count, replicas, ranks, slack, strategy, preferred_replicas=preferred_replicas)
    zones, nodes = replicas_by_zones.shape
    chunks = fill(
        count,
        _replicas_by_layer(replicas_by_zones, replicas, count),
        np.broadcast_to(preference, (zones, nodes)).reshape(-1),
        np.tile(slack, zones),
        strategy,
        preferred_replicas=None
        if preferred_replicas is None
        else _replicas_by_layer(replicas_by_zones, preferred_replicas, count),
    )
    return [(row % nodes, pods) for row, pods in chunks]


def zone_layers(replicas_by_zones: Ints) -> Ints:
    """(zones, 1) the preference of layers: a pod that needs one zone, two, and so on."""
    return -np.arange(len(replicas_by_zones))[:, None]


def fewer_zones(replicas_by_zones: Ints) -> Ints:
    """(nodes,) the preference of one more pod; argument as of ``fill_by_numa_zones``."""
    further: Ints = np.count_nonzero(replicas_by_zones[:-1] < 1, axis=0)
    return -further


def _replicas_by_layer(replicas_by_zones: Ints, replicas: Ints, count: int) -> Ints:
    """(zones x nodes,) of the replicas those that need just so many zones."""
    reached = np.where(
        replicas_by_zones >= count, replicas, np.minimum(replicas_by_zones, replicas)
    )
    return np.diff(reached, axis=0, prepend=0).reshape(-1)
