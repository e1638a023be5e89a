"""The devices protocol of placement, independent of the allocator behind it.

A claim is allocated by the first pod that is placed with it; later pods share the allocation. Every
change can be undone, in reverse order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kai_py.dra.allocation_query import Alternatives
from kai_py.plan.plan import ClaimAllocation, ClaimToCreate
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.undo import Undo
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices found for a pod: the allocations of claims that had none, and the undo.

    ``create_claim``: the claim for its extended resources on a node without a device plugin.
    ``refund``: by how much its queue is charged less than for the most it could have got.
    """

    allocations: tuple[ClaimAllocation, ...] = ()
    undo: Undo | None = None
    create_claim: ClaimToCreate | None = None
    refund: Mapping[str, float] = field(default_factory=dict)


class DeviceTrial(Protocol):
    """Devices of all nodes with the decisions of the cycle so far."""

    def replicas(self, shape: Shape, mask: Bools, count: int, capacity: Capacity) -> Ints:
        """(nodes,) int64: pods of ``shape``, at most ``count``, for which there are devices."""

    def alternatives(
        self, shape: Shape, mask: Bools, count: int, capacity: Capacity
    ) -> Alternatives | None:
        """(nodes,) each: which alternatives of ``firstAvailable`` up to ``count`` pods get.

        None where the shape has no such requests. To be called after ``replicas``.
        """

    def allocate(self, member: Member, row: int, capacity: Capacity) -> PodDevices | None:
        """Allocate the pod's claims on a node; None when the devices are not available."""

    def release(self, member: Member) -> Undo | None:
        """Free the devices of an evicted pod; claims with other users stay allocated."""

    def fits_empty_cluster(self, shape: Shape) -> bool:
        """Whether some node has devices for one pod of ``shape`` while all are free."""

    def unschedulable_reason(self, shape: Shape, mask: Bools) -> str:
        """One sentence: why the claims of ``shape`` can't be allocated in ``mask``."""
