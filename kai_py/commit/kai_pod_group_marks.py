"""Since when does a gang run below its floor? Told on its PodGroup, so that a restart knows it.

KAI's scheduler keeps this in the annotation ``kai.scheduler/stale-podgroup-timestamp``, in whole
seconds. It goes when the gang is whole again, or when nothing of it runs.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kai_py.api.records.kai import POD_GROUP_API_VERSION, KaiPodGroup
from kai_py.commit.preconditions import preconditions
from kai_py.dialects.kai.keys import STALE_SINCE
from kai_py.snapshot.gangs import Gang
from kai_py.watch.resource import Key


@dataclass(frozen=True, slots=True)
class KaiPodGroupMarks:
    """What the PodGroup with this uid must say; ``stale_since`` as in ``Gang``."""

    uid: str
    stale_since: float | None


def kai_pod_group_marks(gangs: Iterable[Gang]) -> dict[Key, KaiPodGroupMarks]:
    """The marks of every gang that a PodGroup of KAI makes."""
    return {
        (gang.owner.namespace, gang.owner.name): KaiPodGroupMarks(gang.owner.uid, gang.stale_since)
        for gang in gangs
        if gang.owner.api_version == POD_GROUP_API_VERSION
    }


def kai_pod_group_marks_patch(
    marks: KaiPodGroupMarks, known: KaiPodGroup, _now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the PodGroup, or None if it says so already."""
    said = known.metadata.annotations.get(STALE_SINCE)
    wanted = None if marks.stale_since is None else _written(marks.stale_since)
    if known.metadata.uid != marks.uid or said == wanted:
        return None
    return {"metadata": {**preconditions(known), "annotations": {STALE_SINCE: wanted}}}


def _written(moment: float) -> str:
    """Rounded up: nobody is evicted before the grace has passed."""
    return datetime.fromtimestamp(math.ceil(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
