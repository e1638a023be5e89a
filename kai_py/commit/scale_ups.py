"""Detects scale-ups that do not help a gang, and stops its requests for nodes.

An autoscaler decides by its own simulation, which knows no gangs, topology levels or parts of
devices: it may repeatedly add nodes that the gang cannot use. A scale-up begins with a new node and
is settled some time later. A gang for which so many of them in a row made no more pods fit gets the
stage ``ScaleUpIneffective``, which autoscalers ignore, until more of its pods fit or its requests
change.

Cost: the names of the nodes per cycle in which a gang requests nodes.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from msgspec import structs

from kai_py.plan.plan import SHORT_OF_CAPACITY, Plan, Stage, Unplaced


@dataclass(slots=True)
class _ScaleUpRequest:
    """Since when a gang requests nodes, how many of its pods fit, and the ineffective scale-ups."""

    since: float
    needed_pods: int
    placeable_pods: int
    ineffective: int = 0


class ScaleUpTracker:
    """Scale-up requests of gangs, kept from plan to plan."""

    def __init__(
        self, *, settled_after: float, max_ineffective: int, wake: Callable[[float], None]
    ) -> None:
        """``settled_after`` in seconds; ``wake`` requests a cycle in that many seconds."""
        self._settled_after = settled_after
        self._max_ineffective = max_ineffective
        self._wake = wake
        self._nodes: frozenset[str] | None = None
        self._began: float | None = None
        self._requests: dict[str, _ScaleUpRequest] = {}

    def suppress_ineffective(self, plan: Plan, nodes: Collection[str], now: float) -> Plan:
        """``plan`` without requests that new nodes do not help; ``nodes``: all names.

        ``now``: seconds of a clock that is never set.
        """
        requesting = [each for each in plan.unplaced if each.stage in SHORT_OF_CAPACITY]
        if not requesting:
            self._requests, self._nodes, self._began = {}, None, None
            return plan
        finished = self._finished_scale_up(nodes, now)
        self._requests = {each.gang: self._track(each, finished, now) for each in requesting}
        suppressed = {
            gang
            for gang, request in self._requests.items()
            if request.ineffective >= self._max_ineffective
        }
        if not suppressed:
            return plan
        unplaced = (
            _suppressed(e, self._max_ineffective) if e.gang in suppressed else e
            for e in plan.unplaced
        )
        return replace(plan, unplaced=tuple(unplaced))

    def _finished_scale_up(self, nodes: Collection[str], now: float) -> float | None:
        """Start of the scale-up that is settled now; None if there is none."""
        before, self._nodes = self._nodes, frozenset(nodes)
        if before is not None and not self._nodes <= before and self._began is None:
            self._began = now
            self._wake(self._settled_after)
        started = self._began
        if started is None or now < started + self._settled_after:
            return None
        self._began = None
        return started

    def _track(self, unplaced: Unplaced, finished: float | None, now: float) -> _ScaleUpRequest:
        shortage = unplaced.shortage
        needed, found = (shortage.needed, shortage.found) if shortage is not None else (0, 0)
        request = self._requests.get(unplaced.gang)
        if request is None or request.needed_pods != needed or request.placeable_pods < found:
            return _ScaleUpRequest(now, needed, found)
        if finished is not None and request.since <= finished:
            request.ineffective += 1
        return request


def _suppressed(unplaced: Unplaced, limit: int) -> Unplaced:
    suffix = f"; {limit} scale-ups added no usable capacity for it, so it requests no more nodes."
    return structs.replace(
        unplaced,
        stage=Stage.SCALE_UP_INEFFECTIVE,
        message=f"{unplaced.message.rstrip('.')}{suffix}",
    )
