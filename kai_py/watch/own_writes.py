"""The versions that this process wrote, until its watches show them."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kai_py.watch.resource import Kind

COALESCE_SECONDS = 0.5
"""Writes so close to each other are kept as one."""
MAX_UNSEEN = 256
"""Most entries of a kind: later writes join the last one."""


class _Writes(NamedTuple):
    """Writes kept as one: the newest version, and when the first and the last were answered."""

    version: int
    first: float
    last: float


@dataclass
class OwnWrites:
    """Unseen writes by kind, oldest first; kinds that are not followed are not recorded.

    A version that is no number can't be compared and is not recorded either.
    """

    _unseen: dict[str, deque[_Writes]] = field(default_factory=dict)

    def follow(self, kind: Kind[Any]) -> None:
        """Record writes to a kind from now on."""
        self._unseen.setdefault(kind.permission, deque())

    def record(self, kind: Kind[Any], version: str, now: float) -> None:
        """Record a write that the server answered with ``version``; ``now`` in seconds."""
        unseen = self._unseen.get(kind.permission)
        if unseen is None or not version.isdecimal():
            return
        written = _Writes(int(version), now, now)
        if unseen and (now - unseen[-1].first < COALESCE_SECONDS or len(unseen) >= MAX_UNSEEN):
            before = unseen.pop()
            written = _Writes(max(before.version, written.version), before.first, now)
        unseen.append(written)

    def unseen_since(self, kind: Kind[Any], seen: str, listed: float) -> float | None:
        """When the oldest write was made that is newer than version ``seen``; None if all are seen.

        Writes from before the moment ``listed``, when a complete list began, are seen.
        """
        unseen = self._unseen.get(kind.permission)
        if not unseen or not seen.isdecimal():
            return None
        while unseen and (unseen[0].version <= int(seen) or unseen[0].last < listed):
            unseen.popleft()
        return max(unseen[0].first, listed) if unseen else None
