"""What is left of each NUMA zone as a cycle places and evicts pods?

Follows ``policy.numa`` over the nodes that report zones: those whose kubelet refuses pods are a
limit, all of them tell how many zones a pod would need. *Later* the pods that leave have given back
what they had of their zones. A question costs the nodes that changed since the shape was last asked
for; nodes in the same state are judged once.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kai_py.plan.state.capacity import Room
from kai_py.plan.state.limits.base import KeptCopies, Undo
from kai_py.policy.numa import admitted, given_back, minus, pods_by_zones
from kai_py.snapshot.alignment import Alignment
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.numa import Amounts, NumaNode
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot


@dataclass(slots=True)
class _Free:
    """What is left of a node's zones; ``start`` for who starts now and must fit later as well."""

    now: Amounts
    later: Amounts
    start: Amounts


class NumaZones:
    """Zones of the nodes that report them; a NodeLimit."""

    reason = "couldn't align the pod's resources to NUMA zones"

    def __init__(self, snapshot: Snapshot) -> None:
        """Start from the reports, without what pods have that are in no report yet."""
        positions = snapshot.nodes.positions
        self._nodes = {
            positions[name]: node
            for name, node in snapshot.numa.items()
            if name in positions and (node.policy is not None or len(node.zones) > 1)
        }
        self._kinds: dict[NumaNode, int] = {}
        self._kind_of: dict[int, int] = {}
        self._free: dict[int, _Free] = {}
        self._verdicts: dict[tuple[int, Amounts, int, int], tuple[int, ...]] = {}
        most = max((len(node.zones) for node in self._nodes.values()), default=1)
        self._kept = [
            KeptCopies(len(positions), self._nodes, partial(self._pods, zones))
            for zones in range(1, most + 1)
        ]
        for row, node in self._nodes.items():
            free = node.available
            for each in node.unreported:
                free = admitted(node, free, each) or free
            self._free[row] = _Free(free, free, free)
        for member in snapshot.leaving if self._nodes else ():
            row = positions.get(member.node, -1)
            if row in self._nodes and not member.overdue:
                self.give_back(member, row)

    @property
    def refuses(self) -> bool:
        """Whether there are nodes that may turn a pod away."""
        return any(node.policy is not None for node in self._nodes.values())

    def concerns(self, shape: Shape) -> bool:
        """Whether any node reports zones, and anything of its pods is aligned."""
        return bool(self._nodes) and shape.alignment is not None

    def copies(self, shape: Shape, room: Room, most: int) -> Ints:
        """(nodes,) pods that start, ``most`` where nothing is aligned; not to be written to."""
        return self._kept[-1].of(shape, room, most)

    def within(self, shape: Shape, room: Room, most: int) -> Ints | None:
        """(zones, nodes) pods that start in a row with one zone each, with two or fewer, ….

        ``most`` where there are as many, and on nodes that report no zones; None: no node differs.
        """
        if len(self._kept) == 1 or not self.concerns(shape):
            return None
        return np.minimum([kept.of(shape, room, most) for kept in self._kept], most)

    def take(self, member: Member, row: int, room: Room) -> Undo | None:
        """Take zones for the pod on a node; None where the kubelet would refuse it."""
        node, wanted = self._nodes.get(row), member.shape.alignment
        if node is None or wanted is None:
            return _nothing
        free = self._free[row]
        before = free.later if room is Room.LATER else free.start
        left = admitted(node, before, wanted)
        if left is None:
            return None
        taken = minus(before, left)
        later = minus(free.later, taken)
        return self._set(row, free.now if room is Room.LATER else minus(free.now, taken), later)

    def give_back(self, member: Member, row: int) -> Undo:
        """Free later what the pod has of its node's zones."""
        node, wanted = self._nodes.get(row), member.shape.alignment
        if node is None or wanted is None:
            return _nothing
        free = self._free[row]
        return self._set(row, free.now, given_back(node, free.later, wanted, member.zones))

    def _set(self, row: int, now: Amounts, later: Amounts) -> Undo:
        before = self._free[row]
        start = tuple(tuple(map(min, *zone)) for zone in zip(now, later, strict=True))
        self._put(row, _Free(now, later, start))
        return lambda: self._put(row, before)

    def _put(self, row: int, free: _Free) -> None:
        self._free[row] = free
        for kept in self._kept:
            kept.changed(row)

    def _pods(self, zones: int, row: int, shape: Shape, room: Room, most: int) -> int:
        node, wanted = self._nodes[row], shape.alignment or Alignment({})
        free = self._free[row].later if room is Room.LATER else self._free[row].start
        key = (self._kind(row), free, shape.number, most)
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = pods_by_zones(node, free, wanted, most)
        return known[min(zones, len(known)) - 1]

    def _kind(self, row: int) -> int:
        """A number that nodes share which differ in nothing but what is free."""
        known = self._kind_of.get(row)
        if known is None:
            node = replace(self._nodes[row], available=(), unreported=(), problem="")
            known = self._kind_of[row] = self._kinds.setdefault(node, len(self._kinds))
        return known


def _nothing() -> None:
    """Nothing was changed."""
