"""Small clusters for tests of pure code: objects in, snapshot and plan out.

Everything goes through the builder and the real grouping, so a test states what a user would write.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec.structs import replace

from kai_py.api.queue import read_queue
from kai_py.api.records.core import (
    Condition,
    Container,
    LabelSelector,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kai_py.api.records.job import Job, JobSpec
from kai_py.api.records.node import Node, NodeSpec, NodeStatus
from kai_py.api.records.policy import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kai_py.api.records.resource import DeviceClass, ResourceClaim, ResourceSlice
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.grouper import Grouper
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Plan
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.fairness_rules import FairnessRules
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.tables.queue_objects import queue_info
from tests.support.records import from_json

QUEUE = "scheduling.kai.io/queue-name"
START = 1_800_000_000.0
GPU_DRIVER = "gpu.nvidia.com"


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, UTC)


def node(
    name: str, gpus: int = 8, cpu: str = "64", labels: Mapping[str, str] | None = None, **spec
):
    allocatable = {"cpu": cpu, "memory": "512Gi", "pods": "110"}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    return Node(
        metadata=ObjectMeta(
            name=name, uid=f"node-{name}", labels={"kubernetes.io/hostname": name, **(labels or {})}
        ),
        spec=NodeSpec(**spec),
        status=NodeStatus(
            allocatable=allocatable, conditions=(Condition(type="Ready", status="True"),)
        ),
    )


def job(
    name: str, pods: int, queue: str = "", namespace: str = "default", **annotations: str
) -> Job:
    marks = {QUEUE: queue} if queue else {}
    return Job(
        metadata=ObjectMeta(
            name=name, namespace=namespace, uid=f"job-{name}", annotations={**marks, **annotations}
        ),
        spec=JobSpec(parallelism=pods, completions=pods),
    )


def pod(
    name: str,
    gpus: int = 1,
    *,
    queue: str = "",
    node: str = "",
    priority: int = 0,
    created: float = 0.0,
    owner: Job | None = None,
    phase: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    leaving: bool = False,
    **spec,
) -> Pod:
    wanted = {"cpu": "1", **(requests or {})}
    if gpus:
        wanted["nvidia.com/gpu"] = str(gpus)
    references = ()
    if owner is not None:
        references = (
            OwnerReference(
                api_version="batch/v1",
                kind="Job",
                name=owner.metadata.name,
                uid=owner.metadata.uid,
                controller=True,
            ),
        )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"pod-{name}",
            creation_timestamp=at(created),
            deletion_timestamp=at(1000) if leaving else None,
            annotations={**({QUEUE: queue} if queue else {}), **(annotations or {})},
            labels=dict(labels or {}),
            owner_references=references,
        ),
        spec=PodSpec(
            scheduler_name=spec.pop("scheduler_name", "kai-scheduler"),
            node_name=node,
            priority=priority,
            containers=(Container(name="main", resources=ResourceRequirements(requests=wanted)),),
            **spec,
        ),
        status=PodStatus(phase=phase or ("Running" if node else "Pending")),
    )


def job_with_pods(name: str, pods: int, gpus: int = 1, *, queue: str, **options) -> list:
    owner = job(name, pods, queue)
    return [owner, *(pod(f"{name}-{i}", gpus, owner=owner, **options) for i in range(pods))]


def queue(name: str, deserved: float = 0, maximum: float | None = None, **spec):
    document = {"metadata": {"name": name}, "spec": {"deservedGPUs": deserved, **spec}}
    if maximum is not None:
        document["spec"]["maxGPUs"] = maximum
    return queue_info(read_queue(document))


def gpu_slice(node_name: str, gpus: int = 8, product: str = "NVIDIA H100 80GB HBM3"):
    """A ResourceSlice in NVIDIA's shape: one node-local pool of whole GPUs."""
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-{node_name}-{i}"},
                "productName": {"string": product},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{i // 4}"},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for i in range(gpus)
    ]
    return device_slice(node_name, devices)


def device_slice(
    node_name: str, devices=(), *, driver: str = GPU_DRIVER, part: str = "gpus", of: int = 1, **spec
) -> ResourceSlice:
    """Devices of a node; ``part``, ``of``: which slice of its pool it is, of how many."""
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": of}
    content = {"driver": driver, "nodeName": node_name, "pool": pool} | spec
    if devices := list(devices):
        content["devices"] = devices
    return from_json(ResourceSlice, {"metadata": {"name": f"{node_name}-{part}"}, "spec": content})


def partitions(node_name: str, devices, counters, *, driver: str = GPU_DRIVER) -> list:
    """The slices of devices that draw from ``counters``: counter sets to their counters."""
    sets = [
        {"name": name, "counters": {key: {"value": str(value)} for key, value in values.items()}}
        for name, values in counters.items()
    ]
    return [
        device_slice(node_name, devices, driver=driver, part="devices", of=2),
        device_slice(node_name, driver=driver, part="sets", of=2, sharedCounters=sets),
    ]


def device_class(name: str = GPU_DRIVER, expression: str = "", *, resource: str = ""):
    """``resource``: the extended resource that the class serves."""
    cel = expression or f'device.driver == "{GPU_DRIVER}"'
    spec = {"selectors": [{"cel": {"expression": cel}}]}
    if resource:
        spec["extendedResourceName"] = resource
    return from_json(DeviceClass, {"metadata": {"name": name}, "spec": spec})


