"""Simulated effect of changes: the settled cluster with and without them, compared.

Both outcomes are simulated with the scheduler's own planner, so that the comparison shows the
effect of the changes and not what would have happened anyway.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from kai_py.config import Configuration
from kai_py.embedded.kubelet import PodTiming
from kai_py.grouping.gang import is_satisfied
from kai_py.observe.suggestion import QueueChange
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import CAPACITY_MAY_HELP, Eviction, Plan, Stage
from kai_py.simulate.change_texts import in_order
from kai_py.simulate.changes import AddNodes, ClusterChange
from kai_py.simulate.cluster import SimulatedCluster, SimulatedRun
from kai_py.simulate.files.objects import Document
from kai_py.simulate.fork import run_in_fork, started_in_fork
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import PodState
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import QueueProblem

T = TypeVar("T")

SETTLE_SECONDS = 600.0
"""Simulated time after which a cluster counts as settled, enough for pods to be replaced."""

MAX_ADDED_NODES = 4096
LEAST_ADDED_NODES = 16
"""Tried however few pods wait: a suspended Job may count for fewer pods than it will have."""

NO_PODS: frozenset[str] = frozenset()
SEED = 1
STARTS_LATER = PodTiming(start=1.0, stop=0.0)
"""Pods on nodes that have not started are first seen as they were read."""


class PlacedGang(Struct, frozen=True):
    """A gang and the nodes of its pods."""

    gang: str
    queue: str
    nodes: tuple[str, ...]
    """One entry per pod."""


class WaitingGang(Struct, frozen=True):
    """A pending gang, and why it waits."""

    gang: str
    queue: str
    stage: Stage
    pods: int
    message: str


class Comparison(Struct, frozen=True):
    """The effect of changes.

    ``starts``: gangs of which more pods run; ``stops``: gangs that run only without them;
    ``restarts``: gangs that run with both and lose pods other than ``victims``, which are evicted
    because of them; ``pending``: the gangs pending with them; ``problems``: faults of queues that
    they do not have without them.
    """

    starts: tuple[PlacedGang, ...] = ()
    stops: tuple[PlacedGang, ...] = ()
    restarts: tuple[PlacedGang, ...] = ()
    victims: tuple[Eviction, ...] = ()
    pending: tuple[WaitingGang, ...] = ()
    queues: tuple[QueueChange, ...] = field(default=())
    problems: tuple[QueueProblem, ...] = ()


class NodesNeeded(Struct, frozen=True):
    """Number of nodes like ``like`` it takes until no gang waits for capacity.

    None: not even ``most`` suffice, the most that were tried.
    """

    like: str
    nodes: int | None
    most: int = MAX_ADDED_NODES


def what_if(
    documents: Sequence[Document],
    changes: Sequence[ClusterChange],
    configuration: Configuration,
    *,
    now: float,
) -> Comparison:
    """Compare the settled cluster with and without ``changes``; raises ChangeError.

    Both are simulated at once, in a process each.
    """
    cluster = LoadedCluster(documents, configuration, now)
    with cluster.settling() as baseline:
        changed = cluster.settled(*in_order(changes), last=True)
        return compare(baseline(), changed)


def nodes_needed(
    documents: Sequence[Document],
    changes: Sequence[ClusterChange],
    configuration: Configuration,
    *,
    like: str,
    now: float,
    pattern: Sequence[Document] = (),
) -> NodesNeeded:
    """The least number of nodes like ``like`` with which no gang waits for capacity.

    ``pattern``: manifests of such a node, if there is none yet. Gangs that wait for something no
    node can provide (a missing queue, a gate, members) don't count. More than two nodes for each
    pending pod are not tried. O(log n) simulations.
    """
    cluster = LoadedCluster(documents, configuration, now)

    def waiting(count: int) -> list[WaitingGang]:
        outcome = cluster.settled(*in_order((*changes, AddNodes(like, count, pattern))))
        return [each for each in outcome.waiting if each.stage in CAPACITY_MAY_HELP]

    pods = sum(each.pods for each in waiting(0))
    if not pods:
        return NodesNeeded(like, 0)
    most = min(max(2 * pods, LEAST_ADDED_NODES), MAX_ADDED_NODES)
    # What waits now waits with no node, too: the search does not ask again.
    nodes = smallest_sufficient(lambda count: count > 0 and not waiting(count), most)
    return NodesNeeded(like, nodes, most)


def smallest_sufficient(suffices: Callable[[int], bool], limit: int) -> int | None:
    """The least number up to ``limit`` that suffices, by doubling, then bisection; else None."""
    if suffices(0):
        return 0
    high = 1
    while not suffices(high):
        if high >= limit:
            return None
        high = min(2 * high, limit)
    # high // 2 did not suffice, or high is 1.
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle + 1, high)
    return high


class SettledCluster(Struct, frozen=True):
    """A cluster in which nothing changes any more."""

    running: Mapping[str, PlacedGang]
    kept: Mapping[str, frozenset[str]]
    """UIDs of the pods of each gang that were bound before, and still are."""
    waiting: tuple[WaitingGang, ...]
    evictions: tuple[Eviction, ...]
    queues: Mapping[str, QueueShare]
    starts: Mapping[str, float] = msgspec.field(default_factory=dict)
    """When the first pods of each gang were placed, seconds since the epoch."""

    def stage_of(self, gang: str) -> Stage | None:
        """The stage that stops a gang; None if it is not pending."""
        return next((each.stage for each in self.waiting if each.gang == gang), None)


def compare(baseline: SettledCluster, changed: SettledCluster) -> Comparison:
    """The differences of ``changed`` from ``baseline``."""
    running = baseline.running
    evicted = {each.pod for each in baseline.evictions}
    victims = tuple(each for each in changed.evictions if each.pod not in evicted)
    losing = {each.gang for each in victims}
    return Comparison(
        starts=tuple(
            placed
            for gang, placed in sorted(changed.running.items())
            if len(placed.nodes) > len(running[gang].nodes if gang in running else ())
        ),
        stops=tuple(
            placed for gang, placed in sorted(running.items()) if gang not in changed.running
        ),
        restarts=tuple(
            placed
            for gang, placed in sorted(changed.running.items())
            if gang not in losing
            and gang in running
            and baseline.kept.get(gang, NO_PODS) - changed.kept.get(gang, NO_PODS)
        ),
        victims=victims,
        pending=changed.waiting,
        queues=tuple(_queue_changes(baseline.queues, changed.queues)),
        problems=tuple(
            problem
            for name, share in sorted(changed.queues.items())
            for problem in share.problems
            if name not in baseline.queues or problem not in baseline.queues[name].problems
        ),
    )


def _queue_changes(
    baseline: Mapping[str, QueueShare], changed: Mapping[str, QueueShare]
) -> list[QueueChange]:
    changes = []
    for name in sorted({*baseline, *changed}):
        pair = (baseline.get(name), changed.get(name))
        change = QueueChange(
            name,
            fair_share=(_gpus(pair[0], "fair_share"), _gpus(pair[1], "fair_share")),
            allocated=(_gpus(pair[0], "allocated"), _gpus(pair[1], "allocated")),
        )
        if len({*change.fair_share}) > 1 or len({*change.allocated}) > 1:
            changes.append(change)
    return changes


def _gpus(share: QueueShare | None, view: str) -> float:
    return float(getattr(share, view).get(GPU, 0.0)) if share is not None else 0.0


class LoadedCluster:
    """A cluster as of ``now``, loaded once; each query runs in a forked copy of it.

    Only the ``last`` one runs in the cluster itself, which saves the copy and uses the cluster up.
    """

    def __init__(
        self, documents: Sequence[Document], configuration: Configuration, now: float
    ) -> None:
        """Load the documents; ``now`` in seconds since the epoch."""
        self.documents, self._configuration, self._now = documents, configuration, now
        self._cluster = SimulatedCluster(configuration, start=now, seed=SEED, timing=STARTS_LATER)
        self._cluster.load(documents)
        self.snapshot = self._cluster.first_snapshot()

    @property
    def node_groups(self) -> tuple[str, ...]:
        """Names of the node groups of the configuration."""
        return tuple(self._cluster.node_groups)

    def settled(self, *changes: ClusterChange, last: bool = False) -> "SettledCluster":
        """The outcome when nothing changes any more after ``changes``; raises ChangeError."""
        return self._answer(lambda: self._settled(changes), last=last)

    def settling(self) -> AbstractContextManager[Callable[[], "SettledCluster"]]:
        """The outcome without changes, which is simulated beside this process from now on."""
        return started_in_fork(lambda: self._settled(()))

    def after(self, *changes: ClusterChange) -> "LoadedCluster":
        """The cluster right after ``changes``, before anything is scheduled; raises ChangeError."""
        documents = run_in_fork(lambda: self._changed(changes))
        return LoadedCluster(documents, self._configuration, self._now)

    def plan(self, *, last: bool = False) -> Plan:
        """The plan of one cycle."""
        return self._answer(lambda: self._cluster.planner.decide(self.snapshot), last=last)

    def _answer(self, query: Callable[[], T], *, last: bool) -> T:
        return query() if last else run_in_fork(query)

    def _changed(self, changes: Sequence[ClusterChange]) -> list[Document]:
        for change in changes:
            change.apply(self._cluster)
        return self._cluster.documents()

    def _settled(self, changes: Sequence[ClusterChange]) -> "SettledCluster":
        for change in changes:
            change.apply(self._cluster)
        run = self._cluster.settle(SETTLE_SECONDS)
        return settled_cluster(self._cluster, run, self.snapshot)


def settled_cluster(
    cluster: SimulatedCluster, run: SimulatedRun, before: Snapshot
) -> SettledCluster:
    """The outcome of a simulated run, and what is left of the pods that were bound before."""
    bound = {member.pod.uid for gang in before.gangs.values() for member in gang.bound}
    gangs = cluster.snapshot().gangs
    waiting = tuple(
        WaitingGang(each.gang, each.queue, each.stage, len(each.pods), each.message)
        for each in run.last_plan.unplaced
    )
    running = {
        key: PlacedGang(key, gang.queue, tuple(member.node for member in gang.bound))
        for key, gang in gangs.items()
        if gang.bound and is_satisfied(gang.tree, gang.counts(PodState.BOUND))
    }
    kept = {
        key: frozenset(member.pod.uid for member in gangs[key].bound) & bound for key in running
    }
    return SettledCluster(
        running=running,
        kept=kept,
        waiting=waiting,
        evictions=tuple(run.evictions),
        queues={share.queue: share for share in run.last_plan.queues},
        starts=run.starts,
    )
