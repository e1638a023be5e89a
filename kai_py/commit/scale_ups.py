"""Which gangs go on calling for nodes although the nodes that come do not help?

An autoscaler decides by its own simulation, which knows no gangs, topology levels or parts of
devices: it may add nodes for a gang again and again that the gang cannot use. A scale-up begins
with a new node and is settled some time later. A gang that has no more room than before after so
many of them stops calling: its stage becomes ``NodesDoNotHelp``, which autoscalers ignore, until it
finds more room or asks for something else.

Cost: the names of the nodes per cycle in which a gang calls.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from kai_py.plan.plan import SHORT_OF_CAPACITY, Plan, Stage, Unplaced


@dataclass(slots=True)
class _ScaleUpRequest:
    """Since when a gang calls, with how much room, and the scale-ups that did not help."""

    since: float
    needed_pods: int
    placeable_pods: int
    ineffective: int = 0


class ScaleUpTracker:
    """Remembers calls from plan to plan."""

    def __init__(
        self, *, settled_after: float, max_ineffective: int, wake: Callable[[float], None]
    ) -> None:
        """``settled_after`` in seconds; ``wake`` asks for a cycle after so many seconds."""
        self._settled_after = settled_after
        self._max_ineffective = max_ineffective
        self._wake = wake
        self._nodes: frozenset[str] | None = None
        self._began: float | None = None
        self._requests: dict[str, _ScaleUpRequest] = {}

    def suppress_ineffective(self, plan: Plan, nodes: Collection[str], now: float) -> Plan:
        """``plan``, with those silenced whom new nodes do not help; ``nodes``: names of all."""
        calling = [each for each in plan.unplaced if each.stage in SHORT_OF_CAPACITY]
        if not calling:
            self._requests, self._nodes, self._began = {}, None, None
            return plan
        settled = self._finished_scale_up(nodes, now)
        self._requests = {each.gang: self._track(each, settled, now) for each in calling}
        silent = {
            gang
            for gang, call in self._requests.items()
            if call.ineffective >= self._max_ineffective
        }
        if not silent:
            return plan
        heard = (
            _suppressed(e, self._max_ineffective) if e.gang in silent else e for e in plan.unplaced
        )
        return replace(plan, unplaced=tuple(heard))

    def _finished_scale_up(self, nodes: Collection[str], now: float) -> float | None:
        """When the scale-up began that is settled now, None if there is none."""
        before, self._nodes = self._nodes, frozenset(nodes)
        if before is not None and not self._nodes <= before and self._began is None:
            self._began = now
            self._wake(self._settled_after)
        began = self._began
        if began is None or now < began + self._settled_after:
            return None
        self._began = None
        return began

    def _track(self, unplaced: Unplaced, finished: float | None, now: float) -> _ScaleUpRequest:
        short = unplaced.shortage
        needed, found = (short.needed, short.found) if short is not None else (0, 0)
        call = self._requests.get(unplaced.gang)
        if call is None or call.needed_pods != needed or call.placeable_pods < found:
            return _ScaleUpRequest(now, needed, found)
        if finished is not None and call.since <= finished:
            call.ineffective += 1
        return call


def _suppressed(unplaced: Unplaced, limit: int) -> Unplaced:
    end = f"; {limit} scale-ups made no more room for it, so it calls for no more nodes."
    return replace(
        unplaced, stage=Stage.SCALE_UP_INEFFECTIVE, message=f"{unplaced.message.rstrip('.')}{end}"
    )
