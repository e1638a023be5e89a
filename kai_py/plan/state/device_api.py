"""What placement needs to know of devices, whoever keeps them.

A claim is allocated by the first pod that is placed with it; pods placed later share what was
found. Everything can be undone, in reverse order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kai_py.dra.allocation_query import Alternatives
from kai_py.plan.plan import ClaimAllocation, ClaimToCreate
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class PodDevices:
    """Devices found for a pod: what to write for claims that had none, and how to undo it.

    ``make``: the claim that serves its extended resources on a node without a device plugin.
    ``saved``: how much less its queue pays for them than for the most that it could have got.
    """

    allocations: tuple[ClaimAllocation, ...] = ()
    undo: Undo | None = None
    create_claim: ClaimToCreate | None = None
    refund: Mapping[str, float] = field(default_factory=dict)


class DeviceTrial(Protocol):
    """Devices of all nodes, as far as decided."""

    def replicas(self, shape: Shape, mask: Bools, count: int, capacity: Capacity) -> Ints:
        """(nodes,) int64: how many pods of ``shape``, at most ``count``, find devices where."""

    def alternatives(
        self, shape: Shape, mask: Bools, count: int, capacity: Capacity
    ) -> Alternatives | None:
        """(nodes,) each: what of their lists of alternatives up to ``count`` pods get.

        None where they have no such lists. To be asked after ``copies``.
        """

    def allocate(self, member: Member, row: int, capacity: Capacity) -> PodDevices | None:
        """Allocate the pod's claims on a node; None when the devices are not there."""

    def release(self, member: Member) -> Undo | None:
        """Free what a leaving pod held; claims that others share stay allocated."""

    def fits_empty_cluster(self, shape: Shape) -> bool:
        """Whether some node has the devices for one pod of ``shape`` when nobody holds any."""

    def unschedulable_reason(self, shape: Shape, mask: Bools) -> str:
        """One sentence: what keeps the claims of ``shape`` from being allocated in ``mask``."""
