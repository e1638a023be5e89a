"""When could the next plan differ though nothing in the cluster changes?

The clock alone ends four things: the grace of a gang that runs below its floor, the delay before a
waiting gang may evict others, the time for which room is kept for pods that come later, and, while
somebody waits, the time for which a running gang is safe.
Of the min runtimes every one that is set anywhere counts for every gang: a cycle too many costs
little. Moments are rounded up to whole seconds, so that many of them make few cycles.

Complexity: O(gangs that wait, are short or come in stages), and while somebody waits O(gangs x
different min runtimes).
"""

import math
from collections.abc import Iterator

from kai_py.plan.cycle import CycleSettings
from kai_py.policy.min_runtime import min_runtimes, preemption_delay
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot


def next_deadline(snapshot: Snapshot, settings: CycleSettings) -> float | None:
    """The first such moment after ``snapshot.now``, seconds since the epoch; None if none comes."""
    moments = _moments(snapshot, settings)
    return min((math.ceil(at) for at in moments if at > snapshot.now), default=None)


def _moments(snapshot: Snapshot, settings: CycleSettings) -> Iterator[float]:
    runtimes = min_runtimes(snapshot.queues, settings.rules) if snapshot.pending else ()
    for gang in (snapshot.gangs[key] for key in snapshot.short):
        if gang.stale_since is not None:
            yield from _end_of_grace(gang, gang.stale_since, settings.staleness_grace)
    for gang in (snapshot.gangs[key] for key in snapshot.staged):
        yield gang.started + settings.hold_seconds
    for gang in snapshot.gangs.values() if runtimes else ():
        if gang.bound:
            yield from (gang.started + runtime for runtime in runtimes)
    for key in snapshot.pending:
        gang = snapshot.gangs[key]
        delayed = preemption_delay(
            gang.created, gang.last_evicted, gang.preemption_delay, snapshot.now
        )
        if delayed is not None:
            yield delayed.until


def _end_of_grace(gang: Gang, since: float, default: float) -> Iterator[float]:
    grace = default if gang.staleness_grace is None else gang.staleness_grace
    if grace >= 0:
        yield since + grace
