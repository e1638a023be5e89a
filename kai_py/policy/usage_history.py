"""Past usage of queues, decayed with a half-life and kept from cycle to cycle.

Past usage is what a queue had allocated over time, against what the cluster offered over time, both
decayed with a half-life h: an hour that is h ago counts half.

    usage = integral allocated(t) 2^-(now - t)/h dt  /  integral offered(t) 2^-(now - t)/h dt

Between two observations the allocated amount counts as constant, and both integrals are carried
forward in closed form; observing more often without a change gives the same result. Without a
half-life nothing decays: the plain average. Times and half-lives are in seconds.

The state of a queue is a small record in its status, so that the history survives a restart: it
begins with that record and continues with what each cycle saw.

``ExternalUsage`` takes the place of all that where another source, such as Prometheus, measures
past usage: averages over a window, as a fraction of what the cluster has now.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.times import CLOCK_STEP, begun_at
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.tables.queues import UsageRecord


class UsageState(Struct, frozen=True):
    """Decayed integrals up to ``observed_at``: (resources, queues) and ``offered`` (resources,)."""

    observed_at: float
    allocated: Floats
    offered: Floats

    @property
    def fractions(self) -> Floats:
        """(resources, queues) past usage as a fraction of what was offered; 0 without history."""
        offered = np.broadcast_to(self.offered[:, None], self.allocated.shape)
        return np.divide(
            self.allocated, offered, out=np.zeros_like(self.allocated), where=offered > 0
        )


def advance_usage(
    state: UsageState, allocated: Floats, total: Floats, now: float, half_life: float | None
) -> UsageState:
    """Advance to ``now``, with these amounts since the last observation.

    ``allocated``: (resources, queues), ``total``: (resources,). A ``now`` before the last
    observation changes nothing, but that time runs from there once the clock was set back.
    """
    elapsed = now - state.observed_at
    if elapsed <= 0:
        return replace(state, observed_at=begun_at(state.observed_at, now))
    factor, span = _decay(elapsed, half_life)
    integral = state.allocated * factor + allocated * span
    return UsageState(now, integral, state.offered * factor + total * span)


def restore_usage(
    records: Mapping[str, UsageRecord],
    queues: Sequence[str],
    resources: Sequence[str],
    now: float,
    half_life: float | None,
) -> UsageState:
    """The state at ``now`` from the records in queue statuses; queues without one are new.

    Records of different age are decayed to ``now``; nothing counts as used or offered meanwhile.
    What the cluster offered is taken from the youngest record.
    """
    allocated = np.zeros((len(resources), len(queues)))
    for column, name in enumerate(queues):
        record = records.get(name)
        if record is not None:
            allocated[:, column] = _amounts_row(record.used, resources) * _decay_factor(
                record, now, half_life
            )
    youngest = max(records, key=lambda name: (records[name].at, name), default=None)
    offered = np.zeros(len(resources))
    if youngest is not None:
        record = records[youngest]
        offered = _amounts_row(record.capacity, resources) * _decay_factor(record, now, half_life)
    return UsageState(now, allocated, offered)


def usage_record(state: UsageState, column: int, resources: Sequence[str]) -> UsageRecord:
    """The record for the status of the queue in ``column``, without resources never used."""
    allocated = {name: float(state.allocated[row, column]) for row, name in enumerate(resources)}
    offered = {name: float(state.offered[row]) for row, name in enumerate(resources)}
    return UsageRecord(
        state.observed_at,
        {name: amount for name, amount in allocated.items() if amount > 0},
        {name: amount for name, amount in offered.items() if amount > 0},
    )


def _decay(elapsed: float, half_life: float | None) -> tuple[float, float]:
    """The factor on the past after ``elapsed`` seconds, and the decayed length of that time."""
    if half_life is None:
        return 1.0, elapsed
    rate = math.log(2) / half_life
    return math.exp(-rate * elapsed), -math.expm1(-rate * elapsed) / rate


def _decay_factor(record: UsageRecord, now: float, half_life: float | None) -> float:
    return _decay(max(now - record.at, 0.0), half_life)[0]


def _amounts_row(amounts: Mapping[str, float], resources: Sequence[str]) -> Floats:
    return np.array([amounts.get(name, 0.0) for name in resources], np.float64)


class _LastObservation(Struct, frozen=True):
    """What holds since the last cycle: (resources, queues) and (resources,)."""

    queues: tuple[str, ...]
    resources: tuple[str, ...]
    allocated: Floats
    total: Floats
    state: UsageState


@dataclass
class UsageHistory:
    """Past usage with a half-life in seconds."""

    half_life: float
    _last: _LastObservation | None = field(default=None, init=False)

    def advance(
        self,
        now: float,
        queues: Sequence[str],
        resources: Sequence[str],
        *,
        allocated: Floats,
        total: Floats,
        recorded: Mapping[str, UsageRecord],
    ) -> Floats:
        """(resources, queues) past usage as a fraction of the cluster; the amounts hold onwards.

        ``recorded``: records in statuses, which count for queues not seen before.
        """
        state = self._advanced_state(now, tuple(queues), tuple(resources))
        if state is None:
            records = {**recorded, **self.records(now)}
            known = {name: records[name] for name in queues if name in records}
            state = restore_usage(known, queues, resources, now, self.half_life)
        self._last = _LastObservation(
            tuple(queues), tuple(resources), allocated.copy(), total.copy(), state
        )
        return state.fractions

    def _advanced_state(
        self, now: float, queues: tuple[str, ...], resources: tuple[str, ...]
    ) -> UsageState | None:
        """The state at ``now``; None where queues or resources differ from the last cycle's."""
        last = self._last
        if last is None or (last.queues, last.resources) != (queues, resources):
            return None
        return advance_usage(last.state, last.allocated, last.total, now, self.half_life)

    def records(self, now: float) -> dict[str, UsageRecord]:
        """The history of every queue up to ``now``."""
        last = self._last
        if last is None:
            return {}
        state = advance_usage(last.state, last.allocated, last.total, now, self.half_life)
        return {
            name: replace(usage_record(state, column, last.resources), half_life=self.half_life)
            for column, name in enumerate(last.queues)
        }


UsageByQueue = Mapping[str, Mapping[str, float]]
"""Amounts by queue and resource, in quota units."""


@dataclass
class ExternalUsage:
    """The last measurement of another source; it is valid for ``stale_after`` seconds."""

    stale_after: float
    _amounts: UsageByQueue = field(default_factory=dict, init=False)
    _measured_at: float = field(default=-np.inf, init=False)

    def record(self, amounts: UsageByQueue, at: float) -> None:
        """Store ``amounts`` measured ``at`` (seconds since the epoch)."""
        self._amounts, self._measured_at = amounts, at

    def fractions(
        self, now: float, queues: Sequence[str], resources: Sequence[str], total: Floats
    ) -> Floats:
        """(resources, queues) past usage as a fraction of ``total`` (resources,)."""
        used = np.zeros((len(resources), len(queues)))
        if not -CLOCK_STEP <= now - self._measured_at <= self.stale_after:
            return used
        for column, queue in enumerate(queues):
            amounts = self._amounts.get(queue)
            if amounts:
                used[:, column] = [amounts.get(name, 0.0) for name in resources]
        offered = np.broadcast_to(total[:, None], used.shape)
        return np.divide(used, offered, out=np.zeros_like(used), where=offered > 0)
