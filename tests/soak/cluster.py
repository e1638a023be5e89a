"""A cluster on which gangs of ever new names, shapes, queues and labels come and go."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest

from kai_py.config import Configuration, GpuIsolation, GpuSharingConfig, KaiConfig
from kai_py.embedded.clock import SIMULATION_START
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.kubelet import RUN_SECONDS, PodTiming
from kai_py.embedded.resources import PODS
from kai_py.embedded.store import Change, ChangeType
from kai_py.observe.cluster_metrics import ClusterMetrics
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import MAX_DECISIONS, DecisionLog
from kai_py.observe.decision_metrics import DecisionMetrics
from kai_py.observe.kept_history import ShareHistory
from kai_py.observe.metrics import Metrics
from kai_py.observe.plan_observer import KaiQueueMetrics
from kai_py.plan.plan import Eviction, Plan
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.snapshot.snapshot import Snapshot
from tests.soak.containers import container_sizes, module_roots

NODES = 4
PODS_PER_GANG = 8
GANGS_AT_ONCE = 8
"""As many as the nodes hold: half of them ask for claims, half for the device plugin's GPUs."""
HISTORY_SECONDS = 90_000.0
"""After which no eviction counts any more, nor how often a gang was evicted that day."""
KEPT_DECISIONS = MAX_DECISIONS
Document = dict[str, Any]


class RecordedCluster(SimulatedCluster):
    """A simulated cluster that shows every plan to ``on_plan``."""

    on_plan: Callable[[Snapshot, Plan], None] = staticmethod(lambda _snapshot, _plan: None)

    def _decide(self, snapshot: Snapshot) -> tuple[Plan, list[Eviction]]:
        plan, evictions = super()._decide(snapshot)
        self.on_plan(snapshot, plan)
        return plan, evictions


class Observers:
    """What the process keeps of plans for people and for metrics."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.metrics = Metrics(registry)
        self.decision_metrics = DecisionMetrics(registry)
        self.kai_metrics = KaiQueueMetrics(registry, lambda queue: queue)
        self.decisions, self.shares = DecisionLog(KEPT_DECISIONS), ShareHistory()
        self.view: ClusterView | None = None
        self.cluster_metrics = ClusterMetrics(registry, lambda: self.view)

    def show(self, snapshot: Snapshot, plan: Plan) -> None:
        """As the scheduler does after each cycle."""
        now = snapshot.now
        decisions = self.decisions.record(plan, snapshot.gangs, now)
        self.decision_metrics.count(decisions, snapshot.gangs, now)
        self.decision_metrics.keep_queues(plan)
        self.shares.record(plan, now)
        self.view = ClusterView(self.decisions.cycle, snapshot, plan, np.zeros(len(snapshot.nodes)))
        self.metrics.show_plan(plan)
        self.kai_metrics.show_plan(plan)


class ChurningCluster:
    """Gangs that live one after another; nothing of them is left when ``live_through`` returns.

    ``lives``: pods that have been deleted. Of plans, ``placed`` and ``evicted`` count pods,
    ``allocated`` claims.
    """

    def __init__(self) -> None:
        # No webhook runs here, so containers are not kept to the GPUs that they share.
        sharing = GpuSharingConfig(isolation=GpuIsolation.NONE)
        configuration = Configuration(kai=KaiConfig(queue_metrics=True), gpu_sharing=sharing)
        timing = PodTiming(start=0.0, stop=0.0)
        self.cluster = RecordedCluster(configuration, start=SIMULATION_START, timing=timing)
        self.observers = Observers()
        self.cluster.on_plan = self._show
        self.cluster.embedded.store.subscribe(self._count)
        self.lives = self.placed = self.evicted = self.allocated = 0
        for document in _infrastructure():
            self.cluster.embedded.create(document)

    def live_through(self, gangs: range) -> None:
        """Let ``gangs`` wait, run and end, ``GANGS_AT_ONCE`` at a time; some are evicted."""
        for first in gangs[::GANGS_AT_ONCE]:
            self._live(range(first, min(first + GANGS_AT_ONCE, gangs.stop)))

    def _live(self, gangs: range) -> None:
        turn = gangs.start // GANGS_AT_ONCE
        made = [document for number in gangs for document in _gang(number)]
        if turn % 2 == 0:
            made = [*_node(f"scaled-{gangs.start}"), *made]
        for document in made:
            self.cluster.embedded.create(document)
        self._settle(0.5)
        for number in gangs:
            self._change_queue(number)
        if turn % 2 == 1:
            intruder = [*_intruder(gangs.start + turn % 4 // 2, reclaims=turn % 8 > 4)]
            for document in intruder:
                self.cluster.embedded.create(document)
            made += intruder
        self._settle(5.0)
        for document in reversed(made):
            self._delete(document)
        self._settle(1.0)
        self.cluster.embedded.store.compact()

    def _show(self, snapshot: Snapshot, plan: Plan) -> None:
        self.observers.show(snapshot, plan)
        self.placed += sum(len(gang.pods) for gang in plan.placements)
        self.allocated += sum(len(pod.allocate) for gang in plan.placements for pod in gang.pods)
        self.evicted += len(plan.evictions)

    def _count(self, change: Change) -> None:
        self.lives += change.storage == PODS.storage and change.type is ChangeType.DELETED

    def sizes(self) -> dict[str, int]:
        """The sizes of all containers of the scheduler's process and of the embedded cluster."""
        self._settle(HISTORY_SECONDS)
        self.cluster.settle(0.0)  # a cycle in which what is over is forgotten
        generate_latest(self.observers.metrics.registry)
        gc.collect()
        roots = {
            "planner": self.cluster.planner,
            "observers": self.observers,
            "embedded": self.cluster.embedded,
        }
        return container_sizes({**roots, **module_roots()})

    def _settle(self, seconds: float) -> None:
        self.cluster.settle(seconds)
        self.cluster.clock.advance(seconds)

    def _change_queue(self, number: int) -> None:
        api = self.cluster.embedded.api
        queues = next(each for each in api.registry.storages() if each.plural == "queues")
        api.edit(
            queues, f"queue-{number}", "", lambda old: {**old, "spec": {"deservedGPUs": number % 7}}
        )

    def _delete(self, document: Document) -> None:
        api, meta = self.cluster.embedded.api, document["metadata"]
        resource = next(
            each
            for each in api.registry.storages()
            if each.kind == document["kind"] and each.api_version == document["apiVersion"]
        )
        namespace = "default" if resource.namespaced else ""
        grace = 0 if resource is PODS else None
        options = DeleteOptions(policy="Background", grace_seconds=grace)
        if api.find(resource, meta["name"], namespace) is not None:
            delete(api, resource, meta["name"], namespace, options)


