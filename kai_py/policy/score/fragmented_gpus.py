"""The GPUs of a cluster that are free but of no use to pods like those that run and wait.

The sum of ``fragmentation`` over the nodes that take pods, in GPUs. Only GPUs of the device plugin
are seen, not those of claims. O(nodes x shapes).
"""

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.fragmentation import fragmentation
from kai_py.policy.score.node_capacity import WHOLE_GPU, free_milli_by_node
from kai_py.policy.score.workload import (
    FreeCapacity,
    FreeGpus,
    frequent_shapes,
    target_workload,
)
from kai_py.snapshot.snapshot import Snapshot


def fragmented_gpus(snapshot: Snapshot) -> float | None:
    """GPUs that are free and of no use; None where no device plugin reports any."""
    positions, sharing = snapshot.resources.positions, snapshot.gpu_sharing
    if GPU_RESOURCE not in positions:
        return None
    free = snapshot.nodes.allocatable - snapshot.used
    most = int(snapshot.nodes.allocatable[positions[GPU_RESOURCE]].max(initial=0.0))
    part = 1.0 - sharing.used / sharing.memory[sharing.rows]
    parts = free_milli_by_node(sharing.rows, part, free[positions[GPU_RESOURCE]], most)
    workload = target_workload(frequent_shapes(snapshot), snapshot, StaticFits())
    open_nodes = np.flatnonzero(snapshot.nodes.ready & ~snapshot.nodes.unschedulable)
    left = FreeCapacity(
        open_nodes,
        free[positions["cpu"], open_nodes],
        free[positions["memory"], open_nodes],
        FreeGpus(workload, parts[open_nodes]),
    )
    return float(fragmentation(workload, left).sum() / WHOLE_GPU)
