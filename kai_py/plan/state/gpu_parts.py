"""Parts of GPUs, which pods get by sharing a GPU of a device plugin, or through a claim."""

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import GPU_RESOURCE, GpuShare
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.limits.gpu_sharing import AllocatedShares, SharedGpus, ShareReplicas
from kai_py.plan.state.undo import no_undo
from kai_py.snapshot.accounting import GPU, total
from kai_py.snapshot.gangs import Charge, Member
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

NO_PARTS = AllocatedShares((), 0, no_undo)


class GpuParts:
    """Where pods get their parts of GPUs, and what these cost. ``shared``: of device plugins."""

    def __init__(self, snapshot: Snapshot, devices: CycleDevices, strategy: FillStrategy) -> None:
        """Start from the snapshot; ``strategy``: which GPU of a node to share."""
        self.shared = SharedGpus(snapshot.gpu_sharing)
        self.resource = snapshot.resources.positions.get(GPU_RESOURCE)
        """Position of the device plugins' resource; None if no node has it."""
        self._snapshot = snapshot
        self._devices = devices
        self._strategy = strategy
        self._claimed: dict[int, Bools] = {}

    def replicas(
        self, shape: Shape, share: GpuShare, free: Floats, capacity: Capacity, count: int
    ) -> ShareReplicas:
        """Where ``count`` pods get their parts of GPUs; ``free``: (resources, nodes)."""
        idle_gpus = np.zeros(free.shape[1]) if self.resource is None else free[self.resource]
        found = self.shared.replicas(share, idle_gpus, capacity, count)
        claimed = self.claimed(shape)
        if claimed is None:
            return found
        return ShareReplicas(found.shared, np.where(claimed, count, found.total))

    def claimed(self, shape: Shape) -> Bools | None:
        """(nodes,) bool: where a claim gives the shape its parts of GPUs; None if nowhere.

        A node whose device plugin reports GPUs gives parts of those.
        """
        if shape.extended.share is None:
            return None
        known = self._claimed.get(shape.number)
        if known is None:
            known = self._devices.divides_gpus(shape)
            if self.resource is not None:
                known &= self._snapshot.nodes.allocatable[self.resource] <= 0
            self._claimed[shape.number] = known
        return known

    def allocate(
        self,
        member: Member,
        row: int,
        capacity: Capacity,
        idle_gpus: float,
        gpu_fraction: float | None,
    ) -> AllocatedShares | None:
        """The pod's parts of GPUs on a node with ``idle_gpus``, none if it claims them.

        None where they do not fit. ``gpu_fraction``: share the GPU of which this fraction (0 to 1)
        of the memory is free.
        """
        claimed = self.claimed(member.shape)
        if claimed is not None and claimed[row]:
            return NO_PARTS
        preferred = self._strategy if gpu_fraction is None else gpu_fraction
        return self.shared.allocate(member, row, capacity, idle_gpus, preferred)

    def charge_on(self, member: Member, row: int) -> Charge:
        """The cost of a pod on a node: an amount of memory is a larger part of a small GPU."""
        share, sharing = member.shape.gpu_share, self._snapshot.gpu_sharing
        if share is None or not share.memory or member.node:
            return member.charge
        difference = share.gpus(float(sharing.memory[row])) - share.gpus(sharing.smallest)
        return total((member.charge, {GPU: difference}))
