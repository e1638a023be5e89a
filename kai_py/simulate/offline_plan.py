"""What the scheduler decides about objects in files: a document for bug reports and comparisons.

The document is versioned, sorted, and the same bytes for the same input. Its time is the newest
creation or start on any object, so the answer does not depend on the clock.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from msgspec import Struct, field

from kai_py.api.records.unstructured import value_at
from kai_py.config import Configuration
from kai_py.plan.plan import Plan, Stage
from kai_py.simulate.files.complete_objects import complete_objects
from kai_py.simulate.files.object_files import ObjectsInFiles, RejectedObject
from kai_py.simulate.files.objects import Document
from kai_py.simulate.files.unusable_objects import (
    absent_owners,
    queue_problems,
    workloads_without_pods,
)
from kai_py.simulate.offline_cluster import OfflineCluster, named

VERSION = 1
UNDATED = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
"""The time of objects of which none has one: far from 0, which stands for an unknown start."""

MAX_CYCLES = 1000
"""Cycles after which a cluster that does not come to rest is given up."""


class PlannedPod(Struct, frozen=True):
    """A pod that is placed; ``claims``: the allocations of its claims, as in their statuses."""

    pod: str
    node: str
    cycle: int
    claims: dict[str, Document]


class PlannedEviction(Struct, frozen=True, rename={"preemptor": "for"}):
    """A pod that is evicted, by which rule, and for which gang."""

    pod: str
    rule: str
    preemptor: str
    cycle: int
    reason: str


class PlannedNomination(Struct, frozen=True):
    """A pod that waits for victims or terminating pods to leave its node."""

    pod: str
    node: str
    cycle: int


class PlannedPendingGang(Struct, frozen=True):
    """A gang that is pending after the last cycle, and the stage that stops it."""

    gang: str
    pods: list[str]
    stage: str
    message: str


class OfflinePlan(Struct, frozen=True):
    """Everything that was decided.

    ``cycles``: how many were run, from 1; ``rest``: the last of them decided nothing, and nothing
    that was under way before ended after it.
    """

    version: int
    cycles: int
    rest: bool
    placements: list[PlannedPod] = field(default_factory=list)
    evictions: list[PlannedEviction] = field(default_factory=list)
    nominations: list[PlannedNomination] = field(default_factory=list)
    pending: list[PlannedPendingGang] = field(default_factory=list)
    rejected: list[RejectedObject] = field(default_factory=list)


def plan_objects(
    given: ObjectsInFiles,
    configuration: Configuration,
    *,
    cycles: int = 1,
    until_rest: bool = False,
    now: float | None = None,
    on_cycle: Callable[[int], None] = lambda _: None,
) -> OfflinePlan:
    """Run ``cycles`` cycles, or as many as it takes until nothing changes any more.

    ``now``: the time of all cycles, seconds since the epoch; by default that of the objects.
    """
    time = newest_time(given.documents) if now is None else now
    documents, rejected, absent = complete_objects(given.documents, time)
    cluster = OfflineCluster(configuration, time)
    cluster.load(documents, absent)
    names = (configuration.scheduler_name, *configuration.scheduler_aliases)
    snapshot = cluster.planner.freeze(time)
    owners = [*absent_owners(documents, absent, snapshot)]
    without_pods = [*workloads_without_pods(documents, cluster.planner, snapshot, names)]
    queues = [*queue_problems(snapshot)]
    placements: list[PlannedPod] = []
    evictions: list[PlannedEviction] = []
    nominations: list[PlannedNomination] = []
    plan, cycle, has_changed = Plan(), 0, False
    for cycle in range(1, (MAX_CYCLES if until_rest else cycles) + 1):
        on_cycle(cycle)
        plan = cluster.cycle()
        has_changed = cluster.carry_out(plan)
        placements += _placements(plan, cluster, cycle)
        evictions += _evictions(plan, cycle)
        nominations += [
            PlannedNomination(str(each.pod), each.node, cycle) for each in plan.nominations
        ]
        if until_rest and not has_changed:
            break
    return OfflinePlan(
        version=VERSION,
        cycles=cycle,
        rest=not has_changed,
        placements=sorted(placements, key=lambda each: (each.pod, each.cycle)),
        evictions=sorted(evictions, key=lambda each: (each.pod, each.cycle)),
        nominations=sorted(nominations, key=lambda each: (each.pod, each.cycle)),
        pending=sorted(_pending(plan, cluster), key=lambda each: each.gang),
        rejected=_rejected(
            [*given.rejected, *rejected],
            [*without_pods, *owners],
            cluster.rejected,
            queues,
            _problems(plan),
        ),
    )


def newest_time(documents: Iterable[Document]) -> float:
    """The newest creation or start of an object, seconds since the epoch.

    ``UNDATED`` if none has one.
    """
    newest = ""
    for text in (each for document in documents for each in _times(document)):
        if text > newest and _is_time(text):
            newest = text
    return datetime.fromisoformat(newest).timestamp() if newest else UNDATED


def _times(document: Document) -> Iterator[str]:
    """Texts as long as the times that the API server writes."""
    paths = ("metadata.creationTimestamp", "status.startTime")
    for text in (value_at(document, path) for path in paths):
        if isinstance(text, str) and len(text) == len("2026-01-01T00:00:00Z"):
            yield text


def _is_time(text: str) -> bool:
    """Whether a text is a time of the form whose order as text is the order in time."""
    try:
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return False
    return True


def _placements(plan: Plan, cluster: OfflineCluster, cycle: int) -> Iterator[PlannedPod]:
    for gang in plan.placements:
        for placement in () if gang.resume or gang.gang in cluster.undone else gang.pods:
            claims = dict(sorted(cluster.allocations(placement.pod).items()))
            yield PlannedPod(str(placement.pod), placement.node, cycle, claims)


def _evictions(plan: Plan, cycle: int) -> Iterator[PlannedEviction]:
    for each in plan.evictions:
        yield PlannedEviction(str(each.pod), each.action.value, each.preemptor, cycle, each.reason)


def _pending(plan: Plan, cluster: OfflineCluster) -> Iterator[PlannedPendingGang]:
    stage = Stage.SCHEDULER_ERROR.value
    for gang in plan.placements:
        if gang.gang in cluster.undone:
            pods = named(each.pod for each in gang.pods)
            yield PlannedPendingGang(gang.gang, pods, stage, cluster.undone[gang.gang])
    for each in plan.unplaced:
        yield PlannedPendingGang(each.gang, named(each.pods), each.stage.value, each.message)


def _rejected(*groups: Iterable[RejectedObject]) -> list[RejectedObject]:
    """Problems, sorted; of an object those of the first group, which the others follow from."""
    found: list[RejectedObject] = []
    for group in groups:
        known = {each.object for each in found}
        found += {each for each in group if each.object not in known}
    return sorted(found)


def _problems(plan: Plan) -> Iterator[RejectedObject]:
    for each in plan.problems:
        owner = each.object
        name = f"{owner.namespace}/{owner.name}" if owner.namespace else owner.name
        yield RejectedObject(f"{owner.kind} {name}", each.message)
