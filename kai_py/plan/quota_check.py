"""Would pods of a gang take its queue, or one above it, over a bound?

On which nodes does a gang that asks for an amount of GPU memory stay within its queue's bounds?

Queues count GPUs, so an amount of memory costs the more the smaller the GPU is. A gang that is over
a bound at the price of the smallest GPUs may be within it on larger ones. All its pods are counted
at the price of the smallest GPU among those nodes. O(sizes of GPUs x depth).
"""

from collections.abc import Sequence

import numpy as np

from kai_py.plan.explain.reasons import Unschedulable
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Stage
from kai_py.plan.session import CycleState
from kai_py.plan.state.queues import Quota
from kai_py.policy.limits import QuotaBound, check_limits, check_max
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats


def check_quota(
    quota: Quota, gang: Gang, members: Sequence[Member], cost: Floats
) -> Unschedulable | None:
    """The bound that ``members`` of the gang are over, which ``cost`` (quota resources,) so much.

    Its queue must exist.
    """
    queue, preemptible = quota.queues.positions[gang.queue], gang.is_preemptible(members)
    over = check_limits(quota.usage, queue, cost, preemptible=preemptible)
    if over is None:
        return None
    stage = Stage.QUEUE_MAX if over.bound is QuotaBound.MAX else Stage.NON_PREEMPTIBLE
    return Unschedulable(stage, over.message(quota.resources[over.resource]))


def nodes_within_quota(state: CycleState, gang: Gang, request: PlacementRequest) -> Bools | None:
    """(nodes,) bool, those with GPUs of which the ask is few enough; None where there are none."""
    sharing, quota = state.snapshot.gpu_sharing, state.quota
    shares = [share for m in request.members if (share := m.shape.gpu_share) and share.memory]
    if not shares:
        return None
    queue, gpu = quota.queues.positions[gang.queue], quota.resources.index(GPU)
    dearest = sum(share.gpus(sharing.smallest) for share in shares)
    for memory in np.unique(sharing.memory[sharing.memory_known])[1:].tolist():
        cost = state.request_cost(gang).copy()
        cost[gpu] += sum(share.gpus(memory) for share in shares) - dearest
        preemptible = gang.is_preemptible(request.members)
        if check_limits(quota.usage, queue, cost, preemptible=preemptible) is None:
            allowed: Bools = sharing.memory_known & (sharing.memory >= memory)
            return allowed
    return None


def check_reserved_quota(state: CycleState, gang: Gang, cost: Floats) -> Unschedulable | None:
    """What is left below the queue's bounds may be kept for a gang that has waited longer."""
    if not state.placer.reservations.active:
        return None
    ahead = state.placer.reservations.ahead_of(gang)
    if ahead is None:
        return None
    quota = state.quota
    queue, both = quota.queues.positions[gang.queue], cost + ahead.cost
    if check_max(quota.usage, queue, np.where(cost > 0, both, 0.0)) is None:
        return None
    why = f"what is left of queue {gang.queue} is kept for {ahead.gang.key}, which waits longer"
    return Unschedulable(Stage.QUEUE_MAX, f"{why}.")
