"""Pods that are to be derived again, as an object that many pods depend on has changed.

They are derived in steps while a snapshot is prepared, and changes go on meanwhile. So that a
workload of thousands of pods that is edited all the time holds up no snapshot, each pod has one
turn in a preparation: a pod that is outdated again stays as it is until the next one.
"""

from collections.abc import Iterable
from itertools import islice


class OutdatedPods:
    """Which pods are derived for the snapshot that is prepared, and which for the next one."""

    def __init__(self) -> None:
        """Start without any pod."""
        self._due: dict[str, None] = {}
        self._later: dict[str, None] = {}
        self._derived: set[str] = set()
        self._is_closed = False

    def open(self) -> None:
        """Another snapshot begins: all outdated pods are due."""
        self._due.update(self._later)
        self._later.clear()
        self._derived.clear()
        self._is_closed = False

    def close(self) -> None:
        """The preparation has ended: what changes until the snapshot is due in the next one."""
        self._is_closed = True

    def add(self, uids: Iterable[str]) -> None:
        """Note that an object that these pods depend on has changed."""
        for uid in uids:
            is_later = self._is_closed or uid in self._derived
            (self._later if is_later else self._due)[uid] = None

    def require(self, uids: Iterable[str]) -> None:
        """Have these pods derived for this snapshot, even if they have been."""
        self._due.update(dict.fromkeys(uids))

    def discard(self, uid: str) -> None:
        """The pod has been derived."""
        self._due.pop(uid, None)
        self._later.pop(uid, None)

    def take(self, at_most: int) -> tuple[str, ...]:
        """Pods to derive now; empty if none is due."""
        taken = tuple(islice(self._due, at_most))
        for uid in taken:
            del self._due[uid]
        self._derived.update(taken)
        return taken
