"""Cooperation with autoscalers: nodes that they must keep, and gangs that new nodes do not help.

``NodeProtector`` keeps autoscalers from removing nodes on which capacity is promised to pods. A
promise is a nomination, capacity held for pods that a framework creates later, or a reservation.
Such a node may look empty, and autoscalers do not know why. While the promise lasts, the node has
the annotations of ``PROTECTING_ANNOTATIONS``; another annotation names those that were not there
before, so that a later leader removes these, and no others, once the promise has ended for a while.
Cost: the promised nodes and those that are annotated, per pass; all nodes once.

``ScaleUpTracker`` stops the requests of gangs for nodes that they cannot use. An autoscaler decides
by its own simulation, which knows no gangs, topology levels or parts of devices: it may repeatedly
add such nodes. A scale-up begins with a new node and is settled some time later. If several in a
row let no more pods of a gang fit, the gang gets the stage ``ScaleUpIneffective``, which
autoscalers ignore, until more of its pods fit or its requests change. Cost: the names of the nodes
per cycle in which a gang requests nodes.

Sources: disruption controls of Karpenter, FAQ of Cluster Autoscaler.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, structs

from kai_py.api.autoscaling import PROMISED_KEY, PROTECTING_ANNOTATIONS
from kai_py.api.records.node import Node
from kai_py.commit.retry import ObjectBackoff
from kai_py.plan.plan import SHORT_OF_CAPACITY, Plan, Stage, Unplaced
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, NotFound, RoleMissing
from kai_py.watch.kinds import NODES
from kai_py.watch.resource import Key

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two passes."""
LINGER = 30.0
"""Seconds for which a node stays protected after a promise, as promises are renewed."""
DENIED_PAUSE = 300.0
"""Seconds between two passes while no role of ours allows writing nodes."""


class NodeProtector:
    """Annotates the nodes of the last plan's promises, outside the scheduling cycle."""

    def __init__(
        self, client: Client, nodes: Callable[[], Mapping[Key, Node]], backoff: ObjectBackoff
    ) -> None:
        """``backoff``: of nodes that could not be written."""
        self._client = client
        self._nodes = nodes
        self._backoff = backoff
        self._promised: frozenset[str] = frozenset()
        self._protected_until: dict[str, float] = {}
        self._is_started = False

    def update(self, promised: Iterable[str]) -> None:
        """Protect these nodes from now on, and no others after a while."""
        self._promised = frozenset(promised)

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            denied = await self.run_once(loop.time())
            await asyncio.sleep(DENIED_PAUSE if denied else PAUSE)

    async def run_once(self, now: float) -> bool:
        """Bring the annotations up to date at loop time ``now``; whether our role is missing."""
        nodes = self._nodes()
        if not self._is_started and nodes:
            self._is_started = True
            marked = (n for (_, n), each in nodes.items() if PROMISED_KEY in _annotations(each))
            self._protected_until = dict.fromkeys(marked, now + LINGER)
        for name in self._promised:
            self._protected_until[name] = now + LINGER
        for name, until in sorted(self._protected_until.items()):
            node = nodes.get(("", name))
            if node is None:
                del self._protected_until[name]
                self._backoff.reset(name)
                continue
            change = _protection(node) if until > now else _release(node)
            is_due = change and self._backoff.is_ready(name, now)
            if is_due and await self._denied(name, change, now):
                return True
            if until <= now and PROMISED_KEY not in _annotations(node):
                del self._protected_until[name]
        return False

    async def _denied(self, name: str, annotations: Mapping[str, str | None], now: float) -> bool:
        """Write the annotations; whether no role of ours allows that."""
        try:
            await self._client.patch(
                NODES.at(), name, {"metadata": {"annotations": dict(annotations)}}
            )
        except NotFound:
            return False
        except ApiError as error:
            self._backoff.record_failure(name, now, at_least=error.retry_after)
            log.warning("cannot annotate node %s, which autoscalers may remove: %s", name, error)
            return isinstance(error, RoleMissing)
        self._backoff.reset(name)
        return False


def _annotations(node: Node) -> Mapping[str, str]:
    return node.metadata.annotations


def _protection(node: Node) -> dict[str, str | None]:
    """The annotations that a promised node lacks."""
    annotations = _annotations(node)
    if PROMISED_KEY in annotations:
        return {}
    missing = [key for key in PROTECTING_ANNOTATIONS if key not in annotations]
    return {**dict.fromkeys(missing, "true"), PROMISED_KEY: ",".join(missing)}


def _release(node: Node) -> dict[str, str | None]:
    """The removal of the annotations that were written for a promise."""
    written = _annotations(node).get(PROMISED_KEY)
    if written is None:
        return {}
    ours = [key for key in written.split(",") if key in PROTECTING_ANNOTATIONS]
    return dict.fromkeys((*ours, PROMISED_KEY))


class _ScaleUpRequest(Struct):
    """Since when a gang requests nodes, how many of its pods fit, and its ineffective scale-ups."""

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
        return structs.replace(plan, unplaced=tuple(unplaced))

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
