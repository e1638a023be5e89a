"""The GPUs of nodes with a device plugin: how large they are, and how they are given out.

A plugin gives them out whole, cut into MIG devices, or in replicas. NVIDIA's GPU operator and its
feature discovery report it in labels:

    nvidia.com/mig.strategy         single: MIG devices are given out as nvidia.com/gpu;
                                    mixed: as nvidia.com/mig-PROFILE, beside GPUs that are not cut
    nvidia.com/mig.config           the partitions that the operator made; all-disabled: none
    nvidia.com/gpu.product          ends with -MIG-PROFILE where whole GPUs are MIG devices, with
                                    -SHARED where they are replicas
    nvidia.com/gpu.replicas         how many replicas there are of each GPU (time-slicing, MPS)

The strategy is that of the whole cluster: it is in force only on nodes whose GPUs are cut. Replicas
of one GPU are no GPUs: together they count as one. With ``renameByDefault`` they are a resource of
their own, ``nvidia.com/gpu.shared``.

The size, in MiB and in replicas, decides charges: a pod that requests an amount of GPU memory, or a
replica of a GPU, is charged with the part of a GPU that this is on its node.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE, MIG_PREFIX
from kai_py.api.numbers import parse_int64
from kai_py.snapshot.derived_pod import DerivedPod
from kai_py.snapshot.nodes import NodeColumns, at_codes
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.shared_gpus import NOMINAL_MIB
from kai_py.snapshot.tables.node_usage import NodeUsageState
from kai_py.snapshot.tables.pod_table import PodTable, Uids

STRATEGY = "nvidia.com/mig.strategy"
CONFIGURATION = "nvidia.com/mig.config"
PRODUCT = "nvidia.com/gpu.product"
REPLICAS = "nvidia.com/gpu.replicas"
SHARING_STRATEGY = "nvidia.com/gpu.sharing-strategy"
REPLICA_RESOURCE = f"{GPU_RESOURCE}.shared"
MAX_REPLICAS = 1_000
"""More than any device plugin makes of a GPU."""


def single_strategy(nodes: NodeColumns) -> Bools:
    """(nodes,) bool: what the node gives out as whole GPUs are MIG devices."""
    cut = _where(nodes, PRODUCT, lambda product: not product or "-MIG-" in product)
    return _where(nodes, STRATEGY, "single".__eq__) & cut & ~_disabled(nodes)


def mixed_strategy(nodes: NodeColumns) -> Bools:
    """(nodes,) bool: the node gives out MIG devices by profile."""
    mixed = _where(nodes, STRATEGY, "mixed".__eq__)
    if not mixed.any():
        return mixed
    mixed &= ~_disabled(nodes)
    for row in np.flatnonzero(mixed):
        amounts = nodes.records[row].status.allocatable
        mixed[row] = any(key.startswith(MIG_PREFIX) and str(n) != "0" for key, n in amounts.items())
    return mixed


def gpu_replicas(nodes: NodeColumns) -> Floats:
    """(nodes,) float64: how many replicas the device plugin makes of each GPU; 1 without."""
    column = nodes.label(REPLICAS)
    by_code = np.array([_replicas(value) for value in column.values], dtype=np.float64)
    return at_codes(by_code, column.codes)


def replicated(nodes: NodeColumns) -> Bools:
    """(nodes,) bool: the device plugin gives one GPU to several pods."""
    shared = _where(nodes, PRODUCT, lambda product: product.endswith("-SHARED"))
    strategy = _where(nodes, SHARING_STRATEGY, lambda text: text not in ("", "none"))
    return shared | strategy | (gpu_replicas(nodes) > 1)


def _disabled(nodes: NodeColumns) -> Bools:
    return _where(nodes, CONFIGURATION, "all-disabled".__eq__)


def _where(nodes: NodeColumns, key: str, holds: Callable[[str], bool]) -> Bools:
    """(nodes,) bool: the label, "" where it is absent, for which ``holds``."""
    column = nodes.label(key)
    by_code = np.array([holds(value) for value in column.values], dtype=np.bool_)
    return at_codes(by_code, column.codes)


def _replicas(text: str) -> float:
    number = parse_int64(text) or 1
    return float(min(max(number, 1), MAX_REPLICAS))


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
