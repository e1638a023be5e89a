"""Pods that ran to their end a moment ago: what is learned about runtimes comes from them only.

A pod that was deleted ran for as long as its workload, its owner or an eviction left it, also if
its containers ended with success on the way.
"""

from dataclasses import dataclass, field

from kai_py.api.records.core import Pod
from kai_py.api.times import CLOCK_STEP

KEPT_SECONDS = 60.0
"""Longer than from one cycle to the next; a cycle that comes later learns nothing of the pod."""


@dataclass
class Completions:
    """Pods by uid; of each, when the first snapshot after its end was built."""

    _since: dict[str, float] = field(default_factory=dict)
    _new: dict[str, None] = field(default_factory=dict)

    def note(self, pod: Pod) -> None:
        """Note that the pod has succeeded."""
        if pod.metadata.deletion_timestamp is None:
            self._new[pod.metadata.uid] = None

    def snapshot(self, now: float) -> frozenset[str]:
        """Uids of the pods that succeeded within the last ``KEPT_SECONDS``."""
        self._since |= dict.fromkeys(self._new, now)
        self._new.clear()
        for uid, since in tuple(self._since.items()):
            if -CLOCK_STEP <= now - since <= KEPT_SECONDS:
                break
            del self._since[uid]
        return frozenset(self._since)
