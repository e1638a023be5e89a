"""Since when does a gang run below its floor? Told on its PodGroup, so that a restart knows it.

KAI's scheduler keeps this in the annotation ``kai.scheduler/stale-podgroup-timestamp``, in whole
seconds. It goes when the gang is whole again, or when nothing of it runs. When a pod of the gang
was last chosen to be evicted stands in ``kai.scheduler/last-eviction-timestamp``: its preemption
delay runs from then.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kai_py.api.records.kai import POD_GROUP_API_VERSION, KaiPodGroup
from kai_py.api.timestamp import timestamp
from kai_py.commit.preconditions import preconditions
from kai_py.dialects.kai.keys import LAST_EVICTION, STALE_SINCE
from kai_py.dialects.kai.times import moment
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.watch.resource import Key

MOST_KEPT = 4096


@dataclass(frozen=True, slots=True)
class KaiPodGroupMarks:
    """What the PodGroup with this uid must say; ``stale_since`` as in ``Gang``.

    ``evicted``: when a pod of it was last chosen, None if never by this process.
    """

    uid: str
    stale_since: float | None
    evicted: float | None = None


class LastEvictions:
    """When a pod of each gang of a PodGroup was last chosen, the last ``MOST_KEPT`` gangs."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._leaving: frozenset[str] = frozenset()

    def noted(self, plan: Plan, now: float) -> Mapping[str, float]:
        """All times, with those of ``plan``; what was planned before as well is not told anew."""
        chosen = frozenset(
            each.gang for each in plan.evictions if each.owner.api_version == POD_GROUP_API_VERSION
        )
        for gang in sorted(chosen - self._leaving):
            self._times.pop(gang, None)
            self._times[gang] = now
        self._leaving = chosen
        for gang in tuple(self._times)[:-MOST_KEPT]:
            del self._times[gang]
        return self._times


def kai_pod_group_marks(
    gangs: Iterable[Gang], evicted: Mapping[str, float]
) -> dict[Key, KaiPodGroupMarks]:
    """The marks of every gang that a PodGroup of KAI makes; ``evicted``: gang key to a time."""
    return {
        (gang.owner.namespace, gang.owner.name): KaiPodGroupMarks(
            gang.owner.uid, gang.stale_since, evicted.get(gang.key)
        )
        for gang in gangs
        if gang.owner.api_version == POD_GROUP_API_VERSION
    }


def kai_pod_group_marks_patch(
    marks: KaiPodGroupMarks, known: KaiPodGroup, _now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the PodGroup, or None if it says so already."""
    said = known.metadata.annotations
    wanted = {STALE_SINCE: None if marks.stale_since is None else _written(marks.stale_since)}
    if marks.evicted is not None and (moment(said.get(LAST_EVICTION, "")) or 0.0) < marks.evicted:
        wanted[LAST_EVICTION] = _written(marks.evicted)
    changed = {key: text for key, text in wanted.items() if said.get(key) != text}
    if known.metadata.uid != marks.uid or not changed:
        return None
    return {"metadata": {**preconditions(known), "annotations": changed}}


def _written(moment: float) -> str:
    """Rounded up: nobody is evicted before the grace has passed."""
    return timestamp(math.ceil(moment))
