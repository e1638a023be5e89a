"""Worlds described as gangs rather than as objects: trees, floors and states in one line each.

``gang`` gives a description, ``world`` a snapshot that a cycle can run on, ``replayed`` the world
after a plan was carried out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from kai_py.api.records.core import Condition, ObjectMeta
from kai_py.api.records.node import Node, NodeStatus
from kai_py.api.references import PodRef
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import Owner, Subgroup
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.opening import open_session
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Plan
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.turns import Unwatched
from kai_py.snapshot.accounting import total
from kai_py.snapshot.derived_pod import PodUsage
from kai_py.snapshot.gangs import Charge, Gang, Member, PodState
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.node_usage import NodeUsageTable
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace
from tests.support.scenario import START

GPU = "nvidia.com/gpu"


def subgroup(
    name: str, floor: int = 0, *, needs: int | None = None, children: Sequence[Subgroup] = ()
) -> Subgroup:
    return Subgroup(name=name, min_members=floor, min_subgroups=needs, children=tuple(children))


def gang(
    name: str,
    *,
    pods: int = 0,
    gpus: int = 1,
    node: str = "",
    nodes: str = "",
    floor: int | None = None,
    leaves: str = "",
    tree: Subgroup | None = None,
    queue: str = "team",
    priority: int = 0,
    created: float = 0.0,
    preemptible: bool = True,
    semi: bool = False,
    stale_since: float | None = None,
) -> Gang:
    """``nodes``: a letter per pod, "-" for one that waits; ``leaves``: a letter per pod."""
    where = [n if n != "-" else "" for n in nodes] or [node] * pods
    leaf = leaves or [""] * len(where)
    members = tuple(
        member(f"{name}-{i}", gpus, at, leaf[i], priority, created) for i, at in enumerate(where)
    )
    least = len(members) if floor is None else floor
    return Gang(
        key=f"default/Gang/{name}",
        owner=Owner("v1", "Gang", "default", name, name),
        queue=queue,
        tree=tree or Subgroup(min_members=least),
        members=members,
        priority=priority,
        preemptible=preemptible,
        semi_preemptible=semi,
        may_preempt=True,
        created=START + created,
        stale_since=stale_since,
    )


def member(
    name: str, gpus: int, node: str, leaf: str = "", priority: int = 0, created: float = 0.0
) -> Member:
    return Member(
        pod=PodRef("default", name, name),
        shape=Shape(number=gpus, requests={"cpu": 1000.0, "pods": 1.0, GPU: float(gpus)}),
        subgroup=leaf,
        state=PodState.BOUND if node else PodState.PENDING,
        node=node,
        nominated="",
        priority=priority,
        created=START + created,
        bound_since=START + created if node else 0.0,
        charge=_charge(gpus),
    )


@dataclass(frozen=True)
class World:
    """Nodes by GPUs, queues and gangs; ``settings`` are those of the cycle."""

    nodes: Mapping[str, int]
    gangs: tuple[Gang, ...]
    queues: tuple[QueueInfo, ...] = ()
    settings: Mapping = field(default_factory=dict)

    def snapshot(self, now: float) -> Snapshot:
        ledger = NodeUsageTable()
        for name, gpus in self.nodes.items():
            ledger.set_node(name, _node(name, gpus))
        for each in self.gangs:
            for m in each.members:
                if m.node:
                    leaving = m.state == PodState.RELEASING
                    ledger.set_usage(m.pod.uid, PodUsage(m.node, m.shape.requests, (), leaving))
        state = ledger.snapshot()
        return Snapshot(
            now=START + now,
            resources=state.resources,
            nodes=state.nodes,
            used=state.used,
            releasing=state.releasing,
            gpu_sharing=state.gpu_sharing,
            gangs={each.key: each for each in self.gangs},
            pending=tuple(sorted(each.key for each in self.gangs if each.pending)),
            queues=self.queues or (QueueInfo(name="team", deserved={"gpu": 1000.0}),),
            queue_allocated=_sums(self.gangs, lambda each: each.allocated),
            queue_requested=_sums(self.gangs, lambda each: each.requested),
            queue_non_preemptible=_sums(self.gangs, lambda each: each.non_preemptible),
            below_min_members=tuple(
                each.key for each in self.gangs if each.stale_since is not None
            ),
            started_in_part=tuple(
                each.key for each in self.gangs if each.starts_in_part and each.bound
            ),
        )

    def session(self, now: float = 1000.0) -> CycleState:
        """The state of a cycle that begins."""
        memory = CycleMemory(ClusterDevices())
        return open_session(self.snapshot(now), CycleSettings(**self.settings), memory, Unwatched())

    def plan(self, now: float = 1000.0) -> Plan:
        devices = ClusterDevices()
        settings = CycleSettings(**self.settings)
        return run_cycle(self.snapshot(now), settings, CycleMemory(devices))


def world(nodes: Mapping[str, int], *gangs: Gang, queues=(), **settings) -> World:
    return World(nodes, gangs, tuple(queues), settings)


def kept_world(before: World, **settings) -> World:
    """The same world under other settings."""
    return replace(before, settings={**before.settings, **settings})


def replayed(before: World, plan: Plan) -> World:
    """The world once everything of ``plan`` has come about; moved pods run in their new place."""
    to = {p.pod.uid: p.node for g in plan.placements for p in g.pods}
    to.update({n.pod.uid: n.node for n in plan.nominations})
    to.update({e.pod.uid: e.relocated_to for e in plan.evictions})
    gangs = tuple(
        replace(
            each,
            members=tuple(
                at_node(m, to[m.pod.uid]) if m.pod.uid in to else m for m in each.members
            ),
        )
        for each in before.gangs
    )
    return replace(before, gangs=gangs)


def at_node(each: Member, node: str) -> Member:
    state = PodState.BOUND if node else PodState.PENDING
    return replace(each, node=node, state=state)


@cache
def _charge(gpus: int) -> Charge:
    """One object for all pods of a shape, as a snapshot has it."""
    return {"gpu": float(gpus), "cpu": 1000.0}


def _node(name: str, gpus: int) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, uid=name),
        status=NodeStatus(
            allocatable={"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)},
            conditions=(Condition(type="Ready", status="True"),),
        ),
    )


def _sums(gangs, amount):
    costs: dict[str, list] = {}
    for each in gangs:
        costs.setdefault(each.queue, []).append(amount(each))
    return {name: total(each) for name, each in costs.items()}
