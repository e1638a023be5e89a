"""One replay: the trace as a snapshot, then every arrival through the placement core."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from benchmarks.openb.scores import STATEFUL_SCORES
from benchmarks.openb.scores.clustering import Clustering
from benchmarks.openb.trace import Trace, TraceNode, TracePod, target_shapes
from kai_py.api.choices import BuiltInScore
from kai_py.api.gpu_share import GPU_RESOURCE, gpu_share
from kai_py.api.records.core import (
    Affinity,
    Condition,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    SelectorRequirement,
)
from kai_py.api.records.node import Node, NodeStatus
from kai_py.api.references import PodRef
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import Owner, Subgroup
from kai_py.plan.placement.fit import ShapeFits
from kai_py.plan.placement.gang import Placer
from kai_py.plan.placement.pods import ShapePlacer
from kai_py.plan.placement.scoring import Scoring
from kai_py.plan.plan import Action
from kai_py.plan.state.assignment import Assignment
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.queues import quota_of
from kai_py.plan.state.statement import Statement
from kai_py.policy.fairness_rules import NATIVE
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.fragmentation import could_strand
from kai_py.policy.score.registry import WeightedScore
from kai_py.policy.score.workload import TargetWorkload, target_workload
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.shape import Shape, ShapeTable
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.node_usage import NodeUsageTable

MODEL = "nvidia.com/gpu.product"
GANG = Gang(
    key="openb",
    owner=Owner("v1", "Pod", "openb", "openb", "openb"),
    queue="",
    tree=Subgroup(name="", min_members=1),
    members=(),
    priority=0,
    preemptible=True,
    may_preempt=False,
    created=0.0,
)


@dataclass(frozen=True)
class PlacedPod:
    """Where an arrival went; an empty node means nowhere."""

    pod: TracePod
    node: str = ""
    devices: tuple[int, ...] = ()


@dataclass
class _NodeGpus:
    """Indices of a node's GPUs: those that no pod uses, and of those that pods share, by group."""

    free: list[int]
    shared: dict[str, int] = field(default_factory=dict)

    def give(self, planned: Assignment, count: int) -> tuple[int, ...]:
        if not planned.gpus:
            return tuple(heapq.heappop(self.free) for _ in range(count))
        group = planned.gpus[0].group
        if group not in self.shared:
            self.shared[group] = heapq.heappop(self.free)
        return (self.shared[group],)


class Replay:
    """The placement core over a trace."""

    def __init__(self, trace: Trace, score: str | None) -> None:
        self._shapes: dict[TracePod, Shape] = {}
        self._table = ShapeTable()
        ranked = sorted(trace.nodes, key=lambda node: node.rank)
        self._names = [node.name for node in ranked]
        self._snapshot = snapshot = _snapshot([_node(node) for node in ranked])
        self._statics = StaticFits()
        devices = ClusterDevices()
        quota = quota_of(snapshot, NATIVE, devices.accounting, np.zeros(len(ranked)))
        self._statement = Statement(snapshot, quota, CycleDevices(devices, snapshot))
        self._scoring = None if score is None else self._scoring_by(score, trace)
        self._placer = Placer(ShapePlacer(ShapeFits(self._statics), scoring=self._scoring))
        self._gpus = [_NodeGpus(list(range(node.gpus))) for node in ranked]

    def place(self, pod: TracePod, number: int) -> PlacedPod:
        """The next arrival."""
        shape = self._shape(pod)
        member = _member(shape, pod, number)
        statement = self._statement
        if self._placer.place(statement, GANG, [member], Action.ALLOCATE, capacity=Capacity.IDLE):
            return PlacedPod(pod)
        planned = statement.placed[member.pod.uid]
        if self._scoring is not None and isinstance(self._scoring.score, Clustering):
            self._scoring.score.record(planned.row, pod.gpus, pod.gpu_milli)
        devices = self._gpus[planned.row].give(planned, pod.gpus)
        return PlacedPod(pod, self._names[planned.row], devices)

    def could_strand(self, pods: Iterable[TracePod]) -> bool:
        """Whether the default places them by score."""
        shapes = [self._shape(pod) for pod in dict.fromkeys(pods)]
        return could_strand(shapes, self._snapshot, self._statics)

    def _scoring_by(self, score: str, trace: Trace) -> Scoring:
        """The pods of the list are those to come, as in the paper."""
        counted = target_shapes(trace.listed, memory=score == BuiltInScore.FRUGAL)
        shapes = [(self._shape(pod), count) for pod, count in counted]

        def workload() -> TargetWorkload:
            made = target_workload(shapes, self._snapshot, self._statics)
            if score not in STATEFUL_SCORES:
                return made
            # Nodes of different kinds share no scores.
            return structs.replace(made, node_kind=np.arange(len(self._names)))

        return Scoring((WeightedScore(score),), workload)

    def _shape(self, pod: TracePod) -> Shape:
        known = self._shapes.get(pod)
        if known is None:
            record = _record(pod)
            shape = self._table.intern(record, gpu_share=gpu_share(record))
            known = self._shapes[pod] = shape
        return known


def replay(trace: Trace, score: str | None) -> list[PlacedPod]:
    """Every arrival in order; without a score as bin-packing has it."""
    core = Replay(trace, score)
    return [core.place(pod, number) for number, pod in enumerate(trace.arrivals)]


def _snapshot(nodes: list[Node]) -> Snapshot:
    ledger = NodeUsageTable()
    for node in nodes:
        ledger.set_node(node.metadata.name, node)
    state = ledger.snapshot()
    return Snapshot(
        now=0.0,
        resources=state.resources,
        nodes=state.nodes,
        used=state.used,
        releasing=state.releasing,
        gpu_sharing=state.gpu_sharing,
        gangs={},
        pending=(),
        queues=(),
        queue_allocated={},
        queue_requested={},
        queue_non_preemptible={},
    )


def _node(node: TraceNode) -> Node:
    """Named so that the order of names is the ranking."""
    name = f"{node.rank:05d}-{node.name}"
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels={MODEL: node.model}),
        status=NodeStatus(
            allocatable={
                "cpu": f"{node.cpu_milli}m",
                "memory": f"{node.mem_mib}Mi",
                "pods": "100000",
                GPU_RESOURCE: str(node.gpus),
            },
            conditions=(Condition(type="Ready", status="True"),),
        ),
    )


def _record(pod: TracePod) -> Pod:
    requests = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.mem_mib}Mi"}
    annotations = {}
    if pod.shares:
        annotations["gpu-fraction"] = str(pod.gpu_milli / 1000)
    elif pod.gpus:
        requests[GPU_RESOURCE] = str(pod.gpus)
    affinity = None
    if pod.models:
        wanted = SelectorRequirement(key=MODEL, operator="In", values=pod.models)
        term = NodeSelectorTerm(match_expressions=(wanted,))
        affinity = Affinity(
            node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,)))
        )
    return Pod(
        metadata=ObjectMeta(name=pod.name, annotations=annotations),
        spec=PodSpec(
            affinity=affinity,
            containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
        ),
    )


def _member(shape: Shape, pod: TracePod, number: int) -> Member:
    uid = f"{number:05d}"
    return Member(
        pod=PodRef("openb", f"{pod.name}-{uid}", uid),
        shape=shape,
        subgroup="",
        state=PodState.PENDING,
        node="",
        nominated="",
        priority=0,
        created=0.0,
        bound_since=0.0,
        charge={},
    )
