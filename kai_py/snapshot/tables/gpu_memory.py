"""How large the GPUs of nodes are, in MiB and in replicas, for the charges of pods.

A pod that requests an amount of GPU memory, or a replica of a GPU, is charged with the part of a
GPU that this is on its node.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.snapshot.gpu_nodes import REPLICA_RESOURCE, gpu_replicas
from kai_py.snapshot.node_usage import NodeUsageState
from kai_py.snapshot.tables.gpus import NOMINAL_MIB
from kai_py.snapshot.tables.pod_table import DerivedPod, PodTable, Uids

if TYPE_CHECKING:
    from kai_py.snapshot.resources import Floats

PLUGIN_GPUS = frozenset({GPU_RESOURCE, REPLICA_RESOURCE})
"""Resources of which one unit may be a replica of a GPU."""


class GpuMemory(PodTable):
    """MiB and replicas of a GPU per node, and the pods whose charge depends on them."""

    def __init__(self) -> None:
        """Nothing is known before the first state."""
        self._generation = -1
        self._memory: Floats | None = None
        self._by_node: dict[str, float] = {}
        self._smallest = NOMINAL_MIB
        self._tracked: dict[str, None] = {}
        self._replicas: dict[str, float] = {}
        self._with_plugin_gpus: dict[str, None] = {}

    def place(self, pod: DerivedPod) -> Uids:
        """Remember a pod that requests an amount of GPU memory, or GPUs of a device plugin."""
        demand = pod.parsed.demand
        self.release(pod.uid)
        if demand.gpu_share is not None and demand.gpu_share.memory:
            self._tracked[pod.uid] = None
        if not PLUGIN_GPUS.isdisjoint(demand.shape.requests):
            self._with_plugin_gpus[pod.uid] = None
        return ()

    def release(self, uid: str) -> Uids:
        """The pod is not charged any more."""
        self._tracked.pop(uid, None)
        self._with_plugin_gpus.pop(uid, None)
        return ()

    def replicas(self, requests: Mapping[str, float], node: str) -> float:
        """How many pods a device plugin gives each of the requested GPUs on ``node``.

        Without a node replicas count for the most that they can be, other GPUs for themselves.
        """
        if not self._replicas or PLUGIN_GPUS.isdisjoint(requests):
            return 1.0
        if node:
            return self._replicas.get(node, 1.0)
        return min(self._replicas.values()) if REPLICA_RESOURCE in requests else 1.0

    def on_node(self, node: str) -> float:
        """MiB of a GPU on ``node``; without a node, or a label on it, of the smallest GPU."""
        return self._by_node.get(node, self._smallest)

    def update(self, state: NodeUsageState) -> Iterable[str]:
        """Take in the nodes; returns the pods, by uid, whose charge may have changed."""
        sharing = state.gpu_sharing
        if state.nodes.generation == self._generation and sharing.memory is self._memory:
            return ()
        self._generation, self._memory = state.nodes.generation, sharing.memory
        rows = np.flatnonzero(sharing.memory_known)
        by_node = {state.nodes.names[row]: float(sharing.memory[row]) for row in rows}
        counts = gpu_replicas(state.nodes)
        replicas = {
            state.nodes.names[row]: float(counts[row]) for row in np.flatnonzero(counts > 1)
        }
        changed = self._with_plugin_gpus if replicas != self._replicas else {}
        self._replicas = replicas
        if by_node != self._by_node:
            self._by_node, self._smallest = by_node, sharing.smallest
            changed = changed | self._tracked
        return tuple(changed)
