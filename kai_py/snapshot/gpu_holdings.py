"""Which shared GPUs does a pod hold a part of, and how much memory has a GPU where it runs?

A pod that asks for a part of a GPU and runs without a label that says of which one is taken to have
a GPU to itself: room that may be taken is not given away. KAI keeps a pod of its own on every
shared GPU, which requests the whole GPU and carries the label of the group; it and the group are
one GPU, counted once.
"""

from collections.abc import Iterable

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE, GpuShare, SharedGpu, shared_gpus
from kai_py.api.records.core import Pod
from kai_py.snapshot.gpu_sharing import NOMINAL_MIB, SharedGpuUsage
from kai_py.snapshot.ledger import NodeUsageState
from kai_py.snapshot.shape import Shape


def assigned_gpus(pod: Pod, share: GpuShare | None) -> tuple[SharedGpu, ...]:
    """The GPUs of a pod by its labels, or by its name if it has none and is on a node."""
    labelled = shared_gpus(pod)
    if labelled or share is None or not pod.spec.node_name:
        return labelled
    return tuple(SharedGpu(f"{pod.metadata.uid}-{n}") for n in range(share.devices))


def shared_gpu_usage(shape: Shape, gpus: tuple[SharedGpu, ...]) -> SharedGpuUsage | None:
    """What a pod of ``shape`` holds of ``gpus``."""
    if shape.gpu_share is not None:
        return SharedGpuUsage(gpus, shape.gpu_share)
    reserves = len(gpus) == 1 and shape.requests.get(GPU_RESOURCE) == 1
    return SharedGpuUsage(gpus) if reserves else None


class GpuMemory:
    """MiB of a GPU per node, and the pods whose cost depends on it."""

    def __init__(self) -> None:
        """Nothing is known before the first state."""
        self._generation = -1
        self._by_node: dict[str, float] = {}
        self._smallest = NOMINAL_MIB
        self._tracked: dict[str, None] = {}

    def track(self, uid: str, share: GpuShare | None) -> None:
        """Remember a pod that asks for an amount of memory."""
        self._tracked.pop(uid, None)
        if share is not None and share.memory:
            self._tracked[uid] = None

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._tracked.pop(uid, None)

    def on_node(self, node: str) -> float:
        """MiB of a GPU on ``node``; without a node, or a label on it, of the smallest GPU."""
        return self._by_node.get(node, self._smallest)

    def update(self, state: NodeUsageState) -> Iterable[str]:
        """Take in the nodes; the pods, by uid, whose cost may have changed."""
        if state.nodes.generation == self._generation:
            return ()
        self._generation = state.nodes.generation
        sharing = state.gpu_sharing
        rows = np.flatnonzero(sharing.memory_known)
        by_node = {state.nodes.names[row]: float(sharing.memory[row]) for row in rows}
        if by_node == self._by_node:
            return ()
        self._by_node, self._smallest = by_node, sharing.smallest
        return tuple(self._tracked)
