"""May a pod start on a node that aligns its resources to NUMA zones, and which zones does it get?

The rule of the kubelet's TopologyManager, over the resources that the zones report:

- *single-numa-node*: one zone has enough of all that is aligned.
- *restricted*: a set of zones has enough of all, and for each resource no smaller set could have it
  even on an empty node.

Scope *pod* asks this once for the pod, scope *container* for each container: init containers one
after the other, then all that run together. Of several sets the one with fewest, then lowest zones
is taken, and its zones are used up in order. O(sets of zones) per container.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from kai_py.snapshot.alignment import Alignment, ZoneAmounts
from kai_py.snapshot.numa import Amounts, NumaNode, NumaPolicy

Asked = Sequence[tuple[int, float]]
"""Position among the resources of a node, and how much."""


def admitted(node: NumaNode, free: Amounts, wanted: Alignment) -> Amounts | None:
    """What is left of ``free`` once such a pod has started; None where the kubelet refuses it."""
    if node.by_pod:
        return _taken(node, free, wanted.pod)
    if any(_taken(node, free, each) is None for each in wanted.starting):
        return None
    left: Amounts | None = free
    for each in wanted.running:
        left = None if left is None else _taken(node, left, each)
    return left


def pods_admitted(node: NumaNode, free: Amounts, wanted: Alignment, most: int) -> int:
    """How many such pods, at most ``most``, start one after the other."""
    for pods in range(most):
        left = admitted(node, free, wanted)
        if left is None:
            return pods
        if left == free:
            return most
        free = left
    return most


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
        used = _taken(node, used, each) or used
    return minus(node.allocatable, used)


def minus(one: Amounts, other: Amounts) -> Amounts:
    """Zone by zone and resource by resource, ``one`` without ``other``."""
    return tuple(
        tuple(a - b for a, b in zip(mine, theirs, strict=True))
        for mine, theirs in zip(one, other, strict=True)
    )


def _taken(node: NumaNode, free: Amounts, amounts: Mapping[str, float]) -> Amounts | None:
    asked = [(at, amounts[name]) for at, name in enumerate(node.resources) if name in amounts]
    if not asked:
        return free
    for zones in _sets(node, asked):
        if all(sum(free[zone][at] for zone in zones) >= amount for at, amount in asked):
            return _without(free, zones, asked)
    return None


def _sets(node: NumaNode, asked: Asked) -> Iterator[tuple[int, ...]]:
    """The sets of zones that the policy accepts, in order."""
    sizes = {1} if node.policy is NumaPolicy.SINGLE else {_fewest(node, *each) for each in asked}
    if len(sizes) == 1:
        yield from combinations(range(len(node.zones)), sizes.pop())


def _fewest(node: NumaNode, at: int, amount: float) -> int:
    """Zones that it takes on an empty node; one more than there are if all have too little."""
    room = 0.0
    for zones, has in enumerate(sorted((zone[at] for zone in node.allocatable), reverse=True)):
        room += has
        if room >= amount:
            return zones + 1
    return len(node.zones) + 1


def _without(free: Amounts, zones: Sequence[int], asked: Asked) -> Amounts:
    left = [list(zone) for zone in free]
    for at, amount in asked:
        lacking = amount
        for zone in zones:
            part = min(lacking, left[zone][at])
            left[zone][at] -= part
            lacking -= part
    return tuple(map(tuple, left))
