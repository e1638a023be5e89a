"""Gangs that do not get ready in time, over cycles: since when, how often, and on which nodes.

    timeout   that of the queue, else of the nearest queue above that sets one; the workload's
              annotation counts if it is shorter, or if no queue sets one
    deadline  the timeout after the first cycle in which minMember pods are bound but not ready
    backoff   FIRST_BACKOFF after the first failed start, twice as long after each further one
    attempts  after as many failed starts as the queue allows the gang stays pending, until it is
              created again or its timeout is changed

A gang that is ready only for a moment has not started: a container that crashes again and again is
ready in between (``snapshot.tables.readiness``). A new leader takes over the records of the last
one (``StartupRecord``).

A node is avoided for ``AVOIDED_SECONDS`` after gangs of several tenants did not get ready on it,
each while a similar pod of the same gang was ready on another node, or because its kubelet refused
their pods. Tenants differ in queue and in namespace: no tenant alone can make others avoid a node,
and a gang whose pods fail everywhere blames no node. An avoided node is used last, but is not
excluded. Devices of claims are treated in the same way; an avoided device is not allocated.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
from msgspec import Struct, structs

from kai_py.api.node_departures import Departure, DepartureStage
from kai_py.api.times import backoff_seconds, begun_at, happened_within, lies_ahead
from kai_py.grouping.gang import is_satisfied
from kai_py.plan.observations import AvoidedDevice, AvoidedNode
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.snapshot.gangs import Gang, counts_by_leaf
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import QueueInfo, inherited
from kai_py.snapshot.tables.readiness import DeviceKey

DEFAULT_ATTEMPTS = 3
FIRST_BACKOFF = 60.0
MAX_BACKOFF = 3600.0
FORGET_SECONDS = 3600.0
"""Seconds after its last failed start until a gang that no longer exists is forgotten."""
SETTLED_SECONDS = 60.0
"""Seconds for which minMember pods must be ready before its start is over."""
AVOIDED_SECONDS = 1800.0
GANGS_NOT_READY = "GangsNotReady"
"""Why a device is avoided."""
MAX_BLAMES = 64
"""Failures of one node or device that are remembered."""


class ReadyRule(Struct, frozen=True):
    """``timeout`` in seconds, 0 for none; ``attempts``: how often a gang is started at most."""

    timeout: float = 0.0
    attempts: int = DEFAULT_ATTEMPTS


class Attempts(Struct, frozen=True):
    """Failed starts of a gang, which is not started again before ``until``.

    ``owner``: the uid of its owner; ``count``: how many failed; ``last_bound``: when the last pod
    was bound in the last of them; ``timeout``: of the workload itself, in seconds; ``failed``: when
    the last one failed. Times in seconds since the epoch.
    """

    owner: str
    count: int
    last_bound: float
    timeout: float
    failed: float
    until: float
    reason: Unschedulable


class Blame(Struct, frozen=True):
    """A gang did not get ready on a node; ``time``: seconds since the epoch."""

    time: float
    queue: str
    namespace: str
    gang: str


class FailedStart(Struct, frozen=True):
    """A gang that is evicted because it did not get ready.

    ``cause``: a clause for messages; ``nodes``, ``devices`` (each with its node): those to blame.
    """

    gang: Gang
    rule: ReadyRule
    cause: str
    nodes: tuple[str, ...]
    devices: tuple[tuple[DeviceKey, str], ...] = ()


class StartupRecord(Struct, frozen=True):
    """The part of ``Startups`` that a new leader has to know."""

    since: dict[str, tuple[float, float | None]] = msgspec.field(default_factory=dict)
    attempts: dict[str, Attempts] = msgspec.field(default_factory=dict)
    blames: dict[str, tuple[Blame, ...]] = msgspec.field(default_factory=dict)
    device_blames: dict[DeviceKey, tuple[Blame, ...]] = msgspec.field(default_factory=dict)


class MarkedNodes(Struct, frozen=True):
    """``marked``: the ``nodes`` with those ``avoided`` (by name) among the suspect ones."""

    nodes: NodeColumns
    avoided: Mapping[str, Departure]
    marked: NodeColumns


@dataclass
class Startups:
    """What is remembered from cycle to cycle.

    ``since``: by gang key, when it was first not ready, and since when it has been ready again, if
    it is. ``blames``: by node; ``device_blames``: by device. ``marked``: the nodes of the last
    cycle that avoided any, as searches compare nodes by identity.
    """

    since: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    attempts: dict[str, Attempts] = field(default_factory=dict)
    blames: dict[str, tuple[Blame, ...]] = field(default_factory=dict)
    device_blames: dict[DeviceKey, tuple[Blame, ...]] = field(default_factory=dict)
    marked: MarkedNodes | None = None

    def observe(self, snapshot: Snapshot, rules: Mapping[str, "ReadyRule"]) -> None:
        """Note which gangs are not ready at the start of a cycle. O(gangs with pods not ready)."""
        now, gangs = snapshot.now, snapshot.gangs
        limited = (
            gangs[key]
            for key in snapshot.starting
            if key in gangs and has_ready_limit(gangs[key], rules)
        )
        unready = {
            gang.key: None
            for gang in limited
            if gang.is_satisfied and not min_member_is_ready(snapshot, gang)
        }
        for key in unready:
            since, ready = self.since.get(key, (now, None))
            is_over = ready is not None and now - ready >= SETTLED_SECONDS
            self.since[key] = (now if is_over else begun_at(since, now), None)
        for key in [key for key in self.since if key not in unready]:
            since, ready = self.since[key]
            ready = None if ready is None else begun_at(ready, now)
            if key not in gangs or not gangs[key].is_satisfied:
                del self.since[key]
            elif ready is None:
                self.since[key] = (since, now)
            elif now - ready >= SETTLED_SECONDS:
                del self.since[key]
                self.attempts.pop(key, None)
            else:
                self.since[key] = (since, ready)
        self._blame_refusing_nodes(snapshot)
        self._forget(snapshot)

    def _blame_refusing_nodes(self, snapshot: Snapshot) -> None:
        """Blame nodes for refused pods, so that those that refuse several tenants are avoided."""
        gangs = [snapshot.gangs[key] for key in snapshot.refused if key in snapshot.gangs]
        for gang in gangs:
            for each in gang.refusals:
                blame = Blame(each.at, gang.queue, gang.owner.namespace, gang.key)
                known = self.blames.get(each.node, ())
                if blame not in known:
                    self.blames[each.node] = (*known, blame)[-MAX_BLAMES:]

    def _forget(self, snapshot: Snapshot) -> None:
        now = snapshot.now
        for key, known in list(self.attempts.items()):
            gang = snapshot.gangs.get(key)
            if gang is None:
                if not happened_within(FORGET_SECONDS, known.failed, now):
                    del self.attempts[key]
            elif gang.owner.uid != known.owner or _own_timeout(gang) != known.timeout:
                del self.attempts[key]
        nodes = snapshot.nodes.positions
        self.blames = {
            node: kept
            for node, blames in self.blames.items()
            if node in nodes and (kept := _recent(blames, now))
        }
        self.device_blames = {
            device: kept
            for device, blames in self.device_blames.items()
            if (kept := _recent(blames, now))
        }

    def kept(self) -> StartupRecord:
        """A copy, for a later leader. O(gangs that have failed)."""
        return StartupRecord(
            dict(self.since), dict(self.attempts), dict(self.blames), dict(self.device_blames)
        )

    def recall(self, record: StartupRecord) -> None:
        """Take over what an earlier leader knew, before the first cycle."""
        self.since = record.since | self.since
        self.attempts = record.attempts | self.attempts
        self.blames = record.blames | self.blames
        self.device_blames = record.device_blames | self.device_blames

    def devices_to_avoid(self, now: float) -> Iterator[tuple[DeviceKey, float]]:
        """The devices to avoid, and for how many seconds from ``now``."""
        for device, blames in self.device_blames.items():
            if _blame_text(recent := _recent(blames, now), "with it"):
                yield device, recent[-1].time + AVOIDED_SECONDS - now

    def held(self, snapshot: Snapshot) -> dict[str, Unschedulable]:
        """By key, the gangs that are not started yet after failed starts; none with bound pods."""
        found = {}
        for key, known in self.attempts.items():
            gang = snapshot.gangs.get(key)
            is_over = known.until < math.inf and not lies_ahead(
                known.until, snapshot.now, MAX_BACKOFF
            )
            if gang is not None and not gang.bound and not is_over:
                found[key] = known.reason
        return found

    def record(self, failed: Iterable[FailedStart], now: float) -> tuple[AvoidedDevice, ...]:
        """Record failed starts; returns the devices to avoid from now on."""
        avoided: list[AvoidedDevice] = []
        for each in failed:
            gang, known = each.gang, self.attempts.get(each.gang.key)
            if known is not None and known.last_bound == gang.last_bound:
                continue  # The eviction was refused, and is tried again.
            count = 1 + (known.count if known is not None else 0)
            seconds = backoff_seconds(count, FIRST_BACKOFF, MAX_BACKOFF)
            is_over = count >= each.rule.attempts
            self.attempts[gang.key] = Attempts(
                gang.owner.uid,
                count,
                gang.last_bound,
                _own_timeout(gang),
                now,
                math.inf if is_over else now + seconds,
                _held_back(each, count, None if is_over else seconds),
            )
            self.since.pop(gang.key, None)
            blame = Blame(now, gang.queue, gang.owner.namespace, gang.key)
            for node in each.nodes:
                self.blames[node] = (*self.blames.get(node, ()), blame)[-MAX_BLAMES:]
            for device, node in each.devices:
                blames = (*self.device_blames.get(device, ()), blame)[-MAX_BLAMES:]
                self.device_blames[device] = blames
                if text := _blame_text(blames, "with it"):
                    avoided.append(AvoidedDevice(device, node, AVOIDED_SECONDS, text))
        return tuple(avoided)

    def avoided(self) -> dict[str, Departure]:
        """By name, nodes on which gangs of several tenants did not get ready, as suspect ones."""
        found = {}
        for node, blames in self.blames.items():
            if signal := _blame_text(blames, "on it"):
                found[node] = Departure(DepartureStage.SUSPECT, signal)
        return found

    def avoided_nodes(self) -> tuple[AvoidedNode, ...]:
        """The nodes to avoid, each with the reason."""
        return tuple(
            AvoidedNode(node, f"{each.signal}; other nodes come first for a while")
            for node, each in sorted(self.avoided().items())
        )

    def wake_at(self, snapshot: Snapshot, rules: Mapping[str, ReadyRule]) -> list[float]:
        """Future times at which a gang is to be evicted or started again, or a blame ends."""
        held = [self.attempts[key].until for key in self.held(snapshot)]
        due = []
        for key, (since, ready) in self.since.items():
            gang = snapshot.gangs.get(key)  # None where it is left out of the cycle
            if ready is not None:
                due.append(ready + SETTLED_SECONDS)
            elif gang is not None and (timeout := ready_rule(gang, rules).timeout):
                due.append(since + timeout)
        ends = [blames[0].time + AVOIDED_SECONDS for blames in self.blames.values()]
        return [at for at in (*held, *due, *ends) if snapshot.now < at < math.inf]


def with_avoided_nodes(snapshot: Snapshot, startups: Startups) -> Snapshot:
    """``snapshot`` with the nodes to avoid among the suspect ones."""
    avoided = startups.avoided()
    if not avoided:
        startups.marked = None
        return snapshot
    known = startups.marked
    if known is None or known.nodes is not snapshot.nodes or known.avoided != avoided:
        departures = {**avoided, **snapshot.nodes.departures}
        marked = replace(snapshot.nodes, departures=departures)
        known = startups.marked = MarkedNodes(snapshot.nodes, avoided, marked)
    return structs.replace(snapshot, nodes=known.marked)


def min_member_is_ready(snapshot: Snapshot, gang: Gang) -> bool:
    """Whether enough of the gang's bound pods are ready."""
    starting = snapshot.starting.get(gang.key, {})
    ready = [member for member in gang.bound if member.pod.uid not in starting]
    return is_satisfied(gang.tree, counts_by_leaf(ready))


