"""Messages in KAI's words: why gangs are pending and pods were evicted.

``with_kai_messages`` rewords a plan for gangs of KAI's users; everything that reports the plan
(conditions, events, statuses) follows. Source: KAI-Scheduler's fit errors and eviction messages.
"""

import math
import re
from collections.abc import Iterable, Mapping

from msgspec import structs

from kai_py.api.times import format_time
from kai_py.grouping.gang_settings import Wording
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Action, Eviction, Plan, Shortage, Stage, Unplaced
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, PodState

INSUFFICIENT = re.compile(r"(\d+) Insufficient (\S+)(?: \(.*\))?$")
LARGEST_DOMAIN = re.compile(r"no domain has capacity for (\d+) pods; (\S+) has capacity for (\d+)")
RESOURCE_NAMES: Mapping[str, str] = {
    "nvidia.com/gpu": "GPUs",
    "cpu": "CPU cores",
    "memory": "memory",
}
MILLICORES, GIGABYTE = 1000.0, 1e9


def with_kai_messages(plan: Plan, gangs: Iterable[Gang], now: float) -> Plan:
    """``plan``, reworded for those of ``gangs`` that use KAI's wording. O(gangs)."""
    reworded = {gang.key: gang for gang in gangs if gang.settings.wording is Wording.KAI}
    if not reworded:
        return plan
    shares = {share.queue: share for share in plan.queues}
    return structs.replace(
        plan,
        unplaced=tuple(
            _reworded(each, reworded[each.gang], now) if each.gang in reworded else each
            for each in plan.unplaced
        ),
        evictions=tuple(
            structs.replace(each, reason=_eviction_message(each, reworded[each.gang], shares))
            if each.gang in reworded
            else each
            for each in plan.evictions
        ),
    )


def _reworded(unplaced: Unplaced, gang: Gang, now: float) -> Unplaced:
    message = unplaced.without_advice or unplaced.message
    plain = structs.replace(unplaced, message=message, without_advice="")
    return structs.replace(plain, message=_pending_message(plain, gang, now))


def kai_message(unplaced: Unplaced) -> str:
    """The message of the PodGroup's condition."""
    if (
        unplaced.stage is Stage.QUEUE_NOT_FOUND
        and f'"{unplaced.queue}" does not exist' in unplaced.message
    ):
        return f"Queue '{unplaced.queue}' does not exist"
    if unplaced.stage is Stage.TOPOLOGY:
        job = f"{unplaced.owner.namespace}/{unplaced.owner.name}"
        message = unplaced.message.replace(f"satisfied for {job}", f"satisfied for job <{job}>")
        return LARGEST_DOMAIN.sub(
            r"node-group \2 can allocate only \3 of \1 required pods", message
        )
    shortage = unplaced.shortage
    if shortage is None:
        return unplaced.message
    causes = " ".join(f"{_cause(text)}." for text in shortage.causes)
    return (
        f"{_shortage_summary(unplaced, shortage)} due to: "
        f"no nodes with enough resources were found: {causes}"
    )


def _pending_message(unplaced: Unplaced, gang: Gang, now: float) -> str:
    lacks_gated = unplaced.stage is Stage.SCHEDULING_GATED and not gang.can_be_satisfied
    if (lacks_gated or unplaced.stage is Stage.BELOW_MIN_MEMBER) and not gang.problem:
        return _not_ready(gang)
    if unplaced.shortage is None or now >= gang.preempts_from:
        return kai_message(unplaced)
    end = format_time(math.ceil(gang.preempts_from))
    delay = _go_duration(gang.settings.preemption_delay)
    return (
        f"{kai_message(unplaced)} Workload is within its preemption delay window "
        f"({delay}) and may not trigger evictions before {end}"
    )


def _not_ready(gang: Gang) -> str:
    """Message of a gang that lacks pods; of its subgroups the first that does is named."""
    ready = gang.counts(PodState.PENDING, PodState.BOUND)
    gated = gang.counts(PodState.GATED)
    incomplete = (leaf for leaf in gang.tree.leaves() if ready.get(leaf.name, 0) < leaf.min_members)
    leaf = next(incomplete, gang.tree) if gang.tree.children else gang.tree
    suffix = f" for SubGroup {leaf.name}" if leaf.name else ""
    exist = ready.get(leaf.name, 0) + gated.get(leaf.name, 0)
    return (
        f"Job is not ready for scheduling. Waiting for {leaf.min_pods()} pods{suffix}, "
        f"currently {exist} exist, {gated.get(leaf.name, 0)} are gated"
    )


def _eviction_message(eviction: Eviction, gang: Gang, shares: Mapping[str, QueueShare]) -> str:
    preemptor = _workload(eviction.preemptor)
    if eviction.action is Action.PREEMPT:
        return f"Pod {eviction.pod} was preempted by higher priority workload {preemptor}"
    if eviction.action is Action.RECLAIM:
        sides = (eviction.queue, eviction.preemptor_queue)
        details = (_queue_usage(shares[queue]) for queue in sides if queue in shares)
        return "\n".join((f"Pod {eviction.pod} was preempted by workload {preemptor}.", *details))
    if eviction.action is Action.CONSOLIDATE:
        return (
            f"Pod {eviction.pod} was preempted and rescheduled due to bin packing "
            "(resource consolidation) procedure"
        )
    return (
        f"Workload doesn't meet the minimum required number of pods ({gang.tree.min_pods()}), "
        f"evicting remaining pod: {eviction.pod}"
    )


def _workload(gang: str) -> str:
    """``namespace/name`` from a gang's key."""
    namespace, _, rest = gang.partition("/")
    return f"{namespace}/{rest.rpartition('/')[2]}"


def _queue_usage(share: QueueShare) -> str:
    return (
        f"{share.queue} uses <{_amounts(share.allocated)}> with a quota of "
        f"<{_amounts(share.deserved)}>, fair-share of <{_amounts(share.fair_share)}> and queue "
        f"priority of <{share.priority}>."
    )


def _amounts(amounts: Mapping[str, float]) -> str:
    gpus, cpu, memory = (amounts.get(name, 0.0) for name in (GPU, "cpu", "memory"))
    return (
        f"GPU: {_amount(gpus)}, CPU: {_amount(cpu / MILLICORES)} (cores), "
        f"memory: {_amount(memory / GIGABYTE)} (GB)"
    )


def _amount(value: float) -> str:
    return f"{round(value, 3):g}" if math.isfinite(value) else "Unlimited"


def _go_duration(seconds: float) -> str:
    """A duration as Go formats it, ``5m0s``: only leading units are omitted."""
    minutes, rest = divmod(seconds, 60.0)
    hours, minutes = divmod(int(minutes), 60)
    parts = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{parts}{rest:g}s"


def _shortage_summary(unplaced: Unplaced, short: Shortage) -> str:
    if not short.min_members:
        return f"Resources were not found for pod {short.pod or unplaced.pods[0]}"
    found = short.others + short.found
    if short.subgroup:
        return (
            f"Resources were found for {found} pods from all sub-groups while sub-group "
            f"{short.subgroup} requires {short.min_members} pods for gang scheduling. "
            "Additional pods cannot be scheduled in this sub-group"
        )
    return (
        f"Resources were found for {found} pods while {short.min_members} are required for gang "
        "scheduling. Additional pods cannot be scheduled"
    )


def _cause(text: str) -> str:
    match = INSUFFICIENT.match(text)
    if match is None:
        return text
    count, resource = match.groups()
    return f"{count} node(s) didn't have enough resources: {RESOURCE_NAMES.get(resource, resource)}"
