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
from kai_py.observe.cluster_metrics import ClusterMetrics
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.decision_log import DecisionLog
from kai_py.observe.decision_metrics import DecisionMetrics
from kai_py.observe.metrics import Metrics
from kai_py.observe.plan_observer import KaiQueueMetrics
from kai_py.observe.share_history import ShareHistory
from kai_py.plan.plan import Plan
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.execution import execute
from kai_py.snapshot.snapshot import Snapshot
from tests.soak.containers import container_sizes, module_roots

NODES = 4
PODS_PER_GANG = 8
ODD_PODS = 4
HISTORY_SECONDS = 7200.0
"""After which no eviction counts any more."""
KEPT_DECISIONS = 200
Document = dict[str, Any]


class RecordedCluster(SimulatedCluster):
    """A simulated cluster that shows every plan to ``on_plan``."""

    on_plan: Callable[[Snapshot, Plan], None] = staticmethod(lambda _snapshot, _plan: None)

    def cycle(self) -> Plan:
        """Run one scheduling cycle as the scheduler's process does."""
        snapshot = self.snapshot()
        plan = self.planner.decide(snapshot)
        self.planner.next_deadline(snapshot)
        self.on_plan(snapshot, plan)
        execute(plan, self.embedded.api, self.planner.builder, self.wake)
        return plan


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
    """Gangs that live one after another; nothing of them is left when ``live_through`` returns."""

    def __init__(self) -> None:
        # No webhook runs here, so containers are not kept to the GPUs that they share.
        sharing = GpuSharingConfig(isolation=GpuIsolation.NONE)
        configuration = Configuration(kai=KaiConfig(queue_metrics=True), gpu_sharing=sharing)
        timing = PodTiming(start=0.0, stop=0.0)
        self.cluster = RecordedCluster(configuration, start=SIMULATION_START, timing=timing)
        self.observers = Observers()
        self.cluster.on_plan = self.observers.show
        self.lives = 0
        for document in _infrastructure():
            self.cluster.embedded.create(document)

    def live_through(self, gangs: range) -> None:
        """Let each of ``gangs`` wait, run and end; some are preempted meanwhile."""
        for number in gangs:
            made = [*_gang(number), *_oddities(number)]
            if number % 5 == 0:
                made = [*_node(f"scaled-{number}"), *made]
            for document in made:
                self.cluster.embedded.create(document)
            self._settle(0.5)
            self._change_queue(number)
            if number % 7 == 0:
                self._preempt(number)
            self._settle(2.0)
            for document in reversed(made):
                self._delete(document)
            self._settle(1.0)
            self.lives += PODS_PER_GANG + ODD_PODS
            self.cluster.embedded.store.compact()

    def sizes(self) -> dict[str, int]:
        """The sizes of all containers of the scheduler's process."""
        self._settle(HISTORY_SECONDS)
        generate_latest(self.observers.metrics.registry)
        gc.collect()
        roots = {"planner": self.cluster.planner, "observers": self.observers}
        return container_sizes({**roots, **module_roots()})

    def _settle(self, seconds: float) -> None:
        self.cluster.settle(seconds)
        self.cluster.clock.advance(seconds)

    def _change_queue(self, number: int) -> None:
        api = self.cluster.embedded.api
        queues = next(each for each in api.registry.storages() if each.plural == "queues")
        api.edit(
            queues, f"queue-{number}", "", lambda old: {**old, "spec": {"deservedGPUs": number % 9}}
        )

    def _preempt(self, number: int) -> None:
        intruder = _job(f"intruder-{number}", number, gpus=8, priority="high")
        self.cluster.embedded.create(intruder)
        self._settle(2.0)
        self._delete(intruder)

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
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
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
    """A queue, a claim template and a Job, all with names and amounts of their own."""
    yield {
        "apiVersion": "scheduling.kai.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": f"queue-{number}"},
        "spec": {"deservedGPUs": 8},
    }
    own = f"device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('{number + 1}Ki'))"
    exactly = {"deviceClassName": "gpu.example.com", "selectors": [{"cel": {"expression": own}}]}
    request = {"name": "gpu", "exactly": exactly}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": f"gpus-{number}"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    yield _job(f"gang-{number}", number, claim=f"gpus-{number}")


def _job(name: str, number: int, *, claim: str = "", gpus: int = 0, priority: str = "") -> Document:
    requests = {"cpu": f"{number + 1}m"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container: Document = {"name": "main", "image": "trainer", "resources": {"requests": requests}}
    if gpus:
        container["resources"]["limits"] = {"nvidia.com/gpu": str(gpus)}
    spec: Document = {"schedulerName": "kai-scheduler", "restartPolicy": "Never"}
    if claim:
        container["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim}]
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
        "metadata": {
            "name": name,
            "annotations": {"scheduling.kai.io/queue-name": f"queue-{number}"},
        },
        "spec": {
            "parallelism": PODS_PER_GANG,
            "completions": PODS_PER_GANG,
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