def budget(allowed: int, app: str = "web") -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=app, namespace="default", uid=f"budget-{app}"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": app})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def claim(name: str, count: int = 1, *, selector: str = "", owner: str = "", held_by=(), on=()):
    """A claim for ``count`` GPUs; ``owner``: pod name; ``on``: (node, device) already allocated."""
    exactly = {"deviceClassName": GPU_DRIVER, "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    request = {"name": "gpu", "exactly": exactly}
    return claim_of(name, request, owner=owner, held_by=held_by, on=on)


def claim_of(
    name: str,
    *requests: dict,
    owner: str = "",
    driver: str = GPU_DRIVER,
    on=(),
    of: str = "",
    held_by=(),
    **devices,
) -> ResourceClaim:
    """A claim with these requests; ``of``: which one has the devices ``on``, if not the first."""
    meta = {"name": name, "namespace": "default", "uid": f"claim-{name}"}
    if owner:
        reference = {"kind": "Pod", "name": owner, "uid": f"pod-{owner}", "controller": True}
        meta["ownerReferences"] = [reference]
    document = {"metadata": meta, "spec": {"devices": {"requests": requests, **devices}}}
    if on:
        results = [
            {
                "request": of or requests[0]["name"],
                "driver": driver,
                "pool": node_name,
                "device": device,
            }
            for node_name, device in on
        ]
        field = {"key": "metadata.name", "operator": "In", "values": [on[0][0]]}
        document["status"] = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [
                {"resource": "pods", "name": each, "uid": f"pod-{each}"} for each in held_by
            ],
        }
    return from_json(ResourceClaim, document)


def shared(each: Pod, fraction: str = "", *, group: str = "", index: str = "", **notes) -> Pod:
    """``each`` with a part of a GPU: the annotation ``gpu-fraction`` and others, and its group."""
    written = {"gpu-fraction": fraction} if fraction else {}
    written |= {name.replace("_", "-"): value for name, value in notes.items()}
    written |= {"scheduling.kai.io/gpu-index": index} if index else {}
    groups = {"runai-gpu-group": group} if group else {}
    meta = replace(
        each.metadata,
        annotations={**each.metadata.annotations, **written},
        labels={**each.metadata.labels, **groups},
    )
    return replace(each, metadata=meta)


def claiming(each: Pod, claim_name: str, *, template: bool = True) -> Pod:
    """``each`` with a claim, from a template or by its own name."""
    wanted = PodResourceClaim(
        name="gpu",
        resource_claim_template_name="gpu" if template else "",
        resource_claim_name="" if template else claim_name,
    )
    status = (
        (PodResourceClaimStatus(name="gpu", resource_claim_name=claim_name),) if template else ()
    )
    return replace(
        each,
        spec=replace(each.spec, resource_claims=(wanted,)),
        status=replace(each.status, resource_claim_statuses=status),
    )


def claiming_job(name: str, pods: int, count: int = 1, *, queue: str, **options) -> list:
    """A Job whose pods each have a template claim for ``count`` GPUs."""
    owner = job(name, pods, queue)
    made: list = [owner]
    for i in range(pods):
        each = f"{name}-{i}"
        made.append(claim(f"{each}-gpu", count, owner=each))
        made.append(claiming(pod(each, 0, owner=owner, **options), f"{each}-gpu"))
    return made


KINDS = {
    "Pod": "pods",
    "Node": "nodes",
    "Job": "jobs",
    "QueueInfo": "queues",
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
    "PartialObjectMetadata": "namespaces",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "NodeResourceTopology": "noderesourcetopologies",
    "CSINode": "csinodes",
    "CSIDriver": "csidrivers",
    "VolumeAttachment": "volumeattachments",
    "CSIStorageCapacity": "csistoragecapacities",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "StorageClass": "storageclasses",
}


AS_IF_OWNED = FairnessRules(relocates_ownerless=True)
"""Most pods of tests have no owner, and stand for pods that are created again."""


@dataclass
class Cluster:
    """Objects by kind and name, and the builder that follows them."""

    settings: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.devices = ClusterDevices()
        self.builder = SnapshotBuilder(Grouper().identify, self.devices, lambda spec: spec)
        self.memory = CycleMemory(self.devices)
        self._known: dict = {}

    def add(self, *objects) -> "Cluster":
        for listed in objects:
            for each in listed if isinstance(listed, list) else [listed]:
                key = _key(each)
                self.builder.apply(key[0], self._known.get(key), each)
                self._known[key] = each
        return self

    def remove(self, *objects) -> "Cluster":
        for each in objects:
            key = _key(each)
            self.builder.apply(key[0], self._known.pop(key), None)
        return self

    def get(self, kind: str, name: str, namespace: str = "default"):
        return self._known[kind, namespace, name]

    def all(self, *kinds: str) -> list:
        """The objects of some kinds, or of all."""
        return [each for (kind, *_), each in self._known.items() if kind in kinds or not kinds]

    def snapshot(self, now: float = 1000.0):
        return self.builder.snapshot(START + now)

    def plan(self, now: float = 1000.0) -> Plan:
        settings = CycleSettings(**{"rules": AS_IF_OWNED, **self.settings})
        return run_cycle(self.snapshot(now), settings, self.memory)


def _key(each) -> tuple[str, str, str]:
    kind = KINDS[type(each).__name__]
    if kind == "queues":
        return kind, "", each.name
    return kind, each.metadata.namespace, each.metadata.name


def cluster(*objects, **settings) -> Cluster:
    return Cluster(settings).add(*objects)


def placed(plan: Plan) -> dict[str, str]:
    """Pod name to node."""
    return {p.pod.name: p.node for gang in plan.placements for p in gang.pods}


def evicted(plan: Plan) -> list[str]:
    return sorted(eviction.pod.name for eviction in plan.evictions)


def moves(plan: Plan) -> dict[str, str]:
    """The nodes to which evicted pods are relocated; "" for those that are lost."""
    return {eviction.pod.name: eviction.relocated_to for eviction in plan.evictions}


def nominated(plan: Plan) -> dict[str, str]:
    return {nomination.pod.name: nomination.node for nomination in plan.nominations}
