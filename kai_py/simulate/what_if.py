"""What would a change do? The same cluster with and without it, both left to settle, compared.

Both courses are simulated with the scheduler's own planner, so the comparison shows what the
change does and not what would have happened anyway.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kai_py.config import Configuration
from kai_py.grouping.gang import satisfied
from kai_py.observe.suggestion import QueueChange
from kai_py.plan.plan import SHORT_OF_ROOM, Eviction, Plan, QueueShare, Stage
from kai_py.simulate.changes import AddNodes, Change
from kai_py.simulate.cluster import Course, SimulatedCluster
from kai_py.simulate.fork import in_copy
from kai_py.simulate.objects import Document
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import PodState

SETTLE_SECONDS = 600.0
"""Simulated time after which a cluster counts as settled, long enough for pods to come back."""

MAX_ADDED_NODES = 4096
SEED = 1

ROOM_STAGES = SHORT_OF_ROOM | {Stage.NOMINATED, Stage.BUDGET, Stage.BACKOFF, Stage.FAILED}
"""What more room, or fewer others, may help against."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A gang and where its pods are, in simulated hindsight."""

    gang: str
    queue: str
    nodes: tuple[str, ...]
    """One entry per pod."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gang that waits, and why."""

    gang: str
    queue: str
    stage: Stage
    pods: int
    message: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a change does.

    ``starts``: gangs of which it lets more pods run; ``victims``: pods that leave because of it;
    ``loses``: gangs that would run without it and don't run with it; ``waiting``: who waits then.
    """

    starts: tuple[Placed, ...] = ()
    loses: tuple[Placed, ...] = ()
    victims: tuple[Eviction, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    queues: tuple[QueueChange, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class NodesNeeded:
    """How many more nodes like ``like`` until nobody waits for room; None: more than are tried."""

    like: str
    nodes: int | None


def what_if(
    documents: Sequence[Document],
    changes: Sequence[Change],
    configuration: Configuration,
    *,
    now: float,
) -> Comparison:
    """Compare the settled cluster with and without ``changes``; raises ChangeError."""
    present = Present(documents, configuration, now)
    return compare(present.settled(), present.settled(*changes))


def nodes_needed(
    documents: Sequence[Document],
    changes: Sequence[Change],
    configuration: Configuration,
    *,
    like: str,
    now: float,
    pattern: Sequence[Document] = (),
) -> NodesNeeded:
    """The least number of nodes like ``like`` with which nobody waits for room any more.

    ``pattern``: what such a node is, where there is none yet. Gangs that wait for something no node
    can give (a missing queue, a gate, members) don't count. O(log n) simulations.
    """

    present = Present(documents, configuration, now)

    def suffices(count: int) -> bool:
        given = present.settled(*changes, AddNodes(like, count, pattern))
        return not any(waiting.stage in ROOM_STAGES for waiting in given.waiting)

    return NodesNeeded(like, least(suffices, MAX_ADDED_NODES))


def least(suffices: Callable[[int], bool], most: int) -> int | None:
    """The least number up to ``most`` that suffices, found by doubling, then bisection."""
    if suffices(0):
        return 0
    high = 1
    while not suffices(high):
        if high >= most:
            return None
        high = min(2 * high, most)
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle + 1, high)
    return high


@dataclass(frozen=True, slots=True)
class Settled:
    """A cluster in which nothing changes any more."""

    running: Mapping[str, Placed]
    waiting: tuple[Waiting, ...]
    evictions: tuple[Eviction, ...]
    queues: Mapping[str, QueueShare]

    def stage_of(self, gang: str) -> Stage | None:
        """What stops a gang; None if nothing does."""
        return next((each.stage for each in self.waiting if each.gang == gang), None)


def compare(without: Settled, given: Settled) -> Comparison:
    """What ``given`` has that ``without`` has not."""
    held = without.running
    evicted = {each.pod for each in without.evictions}
    return Comparison(
        starts=tuple(
            placed
            for gang, placed in sorted(given.running.items())
            if len(placed.nodes) > len(held[gang].nodes if gang in held else ())
        ),
        loses=tuple(placed for gang, placed in sorted(held.items()) if gang not in given.running),
        victims=tuple(each for each in given.evictions if each.pod not in evicted),
        waiting=given.waiting,
        queues=tuple(_queue_changes(without.queues, given.queues)),
    )


def _queue_changes(
    without: Mapping[str, QueueShare], given: Mapping[str, QueueShare]
) -> list[QueueChange]:
    changes = []
    for name in sorted({*without, *given}):
        pair = (without.get(name), given.get(name))
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


class Present:
    """A cluster as it is ``now``, loaded once; each question is answered by a copy of it."""

    def __init__(
        self, documents: Sequence[Document], configuration: Configuration, now: float
    ) -> None:
        """Load it; ``now`` in seconds since the epoch."""
        self.documents, self._configuration, self._now = documents, configuration, now
        self._cluster = SimulatedCluster(configuration, start=now, seed=SEED)
        self._cluster.load(documents)
        self.snapshot = self._cluster.snapshot()

    def settled(self, *changes: Change) -> "Settled":
        """What it is when nothing changes any more after ``changes``; raises ChangeError."""
        return in_copy(lambda: self._settled(changes))

    def after(self, *changes: Change) -> "Present":
        """The cluster right after ``changes``, before anything is scheduled; raises ChangeError."""
        documents = in_copy(lambda: self._changed(changes))
        return Present(documents, self._configuration, self._now)

    def plan(self) -> Plan:
        """What one cycle decides about it."""
        return in_copy(lambda: self._cluster.planner.decide(self.snapshot))

    def _changed(self, changes: Sequence[Change]) -> list[Document]:
        for change in changes:
            change.apply(self._cluster)
        return self._cluster.documents()

    def _settled(self, changes: Sequence[Change]) -> "Settled":
        for change in changes:
            change.apply(self._cluster)
        return settled(self._cluster, self._cluster.settle(SETTLE_SECONDS))


def settled(cluster: SimulatedCluster, course: Course) -> Settled:
    """What a cluster looks like after a course."""
    gangs = cluster.snapshot().gangs
    waiting = tuple(
        Waiting(each.gang, each.queue, each.stage, len(each.pods), each.message)
        for each in course.last.unplaced
    )
    running = {
        key: Placed(key, gang.queue, tuple(member.node for member in gang.bound))
        for key, gang in gangs.items()
        if gang.bound and satisfied(gang.tree, gang.counts(PodState.BOUND))
    }
    return Settled(
        running=running,
        waiting=waiting,
        evictions=tuple(course.evictions),
        queues={share.queue: share for share in course.last.queues},
    )
