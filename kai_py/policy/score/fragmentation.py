"""Fragmentation: the free GPU capacity that the pods likely to come cannot use.

Of a node n with free CPU c and free GPU parts R_g the shape m of the target workload M can't use

    F_n(m) = sum of R_g over the GPUs too full for m    if m fits: enough CPU, enough such GPUs
             sum of all R_g                             if it doesn't, or asks for no GPU
    F_n    = sum over M of p_m F_n(m)                   p: share of all pods

Fragmentation gradient descent (FGD) places a pod where F grows least; see ``growth``. Measure and
strategy are those of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023), memory is left out
as there. O(nodes x shapes).

``fragmented_gpus``: the GPUs of a cluster that are free but useless to pods like the running and
pending ones.

The sum of ``fragmentation`` over the nodes that take pods, in GPUs. Only GPUs of the device plugin
are seen, not those of claims. O(nodes x shapes).
"""

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.node_capacity import DECIMALS, WHOLE_GPU, free_milli_by_node
from kai_py.policy.score.workload import (
    FreeCapacity,
    FreeGpus,
    TargetWorkload,
    frequent_shapes,
    target_workload,
)
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot


def fragmentation(workload: TargetWorkload, free: FreeCapacity) -> Floats:
    """(n,) F in milli-GPU."""
    size, parts = workload.size_index, free.gpus
    fits = free.cpu[:, None] >= workload.cpu
    fits &= parts.gpus_fitting[:, size] >= workload.devices
    usable = parts.milli_fitting[:, size] * fits
    used = np.einsum("na,na->n", usable, workload.share[workload.node_kind[free.rows]])
    return np.asarray((parts.total - used).round(DECIMALS))


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
