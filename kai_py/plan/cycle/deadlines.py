"""Deadlines: when the next plan could differ although nothing in the cluster changes.

The clock alone ends

- the time for which a node that refused a pod is left out
- the grace period of a gang below minMember
- the delay before a pending gang may evict
- the time for which capacity stays reserved for pods that are not created yet
- the backoff of a gang that failed
- the time before nodes are reserved for a gang
- the time that terminating pods usually take, and that for which a failed device is avoided
- the time for which evicted pods that are to be created again count as demand
- while a gang is pending, the min runtime of a running one
- what the last cycle waits for (``CycleMemory.wake_at``): pods to end, protections by
  ``eviction_limits``, gangs to get ready, checkpoints, the fallback from spot nodes

Every min runtime that is set anywhere counts for every gang: a superfluous cycle costs little.
Deadlines are rounded up to whole seconds, so that many of them cause few cycles.

Complexity: O(gangs that are pending, below minMember or started in part), and while a gang is
pending O(gangs x different min runtimes).
"""

import math
from collections.abc import Iterator

from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.min_runtime import min_runtimes
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import inherited

UNFINISHED_PAUSE = 1.0
"""Seconds after which a cycle that left searches unfinished is followed by another."""


def next_deadline(
    snapshot: Snapshot, settings: CycleSettings, memory: CycleMemory | None = None
) -> float | None:
    """The first such moment after ``snapshot.now``, seconds since the epoch; None if none comes.

    ``memory``: of the cycle that decided on the snapshot, and may have left work to the next.
    """
    moments = list(_deadlines(snapshot, settings))
    if memory is not None:
        failed = (*memory.backoffs.values(), *memory.extension_backoffs.values())
        moments += [each.until for each in failed]
        moments += [] if memory.wake_at is None else [memory.wake_at]
        moments.append(memory.incomplete.counts_until)
        for gang in (snapshot.gangs[key] for key in snapshot.below_min_members):
            evicted = memory.evictions.last_of(gang.key, snapshot.now)
            moments += _grace_deadline(gang, evicted, settings.staleness_grace)
        after = settings.loss_rules.reserve_after
        moments += [
            snapshot.gangs[key].waiting_since + after for key in (snapshot.pending if after else ())
        ]
        moments += [snapshot.now + UNFINISHED_PAUSE] if memory.is_unfinished else []
    return min((math.ceil(at) for at in moments if snapshot.now < at < math.inf), default=None)


def _deadlines(snapshot: Snapshot, settings: CycleSettings) -> Iterator[float]:
    runtimes = min_runtimes(snapshot.queues, settings.rules) if snapshot.pending else ()
    for gang in (snapshot.gangs[key] for key in snapshot.below_min_members):
        if gang.stale_since is not None:
            yield from _grace_deadline(gang, gang.stale_since, settings.staleness_grace)
    for gang in (snapshot.gangs[key] for key in snapshot.started_in_part):
        yield gang.started + settings.reservation_seconds
    for gang in snapshot.gangs.values() if runtimes else ():
        if gang.bound:
            yield from (gang.started + runtime for runtime in runtimes)
    if snapshot.pending:
        yield snapshot.next_device
        yield snapshot.next_overdue
    reserve_after = inherited(snapshot.queues, lambda spec: spec.reserve_after)
    for key in snapshot.pending:
        gang = snapshot.gangs[key]
        if gang.queue in reserve_after:
            yield gang.waiting_since + reserve_after[gang.queue]
        yield from (each.until for each in gang.refusals)
        if snapshot.now < gang.preempts_from:
            yield gang.preempts_from


def _grace_deadline(gang: Gang, since: float, default: float) -> Iterator[float]:
    grace = gang.staleness_grace(default)
    if grace >= 0:
        yield since + grace
