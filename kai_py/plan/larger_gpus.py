"""On which nodes does a gang that asks for an amount of GPU memory stay within its queue's bounds?

Queues count GPUs, so an amount of memory costs the more the smaller the GPU is. A gang that is over
a bound at the price of the smallest GPUs may be within it on larger ones. All its pods are counted
at the price of the smallest GPU among those nodes. O(sizes of GPUs x depth).
"""

import numpy as np

from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.session import CycleState
from kai_py.policy.limits import check_limits
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools


def nodes_within_bounds(state: CycleState, gang: Gang, ask: Ask) -> Bools | None:
    """(nodes,) bool, those with GPUs of which the ask is few enough; None where there are none."""
    sharing, quota = state.snapshot.gpu_sharing, state.quota
    shares = [share for m in ask.members if (share := m.shape.gpu_share) and share.memory]
    if not shares:
        return None
    queue, gpu = quota.queues.positions[gang.queue], quota.resources.index(GPU)
    dearest = sum(share.gpus(sharing.smallest) for share in shares)
    for memory in np.unique(sharing.memory[sharing.known])[1:].tolist():
        cost = state.ask_cost(gang).copy()
        cost[gpu] += sum(share.gpus(memory) for share in shares) - dearest
        preemptible = gang.can_give_back(ask.members)
        if check_limits(quota.standing, queue, cost, preemptible=preemptible) is None:
            allowed: Bools = sharing.known & (sharing.memory >= memory)
            return allowed
    return None
