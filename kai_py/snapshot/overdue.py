"""Which pods should have been gone long ago?

A pod's ``deletionTimestamp`` is when its grace ends. One that is still there ``OVERDUE_SECONDS``
later (a finalizer nobody removes, a node that is gone) holds its room, and nobody counts on it.
Cost of a look: O(pods that leave).
"""

from kai_py.api.records.core import Pod

STUCK_AFTER_SECONDS = 120.0


class StuckTerminations:
    """Leaving pods by uid, and those of them that are overdue."""

    def __init__(self) -> None:
        """Start empty."""
        self._due: dict[str, float] = {}
        self._stuck: dict[str, None] = {}

    def set_pod(self, pod: Pod) -> None:
        """Take in a pod as it is now."""
        uid, leaves = pod.metadata.uid, pod.metadata.deletion_timestamp
        if leaves is not None and uid not in self._stuck:
            self._due[uid] = leaves.timestamp() + STUCK_AFTER_SECONDS

    def remove_pod(self, uid: str) -> None:
        """The pod is gone."""
        self._due.pop(uid, None)
        self._stuck.pop(uid, None)

    def newly_stuck(self, now: float) -> tuple[str, ...]:
        """The pods that have become overdue by ``now`` since the last look."""
        found = tuple(uid for uid, due in self._due.items() if due <= now)
        for uid in found:
            del self._due[uid]
            self._stuck[uid] = None
        return found

    def __contains__(self, uid: str) -> bool:
        """Whether the pod was noticed to be overdue."""
        return uid in self._stuck
