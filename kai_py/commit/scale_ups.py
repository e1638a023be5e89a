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

from kai_py.plan.plan import SHORT_OF_ROOM, Plan, Stage, Unplaced


@dataclass(slots=True)
class _Call:
    """Since when a gang calls, with how much room, and the scale-ups that did not help."""

    since: float
    needed: int
    found: int
    futile: int = 0


class ScaleUps:
    """Remembers calls from plan to plan."""

    def __init__(self, *, settled_after: float, most: int, wake: Callable[[float], None]) -> None:
        """``settled_after`` in seconds; ``wake`` asks for a cycle after so many seconds."""
        self._settled_after = settled_after
        self._most = most
        self._wake = wake
        self._nodes: frozenset[str] | None = None
        self._began: float | None = None
        self._calls: dict[str, _Call] = {}

    def heeded(self, plan: Plan, nodes: Collection[str], now: float) -> Plan:
        """``plan``, with those silenced whom new nodes do not help; ``nodes``: names of all."""
        calling = [each for each in plan.unplaced if each.stage in SHORT_OF_ROOM]
        if not calling:
            self._calls, self._nodes, self._began = {}, None, None
            return plan
        settled = self._settled(nodes, now)
        self._calls = {each.gang: self._call(each, settled, now) for each in calling}
        silent = {gang for gang, call in self._calls.items() if call.futile >= self._most}
        if not silent:
            return plan
        heard = (_silenced(e, self._most) if e.gang in silent else e for e in plan.unplaced)
        return replace(plan, unplaced=tuple(heard))

    def _settled(self, nodes: Collection[str], now: float) -> float | None:
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

    def _call(self, unplaced: Unplaced, settled: float | None, now: float) -> _Call:
        short = unplaced.shortage
        needed, found = (short.needed, short.found) if short is not None else (0, 0)
        call = self._calls.get(unplaced.gang)
        if call is None or call.needed != needed or call.found < found:
            return _Call(now, needed, found)
        if settled is not None and call.since <= settled:
            call.futile += 1
        return call


def _silenced(unplaced: Unplaced, most: int) -> Unplaced:
    end = f"; {most} scale-ups made no more room for it, so it calls for no more nodes."
    return replace(unplaced, stage=Stage.FUTILE, message=f"{unplaced.message.rstrip('.')}{end}")
