"""Whether a gang's workload survives an eviction: no action may make a Job fail for good.

A workload counts the pods that it loses (``grouping.failure_limits``); pods that are terminating
already count as well, as its controller may not have seen them yet. Pods beyond the limit are
victims only if all of the gang goes and its Job can be suspended in place of evicting its pods: it
is resumed later, and nothing counts as failed. So a Job protects nothing by a low limit. Workloads
that can't be suspended are not evicted beyond their limits.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from kai_py.grouping.gang import FailureLimit
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.suspended_jobs import MAX_PLACEHOLDERS


def exceeded_limit(gang: Gang, leaving: Iterable[Member]) -> FailureLimit | None:
    """The first limit that the eviction of these pods of the gang exceeds; None if it survives."""
    found = [limit for member in leaving for limit in member.failure_limits]
    if not found:
        return None
    counts = Counter(limit.key for limit in found)
    limits = {limit.key: limit for limit in found}
    counts.update(_terminating(gang))
    return next((each for key, each in limits.items() if counts[key] > each.remaining), None)


def can_be_suspended(gang: Gang) -> bool:
    """Whether the gang is a batch/v1 Job that is not too large to wait for its resumption."""
    owner = gang.owner
    is_job = owner.kind == "Job" and owner.api_version.startswith("batch/")
    return is_job and max(gang.total_pods, len(gang.members)) <= MAX_PLACEHOLDERS


def is_lost(gang: Gang, leaving: Iterable[Member]) -> bool:
    """Whether the gang's workload would fail, as it can't be suspended."""
    return exceeded_limit(gang, leaving) is not None and not can_be_suspended(gang)


SUSPENDED = "its Job is suspended, and resumed when it fits"
NOT_CREATED_AGAIN = "it is not created again, as it has no owner"


def effect_text(gang: Gang, leaving: Sequence[Member]) -> str:
    """What the eviction of these pods does to the workload of a gang, as a clause."""
    if gang.owner.kind == "Pod":
        return NOT_CREATED_AGAIN
    exceeded = exceeded_limit(gang, leaving)
    if exceeded is not None:
        return SUSPENDED if can_be_suspended(gang) else f"its workload fails ({exceeded})"
    limits = [limit for member in leaving for limit in member.failure_limits]
    if not limits:
        return "its pods are created again"
    left = min(each.remaining for each in limits)
    return f"its pods are created again; it survives {left} evictions"


def _terminating(gang: Gang) -> Counter[str]:
    return Counter(
        limit.key
        for member in gang.members
        if member.state is PodState.RELEASING
        for limit in member.failure_limits
    )
