"""On which nodes are the host ports of a pod free, now and once those who leave have left?

Two ports collide if number and protocol are equal and their addresses are, or one of them means all
addresses (the rule of kube-scheduler's NodePorts plugin). O(nodes that hold ports) per question.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.limits.base import AllocatedItems, Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import HostPort, Shape


class HostPorts:
    """Ports that pods hold on nodes; a NodeLimit."""

    reason = "didn't have free ports for the requested pod ports"

    def __init__(self, nodes: int, ports: Mapping[int, Iterable[tuple[HostPort, bool]]]) -> None:
        """``held``: by node row, each port and whether the pod that holds it leaves."""
        self._nodes = nodes
        self._allocated = AllocatedItems(ports)

    def applies_to(self, shape: Shape) -> bool:
        """Whether its pods ask for host ports."""
        return bool(shape.host_ports)

    def replicas(self, shape: Shape, capacity: Capacity, max_replicas: int) -> Ints:
        """(nodes,) 1 where all its ports are free, else 0: two such pods collide."""
        free = np.full(self._nodes, min(max_replicas, 1), dtype=np.int64)
        for row in self._allocated.rows:
            free[row] *= self._is_free(shape, row, capacity)
        return free

    def allocate(self, member: Member, row: int, capacity: Capacity) -> Undo | None:
        """Take the ports of the pod on a node, if they are free."""
        if not self._is_free(member.shape, row, capacity):
            return None
        return self._allocated.allocate(row, member.shape.host_ports)

    def release(self, member: Member, row: int) -> Undo:
        """Free the ports of the pod later."""
        return self._allocated.release(row, member.shape.host_ports)

    def _is_free(self, shape: Shape, row: int, capacity: Capacity) -> bool:
        taken = self._allocated.on(row, capacity)
        return not any(_collides(port, taken) for port in shape.host_ports)


def _collides(port: HostPort, allocated: Iterable[HostPort]) -> bool:
    address, protocol, number = port
    return any(
        number == other and protocol == spoken and (not address or not held or address == held)
        for held, spoken, other in allocated
    )
