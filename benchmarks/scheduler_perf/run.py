"""One workload by one scheduler: its operations on a real control plane, and what is measured.

Measured are the pods of the operation with ``collectMetrics``: from its beginning to the last
binding that a client sees, and the processor time of the scheduler meanwhile.
"""

import fnmatch
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.api.cluster import at_once
from benchmarks.api.documents import QUEUE_LABEL
from benchmarks.api.watching import Seen
from benchmarks.processes import processor_seconds
from benchmarks.scheduler_perf.lists import Operation, Workload, manifest
from tests.cluster.controlplane import Process
from tests.support.cluster.api import Api, ApiError, Document

NODES = "/api/v1/nodes"
LONGEST = 600.0
HOSTNAME = "kubernetes.io/hostname"


class UnsupportedOperationError(RuntimeError):
    """The runner lacks an operation of a list."""


@dataclass(frozen=True)
class Outcome:
    """Pods bound, the seconds that took, and processor seconds of the scheduler.

    ``creating``: the seconds after which the last pod was created; the rest is the scheduler's.
    """

    pods: int
    seconds: float
    processor: float
    creating: float

    @property
    def rate(self) -> float:
        """Pods bound in a second."""
        return self.pods / self.seconds

    @property
    def creation_rate(self) -> float:
        """Pods created in a second, which limits ``rate``."""
        return self.pods / self.creating

    @property
    def processor_per_pod(self) -> float:
        """Milliseconds of processor time for a pod."""
        return self.processor / self.pods * 1e3


@dataclass
class Run:
    """The state of one run: pods so far by namespace, and numbers for names."""

    api: Api
    seen: Seen
    scheduler: str
    process: Process
    workload: Workload
    wanted: int = 0
    """Pods that will have been bound when all operations so far are done."""
    outcome: Outcome | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)
    nodes: list[str] = field(default_factory=list)

    async def perform(self) -> Outcome:
        """Do every operation; returns what was measured."""
        for operation in self.workload.operations:
            await OPERATIONS.get(operation.opcode, _refuse)(self, operation)
        if self.outcome is None:
            raise UnsupportedOperationError(f"{self.workload.case} measures no pods")
        return self.outcome

    def template(self, path: str, index: int = 0) -> Document:
        """An object from a template of the list."""
        return manifest(self.workload.directory, path, index)


async def create_nodes(run: Run, operation: Operation) -> None:
    """Create nodes with the usual label, and those labels that a strategy spreads over them."""
    fields, made = operation.fields, []
    template = fields.get("nodeTemplatePath")
    for number in range(int(fields["count"])):
        node = run.template(template, number) if template else default_node()
        metadata = node["metadata"]
        name = metadata.pop("generateName", None)
        if name is not None:
            metadata["name"] = f"{name}{next(run.numbers):05d}"
        labels = metadata.setdefault("labels", {})
        labels[HOSTNAME] = metadata["name"]
        strategy = fields.get("labelNodePrepareStrategy")
        if strategy:
            values = strategy["labelValues"]
            labels[strategy["labelKey"]] = values[number % len(values)]
        unique = fields.get("uniqueNodeLabelStrategy")
        if unique:
            labels[unique["labelKey"]] = str(number)
        status = node["status"]
        status.setdefault("allocatable", status["capacity"])
        made.append(node)
    run.nodes += [node["metadata"]["name"] for node in made]
    await at_once(made, lambda node: run.api.request("POST", NODES, node))


def default_node() -> Document:
    """The node of operations that name no template (node_util.go of the lists)."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"generateName": "scheduler-perf-"},
        "status": {
            "capacity": {"pods": "110", "cpu": "4", "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


async def create_namespaces(run: Run, operation: Operation) -> None:
    """Create namespaces by prefix and number."""
    template = operation.fields.get("namespaceTemplatePath")
    for number in range(int(operation.fields["count"])):
        labels = run.template(template)["metadata"].get("labels", {}) if template else {}
        await _namespace(run, f"{operation.fields['prefix']}-{number}", labels)


async def create_pods(run: Run, operation: Operation) -> None:
    """Create pods and, unless the list says otherwise, wait until they are bound."""
    fields = operation.fields
    count, namespace = int(fields["count"]), fields.get("namespace") or f"ns-{next(run.numbers)}"
    if unsupported := {"persistentVolumeTemplatePath", "steadyState"} & fields.keys():
        raise UnsupportedOperationError(f"createPods with {', '.join(sorted(unsupported))}")
    await _namespace(run, namespace, {})
    template = fields.get("podTemplatePath") or run.workload.pod_template
    pods = [_pod(run, template, number) for number in range(count)]
    began, spent = time.perf_counter(), processor_seconds(run.process.pid)
    await at_once(
        pods, lambda pod: run.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    )
    created = time.perf_counter()
    if fields.get("skipWaitToCompletion"):
        return
    run.wanted += count
    await run.seen.all_bound(run.wanted, within=LONGEST)
    if operation.is_measured:
        processor = processor_seconds(run.process.pid) - spent
        run.outcome = Outcome(count, run.seen.last_bound - began, processor, created - began)


def _pod(run: Run, template: str, number: int) -> Document:
    pod = run.template(template, number)
    pod["spec"]["schedulerName"] = run.scheduler
    return pod


async def create_pod_sets(run: Run, operation: Operation) -> None:
    """Create several sets of pods, each in a namespace of its own."""
    inner = operation.fields["createPodsOp"]
    for number in range(int(operation.fields["count"])):
        namespace = f"{operation.fields.get('namespacePrefix', 'set')}-{number}"
        await create_pods(run, Operation("createPods", {**inner, "namespace": namespace}))


async def create_any(run: Run, operation: Operation) -> None:
    """Create objects from a template."""
    namespace = operation.fields.get("namespace", "")
    if namespace:
        await _namespace(run, namespace, {})
    for index in range(int(operation.fields.get("count", 1))):
        document = run.template(operation.fields["templatePath"], index)
        await run.api.create(document, namespace=namespace)


async def create_resource_driver(run: Run, operation: Operation) -> None:
    """Publish as many devices on each matching node as it may have claims."""
    fields = operation.fields
    driver, count = fields["driverName"], int(fields["maxClaimsPerNode"])
    for name in fnmatch.filter(run.nodes, fields["nodes"]):
        await run.api.create(resource_slice(name, driver, count))


def resource_slice(node: str, driver: str, devices: int) -> Document:
    """The slice of a node's pool, as the driver of the lists publishes it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"instance-{number}"} for number in range(devices)],
        },
    }


async def barrier(run: Run, _operation: Operation) -> None:
    """Wait until every pod so far is bound."""
    await run.seen.all_bound(run.wanted, within=LONGEST)


async def _refuse(_run: Run, operation: Operation) -> None:
    raise UnsupportedOperationError(operation.opcode)


async def _namespace(run: Run, name: str, labels: dict[str, str]) -> None:
    metadata: dict[str, Any] = {"name": name, "labels": {**labels, **QUEUE_LABEL}}
    try:
        await run.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        patch = {"metadata": {"labels": metadata["labels"]}}
        await run.api.patch(f"/api/v1/namespaces/{name}", patch)


OPERATIONS = {
    "barrier": barrier,
    "createAny": create_any,
    "createNamespaces": create_namespaces,
    "createNodes": create_nodes,
    "createPodSets": create_pod_sets,
    "createPods": create_pods,
    "createResourceDriver": create_resource_driver,
}
