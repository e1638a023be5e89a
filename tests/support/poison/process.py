"""A scheduler process without its API: decoders, mirror, planner, metrics and pages in one."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from kai_py.api.choices import Subject
from kai_py.commit.statuses.kai_messages import with_kai_messages
from kai_py.commit.statuses.pod import pending_statuses
from kai_py.commit.statuses.queue import desired_status, queue_reports, queue_status_patch
from kai_py.config import Configuration
from kai_py.observe.cluster_metrics import ClusterMetrics
from kai_py.observe.cluster_state import cluster_state
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.decision_metrics import DecisionMetrics
from kai_py.observe.explanation import Explanation, explain_subject
from kai_py.observe.gang_rows import gang_page
from kai_py.observe.http_api import encode
from kai_py.observe.http_lists import entries_of
from kai_py.observe.metrics import Metrics
from kai_py.observe.node_details import node_page
from kai_py.observe.plan_text import describe_plan
from kai_py.plan.plan import Plan
from kai_py.planner import Planner
from kai_py.relevance import affects_plan
from kai_py.snapshot.node_kinds import node_kinds
from kai_py.watch.collection import Collection
from kai_py.watch.kinds import QUEUES, RESOURCE_CLAIMS, WATCHED
from kai_py.watch.resource import Kind
from tests.support.cluster.api import Document
from tests.support.poison.document import QUEUE, document

NOW = 1_800_000_000.0
SHOWN_CLAIMS = 8
"""Claims that are explained: for each the index of all devices is built."""


@dataclass
class Process:
    """Objects in, plans out; ``rejected`` counts objects that could not be decoded."""

    rejected: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.planner = Planner(Configuration())
        self._kinds = {(kind.group, kind.name): kind for kind in WATCHED}
        self.collections = {kind: Collection(kind, self._on_change) for kind in WATCHED}
        self.now, self._version, self._number = NOW, 0, 0
        self._registry = CollectorRegistry()
        self._metrics = Metrics(self._registry)
        self._decisions = DecisionLog()
        self._decision_metrics = DecisionMetrics(self._registry)
        self._view: ClusterView | None = None
        ClusterMetrics(self._registry, lambda: self._view)

    def put(self, *documents: Document) -> None:
        """Add objects, or newer versions of them."""
        for each in documents:
            group, _, version = each["apiVersion"].rpartition("/")
            kind = self._kinds.get((group, each["kind"]))
            if kind is None:
                continue
            self._version += 1
            each["metadata"]["resourceVersion"] = str(self._version)
            collection = self.collections[kind]
            entry = collection.read(kind.versions[version], msgspec.Raw(msgspec.json.encode(each)))
            collection.put(entry)

    def remove(self, *documents: Document) -> None:
        """Delete objects."""
        for each in documents:
            kind = self._kinds.get((each["apiVersion"].rpartition("/")[0], each["kind"]))
            if kind is None:
                continue
            meta = each["metadata"]
            self.collections[kind].remove((meta.get("namespace", ""), meta["name"]))

    def cycle(self) -> Plan:
        """One cycle with everything that follows it in a process."""
        self.now += 1.0
        self._number += 1
        snapshot = self.planner.freeze(self.now)
        plan = self.planner.decide(snapshot)
        decisions = self._decisions.record(plan, snapshot.gangs, self.now)
        self._decision_metrics.count(decisions, snapshot.gangs, self.now)
        self._view = ClusterView(self._number, snapshot, plan, self.planner.node_gpus(snapshot))
        deadline = self.planner.next_deadline(snapshot)
        assert deadline is None or deadline > self.now
        self._metrics.show_plan(plan)
        return plan

    def show(self) -> None:
        """Every page and metric of the last cycle."""
        view = self._view
        assert view is not None
        generate_latest(self._registry)
        encode(cluster_state(view))
        encode(node_page(view, "", offset=0, limit=64))
        encode(gang_page(view, queue="", search="", limit=50))
        encode(node_kinds(view.snapshot))
        encode(view.plan)
        describe_plan(view.plan)
        pending_statuses(with_kai_messages(view.plan, view.snapshot.gangs.values(), self.now))
        for gang in view.snapshot.gangs:
            encode(self._explain(Subject.GANG, gang))

    def show_details(self) -> None:
        """What is told of the last cycle in lists, in statuses and of single objects."""
        view = self._view
        assert view is not None
        snapshot, plan, now = view.snapshot, view.plan, datetime.fromtimestamp(self.now, UTC)
        encode(entries_of(snapshot))
        queues = self.collections[QUEUES].objects
        for report in queue_reports(plan):
            known = queues.get(("", report.share.queue))
            if known is not None:
                encode(queue_status_patch(desired_status(report, known, now), known))
        subjects = [(Subject.QUEUE, each.name) for each in snapshot.queues]
        claims = list(self.collections[RESOURCE_CLAIMS].objects)[:SHOWN_CLAIMS]
        subjects += [(Subject.CLAIM, "/".join(key)) for key in claims]
        for subject, name in subjects:
            encode(self._explain(subject, name))

    def _explain(self, subject: Subject, name: str) -> list[Explanation]:
        view = self._view
        assert view is not None
        return explain_subject(
            view.snapshot,
            view.plan,
            subject,
            name,
            decisions=self._decisions.made_after(0.0),
            history=lambda _gang: (),
            limit=5,
            ends=self.planner.expected_ends(self.now),
        )

    def _on_change(self, kind: Kind[Any], old: Any, new: Any) -> None:
        self.planner.builder.apply(kind.collection_name, old, new)
        affects_plan(old, new)


def small_world() -> list[Document]:
    """Two nodes with GPUs and devices, and a queue each for the tenant and the canary."""
    ready = [{"type": "Ready", "status": "True"}]
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    nodes = [
        document(
            "v1",
            "Node",
            name,
            meta={"labels": {"kubernetes.io/hostname": name, "zone": name}},
            status={"allocatable": amounts, "conditions": ready},
        )
        for name in ("n0", "n1")
    ]
    queues = [
        document("scheduling.kai.io/v1alpha1", "Queue", name, spec={"deservedGPUs": 8})
        for name in ("tenant", "canary")
    ]
    return [*nodes, *queues, document("v1", "Namespace", "canary")]


def canary(number: int = 0, pods: int = 2) -> list[Document]:
    """A gang of another tenant, in a queue and a namespace of its own."""
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }
    notes = {
        QUEUE: "canary",
        "scheduling.kai.io/pod-group": f"canary-{number}",
        "scheduling.kai.io/min-available": str(pods),
    }
    return [
        document(
            "v1",
            "Pod",
            f"canary-{number}-{index}",
            "canary",
            meta={"annotations": notes, "uid": f"canary-{number}-{index}"},
            spec=spec,
            status={"phase": "Pending"},
        )
        for index in range(pods)
    ]


def started(plan: Plan) -> set[str]:
    """Names of the pods that the plan starts."""
    return {pod.pod.name for gang in plan.placements for pod in gang.pods}
