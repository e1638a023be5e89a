"""Quota checks of a gang: bounds of its queues, GPU memory, quota reserved for other gangs.

Queues count GPUs, so the same amount of GPU memory costs more on a smaller GPU. A gang that exceeds
a bound at the cost on the smallest GPUs may be within it on larger ones; ``nodes_within_quota``
finds the nodes that have these. All pods of the request are charged as on the smallest GPU of these
nodes. O(distinct GPU sizes x depth of the queue).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.queues import Quota
from kai_py.policy.queue_limits import QuotaExceeded, check_limits, check_max, display_amount
from kai_py.policy.queue_usage import QuotaBound
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats


def check_quota(
    quota: Quota, gang: Gang, members: Sequence[Member], cost: Floats
) -> Unschedulable | None:
    """The reason if ``members`` with ``cost`` (quota resources,) exceed a bound, else None.

    The gang's queue must exist.
    """
    over, usage = _exceeded(quota, gang, members, cost), quota.usage_beside(gang, members)
    if over is None:
        return None
    stage = Stage.QUEUE_MAX if over.bound is QuotaBound.MAX else Stage.NON_PREEMPTIBLE
    resource = quota.resources[over.resource]
    infeasible = over.infeasible(resource) if over.requested > over.limit else ""
    message = over.message(resource)
    leaving = quota.leaving[over.resource, quota.queues.positions[over.queue]]
    if leaving > 0:
        message += f" (of those allocated, {display_amount(leaving, resource)} by terminating pods)"
    owed = usage.owed if over.bound is QuotaBound.MAX else usage.owed_non_preemptible
    shared = owed[over.resource, quota.queues.positions[over.queue]]
    if shared > 0:
        claims = f"{display_amount(shared, resource)} in claims charged to other queues"
        message += f" (of those allocated, {claims})"
    return Unschedulable(stage, message, infeasible=infeasible)


def _exceeded(
    quota: Quota, gang: Gang, members: Sequence[Member], cost: Floats
) -> QuotaExceeded | None:
    """How ``members`` with ``cost`` (quota resources,) exceed a bound now; None if they do not."""
    queue, preemptible = quota.queues.positions[gang.queue], gang.is_preemptible(members)
    return check_limits(quota.usage_beside(gang, members), queue, cost, preemptible=preemptible)


def waits_for_leaving(quota: Quota, gang: Gang, members: Sequence[Member], cost: Floats) -> bool:
    """Whether ``members`` exceed a bound now, but not once terminating pods have gone.

    ``cost``: (quota resources,) of ``members``.
    """
    if not quota.has_leaving or _exceeded(quota, gang, members, cost) is None:
        return False
    return exceeded_later(quota, gang, members, cost) is None


def exceeded_later(
    quota: Quota,
    gang: Gang,
    members: Sequence[Member],
    cost: Floats,
    ahead: Iterable[tuple[Gang, Floats]] = (),
) -> QuotaExceeded | None:
    """How ``members`` exceed a bound once terminating pods have gone; None if they do not.

    ``cost``: (quota resources,) of ``members``. ``ahead``: gangs that will run by then, with what
    they will cost.
    """
    usage, queues = quota.usage_beside(gang, members), quota.queues
    allocated = usage.allocated - quota.leaving
    for each, added in ahead:
        allocated[:, queues.ancestors(queues.positions[each.queue])] += added[:, None]
    later, preemptible = replace(usage, allocated=allocated), gang.is_preemptible(members)
    return check_limits(later, queues.positions[gang.queue], cost, preemptible=preemptible)


def nodes_within_quota(state: CycleState, gang: Gang, request: PlacementRequest) -> Bools | None:
    """(nodes,) bool: nodes on whose GPUs the request is within the bounds; None if none are."""
    sharing, quota = state.snapshot.gpu_sharing, state.quota
    shares = [share for m in request.members if (share := m.shape.gpu_share) and share.memory]
    if not shares:
        return None
    gpu = quota.resources.index(GPU)
    highest_cost = sum(share.gpus(sharing.smallest) for share in shares)
    # The first size is the smallest, whose cost already exceeded the bound.
    for memory in np.unique(sharing.memory[sharing.memory_known])[1:].tolist():
        cost = state.request_cost(gang).copy()
        cost[gpu] += sum(share.gpus(memory) for share in shares) - highest_cost
        if _exceeded(quota, gang, request.members, cost) is None:
            allowed: Bools = sharing.memory_known & (sharing.memory >= memory)
            return allowed
    return None


def check_reserved_quota(state: CycleState, gang: Gang, cost: Floats) -> Unschedulable | None:
    """The reason if the remaining quota is reserved for a gang that waited longer, else None."""
    ahead = state.placer.reservations.ahead_of(gang)
    if ahead is None:
        return None
    quota = state.quota
    queue, both = quota.queues.positions[gang.queue], cost + ahead.cost
    if check_max(quota.usage, queue, np.where(cost > 0, both, 0.0)) is None:
        return None
    why = (
        f"the remaining quota of queue {gang.queue} is reserved for {ahead.gang.key}, "
        "which has waited longer"
    )
    return Unschedulable(Stage.QUEUE_MAX, f"{why}.")