def ready_rules(queues: Iterable[QueueInfo]) -> dict[str, ReadyRule]:
    """The rule of each queue by name; empty where no queue sets a timeout."""
    specs = tuple(queues)
    timeouts = inherited(specs, lambda spec: spec.ready_timeout)
    if not timeouts:
        return {}
    attempts = inherited(specs, lambda spec: spec.ready_attempts)
    names = [spec.name for spec in specs]
    return {
        name: ReadyRule(timeouts.get(name, 0.0), attempts.get(name, DEFAULT_ATTEMPTS))
        for name in names
    }


NO_RULE = ReadyRule()


def ready_rule(gang: Gang, rules: Mapping[str, ReadyRule]) -> ReadyRule:
    """The rule of a gang: a workload can only shorten what its queue sets."""
    rule = rules.get(gang.queue, NO_RULE)
    own = _own_timeout(gang)
    if own and (not rule.timeout or own < rule.timeout):
        return ReadyRule(own, rule.attempts)
    return rule


def has_ready_limit(gang: Gang, rules: Mapping[str, ReadyRule]) -> bool:
    """Whether the rule of a gang sets a timeout."""
    return bool(_own_timeout(gang) or rules.get(gang.queue, NO_RULE).timeout)


def _recent(blames: Iterable[Blame], now: float) -> tuple[Blame, ...]:
    return tuple(each for each in blames if happened_within(AVOIDED_SECONDS, each.time, now))


def _blame_text(blames: Collection[Blame], where: str) -> str:
    """How many gangs blame a node or device; "" unless several tenants do."""
    queues = {each.queue for each in blames}
    namespaces = {each.namespace for each in blames}
    if len(queues) < 2 or len(namespaces) < 2:
        return ""
    gangs = {each.gang for each in blames}
    return f"{len(gangs)} gangs of {len(queues)} queues did not get ready {where}"


def _own_timeout(gang: Gang) -> float:
    return gang.settings.ready_timeout or 0.0


def _held_back(failed: FailedStart, count: int, backoff: float | None) -> Unschedulable:
    tries = "once" if count == 1 else f"{count} times"
    message = (
        f"it was started {tries} and was not ready within {failed.rule.timeout:g} s: {failed.cause}"
    )
    if backoff is None:
        message += (
            "; it stays pending until it is created again, or its annotation "
            "scheduling.kai.io/ready-timeout changes."
        )
    else:
        message += f"; it is started again {backoff:g} s after its eviction."
    return Unschedulable(Stage.NOT_READY, message)
