"""What every queue used in the past, kept from cycle to cycle while queues come and go.

The history of a queue begins with what its status remembers and goes on with what each cycle saw:
amounts hold from one cycle to the next. Source of the rule: ``policy.usage``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kai_py.policy.usage import UsageState, observe, record, restore
from kai_py.snapshot.queue_specs import UsageRecord
from kai_py.snapshot.resources import Floats


@dataclass(frozen=True, slots=True)
class _Held:
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
    _last: _Held | None = field(default=None, init=False)

    def advance(
        self,
        now: float,
        queues: Sequence[str],
        resources: Sequence[str],
        *,
        allocated: Floats,
        total: Floats,
        remembered: Mapping[str, UsageRecord],
    ) -> Floats:
        """(resources, queues) past use as a part of the cluster; amounts given hold from now on.

        ``remembered``: records of statuses, which count for queues not seen before.
        """
        state = self._carried_on(now, tuple(queues), tuple(resources))
        if state is None:
            records = {**remembered, **self.records(now)}
            known = {name: records[name] for name in queues if name in records}
            state = restore(known, queues, resources, now, self.half_life)
        self._last = _Held(tuple(queues), tuple(resources), allocated.copy(), total.copy(), state)
        return state.fractions

    def _carried_on(
        self, now: float, queues: tuple[str, ...], resources: tuple[str, ...]
    ) -> UsageState | None:
        """The state ``now`` where queues and resources are those of the last cycle."""
        last = self._last
        if last is None or (last.queues, last.resources) != (queues, resources):
            return None
        return observe(last.state, last.allocated, last.total, now, self.half_life)

    def records(self, now: float) -> dict[str, UsageRecord]:
        """The history of every queue up to ``now``."""
        last = self._last
        if last is None:
            return {}
        state = observe(last.state, last.allocated, last.total, now, self.half_life)
        return {
            name: replace(record(state, column, last.resources), half_life=self.half_life)
            for column, name in enumerate(last.queues)
        }
