"""How the device plugin of a node gives out its GPUs: whole, cut into MIG devices, or in replicas.

NVIDIA's GPU operator and its feature discovery report it in labels:

    nvidia.com/mig.strategy         single: MIG devices are given out as nvidia.com/gpu;
                                    mixed: as nvidia.com/mig-PROFILE, beside GPUs that are not cut
    nvidia.com/mig.config           the partitions that the operator made; all-disabled: none
    nvidia.com/gpu.product          ends with -MIG-PROFILE where whole GPUs are MIG devices, with
                                    -SHARED where they are replicas
    nvidia.com/gpu.replicas         how many replicas there are of each GPU (time-slicing, MPS)

The strategy is that of the whole cluster: it is in force only on nodes whose GPUs are cut. Replicas
of one GPU are no GPUs: together they count as one. With ``renameByDefault`` they are a resource of
their own, ``nvidia.com/gpu.shared``.
"""

from collections.abc import Callable

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE, MIG_PREFIX
from kai_py.api.numbers import parse_int64
from kai_py.snapshot.nodes import NodeColumns, at_codes
from kai_py.snapshot.resources import Bools, Floats

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
