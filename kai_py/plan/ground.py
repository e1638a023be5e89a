"""Is the cluster that a search sees the one that an earlier search saw?

    SAME      nothing that decides about placement or victims differs: the same search would end the
              same way. Gangs that only wait may have come and gone.
    STAYED    pods came to nodes or amounts changed, but everybody who ran is where they were: where
              no more room is left, whoever could be moved nowhere can't be moved now
    OTHER     anything else

The snapshots themselves are compared, not counters that somebody would have to keep: what a
snapshot gains as a field counts from then on. Parts that did not change are the same objects, so
that comparing mostly costs O(gangs); the amounts O(nodes x resources).
"""

from collections.abc import Iterable
from dataclasses import fields
from enum import IntEnum

import numpy as np

from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.gpu_sharing import GpuSharing
from kai_py.snapshot.snapshot import Snapshot

TOLD_ELSEWHERE = frozenset(
    {"now", "gangs", "pending", "queue_usage", "queue_demand", "queue_fixed", "disregarded"}
)
"""Time and gangs are compared in their own way; sums of queues show in their standing."""

ABOUT_OTHERS = frozenset({"held_back", "short", "staged"})
"""Which gangs have a turn, or a part in an action before: that shows in what was decided so far."""

AMOUNTS = frozenset({"used", "releasing", "gpu_sharing"})

COMPARED = tuple(
    each.name for each in fields(Snapshot) if each.name not in TOLD_ELSEWHERE | ABOUT_OTHERS
)


class Ground(IntEnum):
    """How a cluster stands to what it was."""

    OTHER = 0
    STAYED = 1
    SAME = 2


def ground_since(before: Snapshot, now: Snapshot, runtimes: Iterable[float]) -> Ground:
    """How ``now`` stands to ``before``; ``runtimes``: for how long gangs are safe, in seconds."""
    if before is now:
        return Ground.SAME
    names = [name for name in COMPARED if name not in AMOUNTS]
    if now.now < before.now or not all(_equal(before, now, name) for name in names):
        return Ground.OTHER
    gangs = _gangs_since(before, now)
    if gangs is Ground.OTHER or _lapsed(before, now, runtimes):
        return Ground.OTHER
    same = gangs is Ground.SAME and all(_equal(before, now, name) for name in AMOUNTS)
    return Ground.SAME if same else Ground.STAYED


def _equal(before: Snapshot, now: Snapshot, name: str) -> bool:
    ours, theirs = getattr(before, name), getattr(now, name)
    if ours is theirs:
        return True
    if isinstance(ours, np.ndarray):
        return np.array_equal(ours, theirs)
    if isinstance(ours, GpuSharing):
        return all(
            np.array_equal(getattr(ours, part.name), getattr(theirs, part.name))
            for part in fields(GpuSharing)
        )
    # Columns of nodes are made anew with every change, and hold arrays that know no equality.
    return name != "nodes" and bool(ours == theirs)


def _gangs_since(before: Snapshot, now: Snapshot) -> Ground:
    """How those who have pods on nodes stand."""
    found = Ground.SAME
    if before.gangs is now.gangs:
        return found
    for key, gang in now.gangs.items():
        known = before.gangs.get(key)
        if known is gang:
            continue
        ran, runs = _on_nodes(known), _on_nodes(gang)
        if (ran or runs) and known != gang:
            if known is not None and (ran != runs[: len(ran)] or not _alike(known, gang)):
                return Ground.OTHER
            found = Ground.STAYED
    gone = before.gangs.keys() - now.gangs.keys()
    return Ground.OTHER if any(_on_nodes(before.gangs[key]) for key in gone) else found


def _on_nodes(gang: Gang | None) -> list[Member]:
    return [] if gang is None else [member for member in gang.members if member.node]


def _alike(known: Gang, gang: Gang) -> bool:
    """Whether the gang is as ready to leave as it was, its pods apart."""
    return (known.queue, known.priority, known.preemptible, known.semi_preemptible, known.tree) == (
        gang.queue,
        gang.priority,
        gang.preemptible,
        gang.semi_preemptible,
        gang.tree,
    )


def _lapsed(before: Snapshot, now: Snapshot, runtimes: Iterable[float]) -> bool:
    """Whether a gang has ceased to be safe."""
    safe = tuple(runtime for runtime in runtimes if runtime > 0)
    return bool(safe) and any(
        before.now < gang.started + runtime <= now.now
        for gang in now.gangs.values()
        if gang.bound
        for runtime in safe
    )
