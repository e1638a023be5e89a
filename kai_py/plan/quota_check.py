"""Would pods of a gang take its queue, or one above it, over a bound?"""

from collections.abc import Sequence

from kai_py.plan.explain.reasons import Obstacle
from kai_py.plan.plan import Stage
from kai_py.plan.state.queues import Quota
from kai_py.policy.limits import Bound, check_limits
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats


def over_bounds(
    quota: Quota, gang: Gang, members: Sequence[Member], cost: Floats
) -> Obstacle | None:
    """The bound that ``members`` of the gang are over, which ``cost`` (quota resources,) so much.

    Its queue must exist.
    """
    queue, preemptible = quota.queues.positions[gang.queue], gang.can_give_back(members)
    over = check_limits(quota.standing, queue, cost, preemptible=preemptible)
    if over is None:
        return None
    stage = Stage.QUEUE_MAX if over.bound is Bound.MAX else Stage.NON_PREEMPTIBLE
    return Obstacle(stage, over.message(quota.resources[over.resource]))
