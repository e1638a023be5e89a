"""Fragmentation: the free GPU capacity that the pods likely to come cannot use.

Of a node n with free CPU c and free GPU parts R_g the shape m of the target workload M can't use

    F_n(m) = sum of R_g over the GPUs too full for m    if m fits: enough CPU, enough such GPUs
             sum of all R_g                             if it doesn't, or asks for no GPU
    F_n    = sum over M of p_m F_n(m)                   p: share of all pods

The strategy ``fgd``, fragmentation gradient descent, places a pod where F grows least; see
``growth``. Measure and strategy are those of "Beware of Fragmentation" (Weng et al., USENIX ATC
2023), memory is left out as there. O(nodes x shapes).
"""

import numpy as np

from kai_py.policy.score.node_capacity import DECIMALS
from kai_py.policy.score.workload import FreeCapacity, TargetWorkload
from kai_py.snapshot.resources import Floats


def fragmentation(workload: TargetWorkload, free: FreeCapacity) -> Floats:
    """(n,) F in milli-GPU."""
    size, parts = workload.size_index, free.gpus
    fits = free.cpu[:, None] >= workload.cpu
    fits &= parts.gpus_fitting[:, size] >= workload.devices
    usable = parts.milli_fitting[:, size] * fits
    used = np.einsum("na,na->n", usable, workload.share[workload.node_kind[free.rows]])
    return np.asarray((parts.total - used).round(DECIMALS))
