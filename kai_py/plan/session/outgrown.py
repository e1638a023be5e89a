"""Protected pods that were resized above what they were admitted with.

A non-preemptible pod is admitted only within what its queue deserves, so that no queue keeps what
others are entitled to. A resize in place asks no scheduler. So a gang with pods that have grown is
protected only while the non-preemptible pods of its queue stay within these bounds.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from kai_py.grouping.admitted import RESIZABLE
from kai_py.plan.state.queues import Quota
from kai_py.policy.queue_limits import check_usage
from kai_py.snapshot.gangs import Gang

ANY_AMOUNT: Mapping[str, float] = dict.fromkeys(RESIZABLE, 1.0)


def as_victim(gang: Gang, quota: Quota, queue: int) -> Gang:
    """An outgrown gang as it is protected; ``queue``: the position of its queue."""
    over = check_usage(quota.usage, queue, quota.cost_vector(ANY_AMOUNT), preemptible=False)
    return gang if over is None else replace(gang, preemptible=True, semi_preemptible=False)
