"""Host ports and disks of pods on nodes, idle and future idle: what pods of a node cannot share.

Two ports conflict if number and protocol are equal and their addresses are, or one of them means
all addresses (kube-scheduler's NodePorts plugin). Two mounts of a disk conflict unless both only
read it (VolumeRestrictions). O(nodes with items in use) per query.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.base import AllocatedItems
from kai_py.plan.state.undo import Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import HostPort, Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.volume_requirements import Disk

Item = TypeVar("Item")


class Conflicts(Generic[Item]):
    """Items of pods by node, of which some cannot be in use at the same time; a NodeLimit."""

    def __init__(
        self,
        nodes: int,
        in_use: Mapping[int, Sequence[tuple[Item, bool]]],
        items: Callable[[Shape], Sequence[Item]],
        conflict: Callable[[Collection[Item], Collection[Item]], bool],
        reason: str,
    ) -> None:
        """``in_use``: by node row, each item and whether its pod terminates."""
        self.reason = reason
        self._nodes = nodes
        self._allocated = AllocatedItems(in_use)
        self._items = items
        self._conflict = conflict

    def applies_to(self, shape: Shape) -> bool:
        """Whether its pods have such items."""
        return bool(self._items(shape))

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) 0 where an item conflicts; elsewhere 1 if the pods conflict with each other."""
        items = self._items(shape)
        most = min(max_replicas, 1) if self._conflict(items, dict.fromkeys(items)) else max_replicas
        free = np.full(self._nodes, most, dtype=np.int64)
        for row in self._allocated.rows:
            free[row] *= self._is_free(shape, row, capacity)
        return free

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Use the items of the pod on a node, if none conflicts."""
        if not self._is_free(member.shape, row, capacity):
            return None
        return self._allocated.allocate(row, self._items(member.shape))

    def release(self, member: Member, row: int) -> Undo:
        """Free the items of the pod, in future idle capacity."""
        return self._allocated.release(row, self._items(member.shape))

    def _is_free(self, shape: Shape, row: int, capacity: Capacity) -> bool:
        return not self._conflict(self._items(shape), self._allocated.on(row, capacity))


def host_ports(snapshot: Snapshot) -> Conflicts[HostPort]:
    """Ports of nodes."""
    return Conflicts(
        len(snapshot.nodes),
        snapshot.host_ports,
        lambda shape: shape.host_ports,
        _ports_conflict,
        "didn't have free ports for the requested pod ports",
    )


def disks(snapshot: Snapshot) -> Conflicts[Disk]:
    """Disks that pods mount without a claim."""
    return Conflicts(
        len(snapshot.nodes),
        snapshot.disks,
        lambda shape: shape.volumes.disks,
        _disks_conflict,
        "had no available disk",
    )


def _ports_conflict(some: Collection[HostPort], others: Collection[HostPort]) -> bool:
    addresses: dict[tuple[str, int], set[str]] = {}
    for address, protocol, number in others:
        addresses.setdefault((protocol, number), set()).add(address)
    for address, protocol, number in some:
        in_use = addresses.get((protocol, number))
        if in_use and (not address or "" in in_use or address in in_use):
            return True
    return False


def _disks_conflict(some: Collection[Disk], others: Collection[Disk]) -> bool:
    return any(each.conflicts_with_any(others) for each in some)
