"""How much did each queue use in the past?

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
from dataclasses import dataclass

import numpy as np

from kai_py.snapshot.queue_specs import UsageRecord
from kai_py.snapshot.resources import Floats


@dataclass(frozen=True, slots=True)
class UsageState:
    """Decayed integrals up to ``at``: ``held`` (resources, queues), ``offered`` (resources,)."""

    at: float
    held: Floats
    offered: Floats

    @property
    def fractions(self) -> Floats:
        """(resources, queues) past usage as a part of what was offered; 0 without history."""
        offered = np.broadcast_to(self.offered[:, None], self.held.shape)
        return np.divide(self.held, offered, out=np.zeros_like(self.held), where=offered > 0)


def observe(
    state: UsageState, allocated: Floats, total: Floats, now: float, half_life: float | None
) -> UsageState:
    """Carry on to ``now``, with these amounts since the last observation.

    A ``now`` before the last observation (a clock set back) changes nothing.
    """
    elapsed = now - state.at
    if elapsed <= 0:
        return state
    kept, span = _decay(elapsed, half_life)
    held = state.held * kept + allocated * span
    return UsageState(now, held, state.offered * kept + total * span)


def restore(
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
            held[:, column] = _row(record.held, resources) * _age(record, now, half_life)
    youngest = max(records, key=lambda name: (records[name].at, name), default=None)
    offered = np.zeros(len(resources))
    if youngest is not None:
        record = records[youngest]
        offered = _row(record.offered, resources) * _age(record, now, half_life)
    return UsageState(now, held, offered)


def record(state: UsageState, column: int, resources: Sequence[str]) -> UsageRecord:
    """What the status of the queue in ``column`` shall hold; resources never used are left out."""
    held = {name: float(state.held[row, column]) for row, name in enumerate(resources)}
    offered = {name: float(state.offered[row]) for row, name in enumerate(resources)}
    return UsageRecord(
        state.at,
        {name: amount for name, amount in held.items() if amount > 0},
        {name: amount for name, amount in offered.items() if amount > 0},
    )


def _decay(elapsed: float, half_life: float | None) -> tuple[float, float]:
    """What remains of the past after ``elapsed``, and the decayed length of that time itself."""
    if half_life is None:
        return 1.0, elapsed
    rate = math.log(2) / half_life
    return math.exp(-rate * elapsed), -math.expm1(-rate * elapsed) / rate


def _age(record: UsageRecord, now: float, half_life: float | None) -> float:
    return _decay(max(now - record.at, 0.0), half_life)[0]


def _row(amounts: Mapping[str, float], resources: Sequence[str]) -> Floats:
    return np.array([amounts.get(name, 0.0) for name in resources], np.float64)