def _node(name: str) -> Iterator[Document]:
    # One GPU more than the gangs take, for pods that share it.
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "9"}
    ready = [{"type": "Ready", "status": "True"}]
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": ready},
    }
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpus"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"gpu-{i}", "capacity": {"memory": {"value": "80Gi"}}} for i in range(8)
            ],
        },
    }


def _infrastructure() -> Iterator[Document]:
    for number in range(NODES):
        yield from _node(f"node-{number}")
    selectors = [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {"selectors": selectors},
    }
    yield {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }


def _gang(number: int) -> Iterator[Document]:
    """A queue and a Job with names and amounts of their own, and what surrounds them."""
    yield _queue(f"queue-{number}")
    yield from _devices_job(f"gang-{number}", number, f"queue-{number}")
    yield from _oddities(number)


def _intruder(number: int, *, reclaims: bool) -> Iterator[Document]:
    """A Job for which gang ``number`` must go: one of its queue, or one of another queue."""
    queue = f"queue-{number}"
    if reclaims:
        queue = f"reclaiming-{number}"
        yield _queue(queue)
    yield from _devices_job(f"intruder-{number}", number, queue, priority="high")


def _queue(name: str) -> Document:
    return {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"deservedGPUs": 8},
    }


def _devices_job(name: str, number: int, queue: str, priority: str = "") -> Iterator[Document]:
    """A Job whose pods need a GPU each: by a claim of their own; where odd, of the plugin."""
    if number % 2:
        yield _job(name, number, queue, priority=priority)
        return
    own = f"device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('{number + 1}Ki'))"
    exactly = {"deviceClassName": "gpu.example.com", "selectors": [{"cel": {"expression": own}}]}
    request = {"name": "gpu", "exactly": exactly}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"{name}-gpus"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    yield _job(name, number, queue, claim=f"{name}-gpus", priority=priority)


def _job(name: str, number: int, queue: str, *, claim: str = "", priority: str = "") -> Document:
    resources: Document = {"requests": {"cpu": "100m", "memory": str((1 << 20) + number)}}
    container: Document = {"name": "main", "image": "trainer", "resources": resources}
    spec: Document = {"schedulerName": "kai-scheduler", "restartPolicy": "Never"}
    if claim:
        resources["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim}]
    else:
        resources["limits"] = {"nvidia.com/gpu": "1"}
    if priority:
        spec["priorityClassName"] = priority
    if number % 3 == 0:
        spec["affinity"] = {"podAntiAffinity": _anti_affinity(number)}
    template = {
        "metadata": {
            "labels": {f"label-{number}": "yes", "gang": f"gang-{number}"},
            "annotations": {RUN_SECONDS: "2", f"note-{number}": f"text {number}"},
        },
        "spec": {**spec, "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"scheduling.kai.io/queue-name": queue}},
        "spec": {
            "parallelism": PODS_PER_GANG,
            "completions": PODS_PER_GANG,
            # So that some survive an eviction of their pods, and others must be suspended.
            "backoffLimit": number // GANGS_AT_ONCE % 3 * PODS_PER_GANG,
            "template": template,
        },
    }


def _anti_affinity(number: int) -> Document:
    term = {
        "labelSelector": {"matchLabels": {f"other-{number}": "yes"}},
        "topologyKey": f"example.com/zone-{number}",
    }
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
    }


def _oddities(number: int) -> Iterator[Document]:
    """What only some tenants write."""
    resource = f"example.com/thing-{number}"
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: "1"}}}
    foreign = {"nodeName": "node-0", "schedulerName": "other", "containers": [container]}
    ours = {"schedulerName": "kai-scheduler", "containers": [container]}
    yield _pod(f"foreign-{number}", foreign)
    yield _pod(
        f"ghost-{number}", ours, annotations={"scheduling.kai.io/queue-name": f"no-{number}"}
    )
    shared = {"scheduling.kai.io/queue-name": f"queue-{number}", "gpu-fraction": "0.5"}
    plain = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "x"}]}
    yield _pod(f"part-{number}", plain, annotations=shared)
    owner = {
        "apiVersion": f"group-{number}.example.com/v1",
        "kind": f"Kind{number}",
        "name": "owner",
        "uid": f"owner-{number}",
        "controller": True,
    }
    owned = {"scheduling.kai.io/queue-name": f"queue-{number}"}
    yield _pod(f"owned-{number}", plain, annotations=owned, ownerReferences=[owner])
    if number % 4 == 3:
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"budget-{number}"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"gang": f"gang-{number}"}}},
        }
    yield {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": f"namespace-{number}", "labels": {f"team-{number}": "yes"}},
    }


def _pod(name: str, spec: Document, **metadata: Any) -> Document:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}
