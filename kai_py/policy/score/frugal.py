"""The frugal score: the free GPU capacity lost to pods likely to come, weighted by scarcity.

*Frugal* is specific to this project. It places as fragmentation gradient descent does (see
``fragmentation``, from which it takes A), with another measure of what the target workload M can
use of a node n:

    A_n(m) = free milli of the GPUs with enough for m   if one pod of m fits, else 0
    B_n(m) = milli that pods of m alone would fill:     as many as CPU, memory and GPUs hold
    U_n(m) = (9 A_n(m) + B_n(m)) / 10
    w_m    = p_m / sqrt(s_m), scaled to the sum of p    p: share of all pods, s: supply
    waste  = sum of free milli - sum over M of w_m U_n(m)

- *B* sees what A does not: GPUs beside too few cores or too little memory for all of them, and
  parts of which a multiple of a shape leaves something over. A alone counts a node as whole until
  its last core is gone; B alone follows every single pod and packs multi-GPU pods worse.
- *Supply* s_m is the part of all GPUs that is on nodes which hold such a pod when they are empty.
  A pod that accepts any GPU can go elsewhere, one that needs a rare model cannot: its share counts
  more, so that the rare model is left to pods that request it. The square root is half-way between
  counting pods and counting pods per GPU they may use.

The weights of A and B and the root were chosen on the openb lists of docs/packing.md, and held on
orders of arrival that were not used for it. O(nodes x shapes).
"""

import numpy as np

from kai_py.policy.score.node_capacity import DECIMALS
from kai_py.policy.score.workload import FreeCapacity, TargetWorkload
from kai_py.snapshot.resources import Floats


def stranded(workload: TargetWorkload, free: FreeCapacity) -> Floats:
    """(n,) waste in milli-GPU."""
    size, parts = workload.size_index, free.gpus
    copies = np.floor(parts.shares_fitting[:, size] / workload.devices)
    _limit_replicas(copies, free.cpu, workload.cpu)
    _limit_replicas(copies, free.memory, workload.memory)
    fits = (copies > 0) & (parts.gpus_fitting[:, size] >= workload.devices)
    usable = parts.milli_fitting[:, size] * fits
    usable *= 9.0
    copies *= workload.devices * workload.milli
    usable += copies
    used = np.einsum("na,na->n", usable, workload.weight[workload.node_kind[free.rows]]) / 10.0
    return np.asarray((parts.total - used).round(DECIMALS))


def _limit_replicas(replicas: Floats, free: Floats, requested: Floats) -> None:
    """At most as many (n, m) replicas as ``free`` (n,) holds of ``requested`` (m,), in place."""
    some = requested > 0
    held = np.floor(free[:, None] / np.where(some, requested, 1.0))
    np.minimum(replicas, held, out=replicas, where=some)
