"""The start state of a recorded KAI case as a snapshot of ours."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from kai_py.api.gpu_share import MIG_PREFIX, GpuShare, SharedGpu
from kai_py.api.records.core import (
    Affinity,
    Condition,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
)
from kai_py.api.records.node import (
    Node,
    NodeResourceTopology,
    NodeStatus,
    TopologyAttribute,
    Zone,
    ZoneResource,
)
from kai_py.api.references import PodRef
from kai_py.grouping.gang import Owner, Subgroup, TopologyConstraint
from kai_py.grouping.gang_settings import GangSettings
from kai_py.snapshot.accounting import total
from kai_py.snapshot.derived_pod import PodUsage
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.numa_alignment import Alignment, alignment, observed_zones
from kai_py.snapshot.pod_usage import shared_gpu_usage
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.shared_gpus import MEMORY_LABEL, NOMINAL_MIB
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.assumptions import NominatedNode
from kai_py.snapshot.tables.node_usage import NodeUsageTable
from kai_py.snapshot.tables.numa import numa_node
from kai_py.snapshot.tables.pod_rules import PodEntry, PodRuleTable, refused_by, selections_of
from kai_py.snapshot.tables.queues import QueueInfo
from tests.support.records import replace

LEGACY_MIG = "it names a MIG profile by annotation and does not request it"
NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"
GUARANTEED = "Guaranteed"
UNITS = {"cpu_milli": "cpu", "gpu": GPU}
STUCK = "StuckInReleasing"
"""Its deletion is overdue: it keeps its capacity, and no gang may count on that."""
STATES = {
    "Pending": PodState.PENDING,
    "Pipelined": PodState.PENDING,
    "Gated": PodState.GATED,
    "Bound": PodState.BOUND,
    "Binding": PodState.BOUND,
    "Running": PodState.BOUND,
    "Releasing": PodState.RELEASING,
    STUCK: PodState.RELEASING,
}
HOLDING = (PodState.BOUND, PodState.RELEASING)


def snapshot_of(cluster: Mapping, accounting) -> Snapshot:
    """Build the snapshot a cycle would see."""
    ledger, shapes = NodeUsageTable(), {}
    for node in cluster["nodes"]:
        ledger.set_node(node["name"], _node(node))
    legacy = {name for node in cluster["nodes"] for name in node.get("legacy_mig_tasks", ())}
    stuck = {
        task["name"] for job in cluster["jobs"] for task in job["tasks"] if task["status"] == STUCK
    }
    gangs = [_gang(job, cluster, shapes, accounting) for job in cluster["jobs"]]
    for gang in gangs:
        for member in gang.members:
            if member.node:
                leaving = member.state == PodState.RELEASING
                releasing = leaving and member.pod.uid not in stuck
                shared = shared_gpu_usage(member.shape, member.gpus)
                holding = PodUsage(
                    member.node,
                    member.shape.requests,
                    (),
                    releasing,
                    shared,
                    legacy_mig=member.pod.uid in legacy,
                )
                ledger.set_usage(member.pod.uid, holding)
    state = ledger.snapshot()
    return Snapshot(
        now=NOW,
        resources=state.resources,
        nodes=state.nodes,
        used=state.used,
        releasing=state.releasing,
        gangs={gang.key: gang for gang in gangs},
        pending=tuple(sorted(gang.key for gang in gangs if gang.pending)),
        queues=tuple(_queue(queue) for queue in cluster["queues"]),
        nominations={
            task["name"]: NominatedNode(task["nominated"], NOW + 300)
            for job in cluster["jobs"]
            for task in job["tasks"]
            if task.get("nominated")
        },
        queue_allocated=_per_queue(gangs, lambda gang: gang.allocated),
        queue_requested=_per_queue(gangs, lambda gang: gang.requested),
        queue_non_preemptible=_per_queue(
            [g for g in gangs if not g.preemptible], lambda g: g.allocated
        ),
        below_min_members=tuple(gang.key for gang in gangs if gang.stale_since is not None),
        topologies=_topologies(cluster),
        pod_rules=_pod_rules(member for gang in gangs for member in gang.members),
        gpu_sharing=state.gpu_sharing,
        numa=_numa(cluster),
        terminating=tuple(m for g in gangs for m in g.members if m.state == PodState.RELEASING),
    )


def _pod_rules(members):
    table = PodRuleTable()
    for each in members:
        entry = PodEntry(
            each.pod.namespace,
            each.labels,
            each.node,
            each.state == PodState.RELEASING,
            ours=True,
            selections=selections_of([each.shape]),
            refused=refused_by([each.shape]),
        )
        table.set(each.pod.uid, entry)
    return table.snapshot()


def _numa(cluster):
    reports = {node["name"]: numa_report(node) for node in cluster["nodes"] if "numa" in node}
    read = ((name, numa_node(report)) for name, report in reports.items())
    return {name: found for name, found in read if found is not None}


def numa_report(node: Mapping) -> NodeResourceTopology:
    """What an exporter would report of the zones of a node."""
    numa = node["numa"]
    attributes = {"topologyManagerPolicy": numa["policy"], "topologyManagerScope": numa["scope"]}
    return NodeResourceTopology(
        metadata=ObjectMeta(name=node["name"]),
        attributes=tuple(TopologyAttribute(name=k, value=v) for k, v in attributes.items()),
        zones=tuple(
            Zone(
                name=zone["id"],
                resources=tuple(
                    ZoneResource(
                        name=UNITS.get(name, name),
                        allocatable=_quantity(name, amount),
                        available=_quantity(name, zone["available"].get(name, 0)),
                    )
                    for name, amount in zone["allocatable"].items()
                ),
            )
            for zone in numa["zones"]
        ),
    )


def _quantity(name: str, amount: float) -> str:
    return f"{int(amount)}m" if name == "cpu_milli" else str(int(amount))


def _alignment(task: Mapping, request: Mapping[str, float]) -> Alignment | None:
    """What of the only container of a task is aligned."""
    containers = {"requests": request, "limits": request if task.get("qos") == GUARANTEED else {}}
    spec = {"containers": [{"resources": _texts(containers)}]}
    return alignment(msgspec.convert({"spec": spec}, Pod))


def _texts(containers: Mapping) -> dict:
    return {
        kind: {name: f"{int(a)}m" if name == "cpu" else str(int(a)) for name, a in amounts.items()}
        for kind, amounts in containers.items()
    }


def _topologies(cluster):
    return {
        topology["name"]: tuple(
            level if isinstance(level, str) else level["label"] for level in topology["levels"]
        )
        for topology in cluster.get("topologies", ())
    }


def _per_queue(gangs, amount):
    sums: dict[str, list] = {}
    for gang in gangs:
        sums.setdefault(gang.queue, []).append(amount(gang))
    return {queue: total(costs) for queue, costs in sums.items()}


def _resources(amounts: Mapping[str, float]) -> dict[str, float]:
    return {UNITS.get(name, name): float(amount) for name, amount in amounts.items() if amount}


def _node(node: Mapping) -> Node:
    allocatable = _resources(node["allocatable"])
    allocatable["cpu"] = f"{int(allocatable.get('cpu', 0))}m"
    return Node(
        metadata=ObjectMeta(name=node["name"], uid=node["name"], labels=node_labels(node)),
        status=NodeStatus(
            allocatable={
                name: amount if isinstance(amount, str) else int(amount)
                for name, amount in allocatable.items()
            },
            conditions=(Condition(type="Ready", status="True"),),
        ),
    )


def node_labels(node: Mapping) -> dict[str, str]:
    """Labels as such a node has them: how much memory a GPU has only where there are GPUs."""
    labels = {MEMORY_LABEL: str(int(node["gpu_memory_mib"])), **node["labels"]}
    if not _has_gpus(node):
        del labels[MEMORY_LABEL]
    return labels


def _has_gpus(node: Mapping) -> bool:
    kinds = (name for name, amount in node["allocatable"].items() if amount)
    return any(name == "gpu" or name.startswith(MIG_PREFIX) for name in kinds)


def _gang(job: Mapping, cluster: Mapping, shapes: dict, accounting) -> Gang:
    memory = {n["name"]: n["gpu_memory_mib"] for n in cluster["nodes"] if _has_gpus(n)}
    namespace = job.get("namespace", "")
    members = [
        _member(job, task, shapes, accounting, memory)
        for task in job["tasks"]
        if task["status"] in STATES
    ]
    gang = Gang(
        key=f"{namespace}/{job['name']}",
        owner=Owner("scheduling.run.ai/v2alpha2", "PodGroup", namespace, job["name"], job["name"]),
        queue=job["queue"],
        tree=_tree(job["sub_groups"]),
        members=tuple(sorted(members, key=lambda m: (m.order, m.pod.name))),
        priority=job["priority"],
        preemptible=job["preemptibility"] == "preemptible",
        may_preempt=True,
        created=NOW - 60 * job["age_minutes"],
        succeeded=sum(task["status"] == "Succeeded" for task in job["tasks"]),
        settings=GangSettings(
            staleness_grace=job.get("staleness_grace_seconds"),
            preemption_delay=job.get("preemption_delay_seconds", 0.0),
        ),
    )
    if not gang.bound or gang.is_satisfied:
        return gang
    return replace(gang, stale_since=NOW - (job.get("stale_seconds") or 0.0))


def _member(job: Mapping, task: Mapping, shapes: dict, accounting, memory: Mapping) -> Member:
    request, share = _resources(task["request"]), _share(task)
    if share is not None:
        request.pop(GPU, None)
    affinity, labels = _affinity(task), task.get("labels", {})
    aligned = _alignment(task, request)
    parts = (tuple(sorted(request.items())), repr(affinity), share, tuple(sorted(labels.items())))
    key = (*parts, repr(aligned))
    shape = shapes.setdefault(
        key,
        Shape(
            number=len(shapes),
            requests=request,
            affinity=affinity,
            gpu_share=share,
            alignment=aligned,
            namespace=job.get("namespace", ""),
            labels=labels,
        ),
    )
    charges = [accounting.requests(request)]
    if share is not None:
        card = memory.get(task.get("node"), min(memory.values(), default=NOMINAL_MIB))
        charges.append(accounting.gpu_share(share, card))
    started = job.get("last_start_age_seconds")
    state = STATES[task["status"]]
    return Member(
        pod=PodRef(job.get("namespace", ""), task["name"], task["name"]),
        shape=shape,
        subgroup=task.get("sub_group", "default"),
        state=state,
        node=task.get("node", "") if state in HOLDING else "",
        nominated=task.get("nominated", ""),
        priority=job["priority"],
        created=NOW - 60 * job["age_minutes"],
        bound_since=NOW - started if started is not None else 0.0,
        charge=total(charges),
        labels=labels,
        gpus=tuple(SharedGpu(group) for group in groups_of(task)),
        order=_order(task),
        problem=LEGACY_MIG if task.get("legacy_mig") and state is PodState.PENDING else "",
        numa_zones=observed_zones(
            Pod(metadata=ObjectMeta(annotations=task.get("annotations", {})))
        ),
    )


def groups_of(task: Mapping) -> Sequence[str]:
    """The shared GPUs that a task has a part of; a table may name one beside a whole GPU."""
    shares = task["request_type"] in ("Fraction", "GpuMemory")
    return task.get("gpu_groups", ()) if shares else ()


def _share(task: Mapping) -> GpuShare | None:
    asked = task["gpu_request"]
    if task["request_type"] not in ("Fraction", "GpuMemory"):
        return None
    if asked.get("memory_mib"):
        return GpuShare(memory=float(asked["memory_mib"]), devices=asked["devices"])
    return GpuShare(fraction=asked["portion"], devices=asked["devices"])


def _affinity(task: Mapping) -> Affinity | None:
    nodes, near, far = (
        task.get(rule) for rule in ("node_affinity", "pod_affinity", "pod_anti_affinity")
    )
    if not (nodes or near or far):
        return None
    return Affinity(
        node_affinity=_node_affinity(nodes) if nodes else None,
        pod_affinity=_pod_affinity(near) if near else None,
        pod_anti_affinity=_pod_affinity(far) if far else None,
    )


def _node_affinity(terms) -> NodeAffinity:
    made = [
        NodeSelectorTerm(
            match_expressions=tuple(
                SelectorRequirement(
                    key=e["key"], operator=e["operator"], values=tuple(e.get("values", ()))
                )
                for e in term
            )
        )
        for term in terms
    ]
    return NodeAffinity(required=NodeSelector(node_selector_terms=tuple(made)))


def _pod_affinity(terms) -> PodAffinity:
    return PodAffinity(
        required=tuple(
            PodAffinityTerm(
                label_selector=LabelSelector(match_labels=dict(term["match_labels"])),
                topology_key=term["topology_key"],
            )
            for term in terms
        )
    )


def _order(task: Mapping) -> int:
    text = task.get("labels", {}).get("kai.scheduler/task-priority", "")
    return -int(text) if text else 1 << 20


def _constraint(group: Mapping) -> TopologyConstraint | None:
    found = group.get("topology_constraint")
    if not found:
        return None
    return TopologyConstraint(
        found.get("topology", ""), found.get("required_level", ""), found.get("preferred_level", "")
    )


def _tree(group: Mapping) -> Subgroup:
    leaves = [
        Subgroup(name=leaf["name"], min_members=leaf["min_available"], topology=_constraint(leaf))
        for leaf in group.get("pod_sets", ())
    ]
    children = (*leaves, *(_tree(child) for child in group.get("children", ())))
    return Subgroup(
        name=group["name"],
        min_subgroups=group.get("min_sub_groups"),
        children=children,
        topology=_constraint(group),
    )


def _queue(queue: Mapping) -> QueueInfo:
    units = {"gpu": 1.0, "cpu": 1.0, "memory": 1e6}

    def amounts(key: str) -> dict[str, float]:
        found = {name: queue[name][key] for name in units}
        return {
            name: math.inf if amount == -1 else amount * units[name]
            for name, amount in found.items()
        }

    return QueueInfo(
        name=queue["name"],
        parent=queue["parent"],
        deserved=amounts("quota"),
        max=amounts("limit"),
        weights={name: abs(queue[name]["over_quota_weight"]) for name in units},
        priority=queue["priority"],
        created=queue["creation_rank"],
        preempt_min_runtime=queue.get("preempt_min_runtime_seconds"),
        reclaim_min_runtime=queue.get("reclaim_min_runtime_seconds"),
    )
