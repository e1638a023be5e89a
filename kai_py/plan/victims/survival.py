"""Whether a gang and its workload survive an eviction: no action may make a Job fail for good.

Controllers count the pods that a workload loses, and fail it beyond a limit
(``grouping.failure_limits``). Terminating pods count as lost, too, as the controller may not have
counted them yet, and so do pods that failed and that the Job, as we know it, does not count. More
pods than the limit allows are evicted only if the whole gang is, and if its Job can be suspended
instead of failing: then no pod counts as failed, and the Job is resumed later. So a low limit does
not protect a Job that can be suspended. One that cannot be suspended never loses more pods than its
limit allows.
"""

from collections.abc import Iterable, Sequence

from kai_py.api.texts import count_of
from kai_py.grouping.gang import FailureLimit, is_satisfied
from kai_py.plan.placement.next_pods import active_counts
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.admitted_gangs import can_be_suspended
from kai_py.snapshot.gangs import Gang, Member, PodState


def exceeded_limit(gang: Gang, leaving: Iterable[Member]) -> FailureLimit | None:
    """The first limit that evicting these pods of the gang exceeds; None if it survives that.

    A workload that was admitted without such limits and cannot be suspended has none.
    """
    # The limits of most gangs are out of reach.
    if gang.outlives_all_pods or (gang.admitted_as_evictable and not can_be_suspended(gang)):
        return None
    limits: dict[str, FailureLimit] = {}
    lost: dict[str, set[str]] = {}
    for member in leaving:
        for limit in member.failure_limits:
            limits[limit.key] = limit
            lost.setdefault(limit.key, set()).add(limit.counted_once or member.pod.uid)
    for member in gang.members:
        if member.state is PodState.RELEASING:
            for limit in member.failure_limits:
                lost.setdefault(limit.key, set()).add(limit.counted_once or member.pod.uid)
    for job, failed in gang.uncounted_failures:
        if job in lost:
            lost[job] |= failed
    return next((each for key, each in limits.items() if len(lost[key]) > each.remaining), None)


def limit_of_whole(gang: Gang) -> str:
    """The failure limit that forbids to evict the whole gang; "" if it may be evicted."""
    exceeded = exceeded_limit(gang, gang.bound)
    return "" if exceeded is None or can_be_suspended(gang) else str(exceeded)


def running_pods(gang: Gang, statement: Statement) -> Sequence[Member]:
    """The gang's pods that are bound, without those that this cycle has evicted."""
    if not statement.evicted:
        return gang.bound
    return [member for member in gang.bound if member.pod.uid not in statement.evicted]


def is_satisfied_without(gang: Gang, leaving: Iterable[Member], statement: Statement) -> bool:
    """Whether the gang still has minMember once some of its pods have left."""
    counts = active_counts(gang, statement)
    for member in leaving:
        counts[member.subgroup] -= 1
    return is_satisfied(gang.tree, counts)


def are_created_again(members: Iterable[Member]) -> bool:
    """Whether all of these pods are created again once they are evicted; those alone are not."""
    return all(member.is_owned for member in members)


def would_fail(gang: Gang, leaving: Iterable[Member]) -> bool:
    """Whether evicting these pods makes the workload fail for good, as it can't be suspended."""
    return exceeded_limit(gang, leaving) is not None and not can_be_suspended(gang)


SUSPENDED = "its Job is suspended, and resumed when it fits"
NOT_CREATED_AGAIN = "it is not created again, as it has no owner"


def effect_text(gang: Gang, leaving: Sequence[Member]) -> str:
    """What evicting these pods does to the gang's workload: a clause for messages."""
    if not are_created_again(leaving):
        return NOT_CREATED_AGAIN
    exceeded = exceeded_limit(gang, leaving)
    if exceeded is not None:
        return SUSPENDED if can_be_suspended(gang) else f"its workload fails ({exceeded})"
    limits = [limit for member in leaving for limit in member.failure_limits]
    if not limits:
        return "its pods are created again"
    left = min(each.remaining for each in limits)
    return f"its pods are created again; it survives {count_of(left, 'eviction')}"
