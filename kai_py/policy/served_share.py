"""Served share: what queues were allocated over time, compared with what they were entitled to.

    deficit = integral (fair share - allocated) dt      received beyond the share counts as well
    served  = deficit <= TOLERATED x integral fair share dt + GRACE_SECONDS x fair share

both decayed with a half-life, so that a queue that was served well for hours may have to wait for a
few minutes, and others need not. Between two cycles amounts count as constant. Kept in memory
only: after a restart every queue counts as served until its deficit has grown again.

A pending gang is due once it is within its queue's fair share, from its creation on unless it was
seen above it before.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from kai_py.policy.queue_usage import QueueUsage
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.tables.queue_tree import Index

HALF_LIFE = 12 * 3600.0
TOLERATED = 0.03
"""Part of its fair share that a queue may go without while pods are about to end."""

GRACE_SECONDS = 60.0


@dataclass
class ServedShare:
    """The integrals of every queue up to the last cycle, in quota units x seconds."""

    _names: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Resources and queues."""
    _now: float = 0.0
    _allocated: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    _fair: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    _received: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    _entitled: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    due: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """(resources, queues) of the fair shares what queues could have now."""

    def advance(
        self, resources: Sequence[str], usage: QueueUsage, now: float, due: Floats | None = None
    ) -> None:
        """Carry the integrals forward to ``now``, from where ``usage`` holds.

        ``due`` (resources, queues): what queues could have of their fair shares, by the sizes of
        their gangs; None: all of them.
        """
        names = tuple(resources), tuple(usage.queues.names)
        if names != self._names:
            self._rename(*names)
        elapsed = max(now - self._now, 0.0) if self._now else 0.0
        factor = 0.5 ** (elapsed / HALF_LIFE)
        span = -math.expm1(-math.log(2) * elapsed / HALF_LIFE) * HALF_LIFE / math.log(2)
        self._received = self._received * factor + self._allocated * span
        self._entitled = self._entitled * factor + self._fair * span
        self._now = now
        fair = self.due = usage.fair if due is None else np.minimum(usage.fair, due)
        # A queue that deserves without limit is entitled to all it requests: nothing to measure.
        measured = np.isfinite(usage.queues.deserved) & np.isfinite(fair)
        self._allocated, self._fair = usage.allocated.copy(), np.where(measured, fair, 0.0)

    def is_served(self, queue: int, rows: Index, *, tolerated: float = TOLERATED) -> bool:
        """Whether the queue had what it was entitled to in the resources of ``rows``, (n,) int.

        ``tolerated``: the part of it, 0 to 1, that may be missing.
        """
        entitled, received = self._entitled[rows, queue], self._received[rows, queue]
        missing = tolerated * entitled + GRACE_SECONDS * self._fair[rows, queue]
        return bool((entitled - received <= missing + 1e-9).all())

    def _rename(self, resources: tuple[str, ...], queues: tuple[str, ...]) -> None:
        """Use other resources or queues, and keep what is known of those that stay."""
        rows = {name: at for at, name in enumerate(self._names[0])}
        columns = {name: at for at, name in enumerate(self._names[1])}
        old = [
            (i, rows[r], j, columns[q])
            for j, q in enumerate(queues)
            if q in columns
            for i, r in enumerate(resources)
            if r in rows
        ]
        arrays = []
        for before in (self._allocated, self._fair, self._received, self._entitled):
            after = np.zeros((len(resources), len(queues)))
            for i, row, j, column in old:
                after[i, j] = before[row, column]
            arrays.append(after)
        self._allocated, self._fair, self._received, self._entitled = arrays
        self._names = resources, queues


@dataclass
class DueTimes:
    """Since when pending gangs are due, by key; inf for those that have never been."""

    _since: dict[str, float] = field(default_factory=dict)
    _pending: Collection[str] = ()

    def start_cycle(self, pending: Collection[str]) -> None:
        """Forget the gangs that are not pending any more."""
        if pending is self._pending:
            return
        self._pending = pending
        self._since = {key: self._since[key] for key in pending if key in self._since}

    def record_above_share(self, gang: Gang) -> None:
        """The gang is not due now; one that has been keeps its time."""
        self._since.setdefault(gang.key, math.inf)

    def since(self, gang: Gang, now: float) -> float:
        """Since when a gang that is due at ``now`` has been, seconds since the epoch."""
        known = self._since.get(gang.key)
        since = gang.waiting_since if known is None else min(known, now)
        self._since[gang.key] = since
        return since
