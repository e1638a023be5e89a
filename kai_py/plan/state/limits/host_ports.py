"""Host ports of pods on nodes, idle and future idle.

Two ports collide if number and protocol are equal and their addresses are, or one of them means all
addresses (kube-scheduler's NodePorts plugin). O(nodes with allocated ports) per query.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.base import AllocatedItems
from kai_py.plan.state.undo import Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import HostPort, Shape


class HostPorts:
    """Host ports of pods by node; a NodeLimit."""

    reason = "didn't have free ports for the requested pod ports"

    def __init__(self, nodes: int, ports: Mapping[int, Sequence[tuple[HostPort, bool]]]) -> None:
        """``ports``: by node row, each port and whether its pod terminates."""
        self._nodes = nodes
        self._allocated = AllocatedItems(ports)

    def applies_to(self, shape: Shape) -> bool:
        """Whether its pods request host ports."""
        return bool(shape.host_ports)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) 1 where all its ports are free, else 0: two such pods collide."""
        free = np.full(self._nodes, min(max_replicas, 1), dtype=np.int64)
        for row in self._allocated.rows:
            free[row] *= self._is_free(shape, row, capacity)
        return free

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Allocate the ports of the pod on a node, if they are free."""
        if not self._is_free(member.shape, row, capacity):
            return None
        return self._allocated.allocate(row, member.shape.host_ports)

    def release(self, member: Member, row: int) -> Undo:
        """Free the ports of the pod, in future idle capacity."""
        return self._allocated.release(row, member.shape.host_ports)

    def _is_free(self, shape: Shape, row: int, capacity: Capacity) -> bool:
        allocated = self._allocated.on(row, capacity)
        return not any(_collides(port, allocated) for port in shape.host_ports)


def _collides(port: HostPort, allocated: Iterable[HostPort]) -> bool:
    address, protocol, number = port
    return any(
        number == other_number
        and protocol == other_protocol
        and (not address or not other_address or address == other_address)
        for other_address, other_protocol, other_number in allocated
    )
