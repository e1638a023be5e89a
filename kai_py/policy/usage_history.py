"""What every queue used in the past, kept from cycle to cycle while queues come and go.

The history of a queue begins with what its status remembers and goes on with what each cycle saw:
amounts hold from one cycle to the next. Source of the rule: ``policy.usage``.

How much did each queue use in the past?

Past usage is what a queue held over time, against what the cluster offered over time, both decayed
with a half-life h: an hour that lies h back counts half.

    usage = integral held(t) 2^-(now - t)/h dt  /  integral offered(t) 2^-(now - t)/h dt

Between two observations the held amount counts as constant, and both integrals are carried forward
in closed form; observing more often without a change gives the same result. Without a half-life
nothing decays: the plain average.

The state of a queue is a small record that its status carries, so history survives a restart.
Times and half-lives are in seconds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kai_py.snapshot.resources import Floats
from kai_py.snapshot.tables.queues import UsageRecord


@dataclass(frozen=True, slots=True)
class UsageState:
    """Decayed integrals up to ``at``: ``held`` (resources, queues), ``offered`` (resources,)."""

    observed_at: float
    allocated: Floats
    offered: Floats

    @property
    def fractions(self) -> Floats:
        """(resources, queues) past usage as a part of what was offered; 0 without history."""
        offered = np.broadcast_to(self.offered[:, None], self.allocated.shape)
        return np.divide(
            self.allocated, offered, out=np.zeros_like(self.allocated), where=offered > 0
        )


def advance_usage(
    state: UsageState, allocated: Floats, total: Floats, now: float, half_life: float | None
) -> UsageState:
    """Carry on to ``now``, with these amounts since the last observation.

    A ``now`` before the last observation (a clock set back) changes nothing.
    """
    elapsed = now - state.observed_at
    if elapsed <= 0:
        return state
    kept, span = _decay(elapsed, half_life)
    held = state.allocated * kept + allocated * span
    return UsageState(now, held, state.offered * kept + total * span)


def restore_usage(
    records: Mapping[str, UsageRecord],
    queues: Sequence[str],
    resources: Sequence[str],
    now: float,
    half_life: float | None,
) -> UsageState:
    """The state at ``now`` from what the queues' status holds; queues without a record are new.

    Records of different age are decayed to ``now``; nothing counts as used or offered meanwhile.
    What the cluster offered is taken from the youngest record.
    """
    held = np.zeros((len(resources), len(queues)))
    for column, name in enumerate(queues):
        record = records.get(name)
        if record is not None:
            held[:, column] = _amounts_row(record.held, resources) * _decay_factor(
                record, now, half_life
            )
    youngest = max(records, key=lambda name: (records[name].at, name), default=None)
    offered = np.zeros(len(resources))
    if youngest is not None:
        record = records[youngest]
        offered = _amounts_row(record.offered, resources) * _decay_factor(record, now, half_life)
    return UsageState(now, held, offered)


def usage_record(state: UsageState, column: int, resources: Sequence[str]) -> UsageRecord:
    """What the status of the queue in ``column`` shall hold; resources never used are left out."""
    held = {name: float(state.allocated[row, column]) for row, name in enumerate(resources)}
    offered = {name: float(state.offered[row]) for row, name in enumerate(resources)}
    return UsageRecord(
        state.observed_at,
        {name: amount for name, amount in held.items() if amount > 0},
        {name: amount for name, amount in offered.items() if amount > 0},
    )


def _decay(elapsed: float, half_life: float | None) -> tuple[float, float]:
    """What remains of the past after ``elapsed``, and the decayed length of that time itself."""
    if half_life is None:
        return 1.0, elapsed
    rate = math.log(2) / half_life
    return math.exp(-rate * elapsed), -math.expm1(-rate * elapsed) / rate


def _decay_factor(record: UsageRecord, now: float, half_life: float | None) -> float:
    return _decay(max(now - record.at, 0.0), half_life)[0]


def _amounts_row(amounts: Mapping[str, float], resources: Sequence[str]) -> Floats:
    return np.array([amounts.get(name, 0.0) for name in resources], np.float64)


@dataclass(frozen=True, slots=True)
class _LastObservation:
    """What holds since the last cycle: (resources, queues) and (resources,)."""

    queues: tuple[str, ...]
    resources: tuple[str, ...]
    allocated: Floats
    total: Floats
    state: UsageState


@dataclass
class UsageHistory:
    """Past use with a half-life in seconds."""

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
        """(resources, queues) past use as a part of the cluster; amounts given hold from now on.

        ``remembered``: records of statuses, which count for queues not seen before.
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
        """The state ``now`` where queues and resources are those of the last cycle."""
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
