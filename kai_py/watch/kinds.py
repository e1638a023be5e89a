"""The kinds that are watched, their versions, and how much is read of each.

Every record type holds only the fields that are used. Owners and namespaces are needed for their
labels, annotations and owner references alone, so only metadata is requested. A kind that a server
does not serve is simply empty, and so is one that it refuses us, unless it is required.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from kai_py.api.queue import GROUP, VERSION, Queue, read_queue
from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata, Pod
from kai_py.api.records.interning import interned
from kai_py.api.records.job import Job, job_decoder
from kai_py.api.records.kai import KaiPodGroup, KaiQueue, KaiTopology
from kai_py.api.records.node import GROUP as NODE_TOPOLOGY_GROUP
from kai_py.api.records.node import Node, NodeResourceTopology
from kai_py.api.records.policy import PodDisruptionBudget, PriorityClass
from kai_py.api.records.record import Record, record_decoder
from kai_py.api.records.resource import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from kai_py.api.records.resource_admin import DeviceTaintRule, ResourcePoolStatusRequest
from kai_py.api.records.resource_versions import PREFERRED_VERSIONS, decoder
from kai_py.api.records.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from kai_py.api.records.unstructured import Unstructured, unstructured_decoder
from kai_py.watch.resource import Kind, Resource, define_kind
from kai_py.watch.wire import without_nulls


class WatchedQueue(Struct, frozen=True):
    """A Queue and the metadata of its object."""

    metadata: ObjectMeta
    queue: Queue


class _Metadata(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_decode_metadata = record_decoder(_Metadata)


def _decode_queue(raw: bytes | msgspec.Raw) -> WatchedQueue:
    document = without_nulls(msgspec.json.decode(raw))
    return WatchedQueue(_decode_metadata(raw).metadata, read_queue(document))


DeviceRecord = TypeVar(
    "DeviceRecord",
    ResourceSlice,
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    DeviceTaintRule,
)


def _device_kind(
    record: type[DeviceRecord], plural: str, *versions: str, namespaced: bool = False
) -> Kind[DeviceRecord]:
    return Kind(
        name=record.__name__,
        plural=plural,
        versions={version: decoder(record, version) for version in versions},
        group="resource.k8s.io",
        namespaced=namespaced,
        holds_capacity=record is ResourceClaim,
    )


def owner_kind(name: str, plural: str, *versions: str, group: str) -> Kind[PartialObjectMetadata]:
    """Declare a kind that is watched for its metadata, as an owner of pods."""
    return define_kind(
        PartialObjectMetadata, name, plural, *versions, group=group, metadata_only=True
    )


PODS = define_kind(Pod, "Pod", "pods", "v1", required=True, holds_capacity=True)
NODES = define_kind(
    Node, "Node", "nodes", "v1", namespaced=False, required=True, holds_capacity=True
)
NAMESPACES = define_kind(
    PartialObjectMetadata, "Namespace", "namespaces", "v1", namespaced=False, metadata_only=True
)
PRIORITY_CLASSES = define_kind(
    PriorityClass,
    "PriorityClass",
    "priorityclasses",
    "v1",
    group="scheduling.k8s.io",
    namespaced=False,
    required=True,
)
DISRUPTION_BUDGETS = define_kind(
    PodDisruptionBudget, "PodDisruptionBudget", "poddisruptionbudgets", "v1", group="policy"
)
VOLUME_CLAIMS = define_kind(
    PersistentVolumeClaim, "PersistentVolumeClaim", "persistentvolumeclaims", "v1"
)
VOLUMES = define_kind(
    PersistentVolume, "PersistentVolume", "persistentvolumes", "v1", namespaced=False
)
STORAGE_CLASSES = define_kind(
    StorageClass, "StorageClass", "storageclasses", "v1", group="storage.k8s.io", namespaced=False
)
CSI_NODES = define_kind(
    CSINode, "CSINode", "csinodes", "v1", group="storage.k8s.io", namespaced=False
)
CSI_DRIVERS = define_kind(
    CSIDriver, "CSIDriver", "csidrivers", "v1", group="storage.k8s.io", namespaced=False
)
STORAGE_CAPACITIES = define_kind(
    CSIStorageCapacity, "CSIStorageCapacity", "csistoragecapacities", "v1", group="storage.k8s.io"
)
VOLUME_ATTACHMENTS = define_kind(
    VolumeAttachment,
    "VolumeAttachment",
    "volumeattachments",
    "v1",
    group="storage.k8s.io",
    namespaced=False,
)
NODE_TOPOLOGIES = define_kind(
    NodeResourceTopology,
    "NodeResourceTopology",
    "noderesourcetopologies",
    "v1alpha2",
    "v1alpha1",
    group=NODE_TOPOLOGY_GROUP,
    namespaced=False,
)
JOBS: Kind[Job] = Kind(
    name="Job", plural="jobs", versions={"v1": interned(job_decoder())}, group="batch"
)
REPLICA_SETS = owner_kind("ReplicaSet", "replicasets", "v1", group="apps")
DEPLOYMENTS = owner_kind("Deployment", "deployments", "v1", group="apps")
STATEFUL_SETS: Kind[Unstructured] = Kind(
    name="StatefulSet",
    plural="statefulsets",
    versions={"v1": unstructured_decoder(("spec.podManagementPolicy", "spec.replicas"))},
    group="apps",
)

RESOURCE_SLICES = _device_kind(ResourceSlice, "resourceslices", *PREFERRED_VERSIONS)
RESOURCE_CLAIMS = _device_kind(
    ResourceClaim, "resourceclaims", *PREFERRED_VERSIONS, namespaced=True
)
RESOURCE_CLAIM_TEMPLATES = _device_kind(
    ResourceClaimTemplate, "resourceclaimtemplates", *PREFERRED_VERSIONS, namespaced=True
)
DEVICE_CLASSES = _device_kind(DeviceClass, "deviceclasses", *PREFERRED_VERSIONS)
DEVICE_TAINT_RULES = _device_kind(DeviceTaintRule, "devicetaintrules", "v1", "v1beta2", "v1alpha3")
POOL_STATUS_REQUESTS = define_kind(
    ResourcePoolStatusRequest,
    "ResourcePoolStatusRequest",
    "resourcepoolstatusrequests",
    "v1alpha3",
    group="resource.k8s.io",
    namespaced=False,
)
"""Not watched: what they report is known from slices and claims, and newer."""

QUEUES = Kind(
    name="Queue",
    plural="queues",
    versions={VERSION: _decode_queue},
    group=GROUP,
    namespaced=False,
    required=True,
)

KAI_QUEUES = define_kind(
    KaiQueue,
    "Queue",
    "queues",
    "v2",
    group="scheduling.run.ai",
    namespaced=False,
    required=True,
)
KAI_POD_GROUPS = define_kind(
    KaiPodGroup, "PodGroup", "podgroups", "v2alpha2", group="scheduling.run.ai"
)
KAI_TOPOLOGIES = define_kind(
    KaiTopology, "Topology", "topologies", "v1alpha1", group="kai.scheduler", namespaced=False
)


def _group_kind(
    name: str, group: str, *versions: str, status: tuple[str, ...] = ()
) -> Kind[Unstructured]:
    paths = ("spec", *(f"status.{each}" for each in status))
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        versions=dict.fromkeys(versions, unstructured_decoder(paths)),
        group=group,
    )


COSCHEDULING_GROUPS = _group_kind("PodGroup", "scheduling.x-k8s.io", "v1alpha1")
VOLCANO_GROUPS = _group_kind("PodGroup", "scheduling.volcano.sh", "v1beta1")
POD_GANGS = _group_kind("PodGang", "scheduler.grove.io", "v1alpha1", status=("conditions",))
NATIVE_GROUPS = _group_kind(
    "PodGroup",
    "scheduling.k8s.io",
    "v1beta1",
    "v1alpha3",
    "v1alpha2",
    status=("conditions", "resourceClaimStatuses"),
)
COMPOSITE_GROUPS = _group_kind(
    "CompositePodGroup", "scheduling.k8s.io", "v1beta1", "v1alpha3", status=("conditions",)
)
PROVISIONING_REQUESTS = _group_kind(
    "ProvisioningRequest", "autoscaling.x-k8s.io", "v1", "v1beta1", status=("conditions",)
)
NATIVE_WORKLOADS = _group_kind(
    "Workload", "scheduling.k8s.io", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"
)

WATCHED = (
    NODES,
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    KAI_QUEUES,
    KAI_TOPOLOGIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_SLICES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    STORAGE_CLASSES,
    VOLUMES,
    VOLUME_CLAIMS,
    CSI_NODES,
    CSI_DRIVERS,
    STORAGE_CAPACITIES,
    VOLUME_ATTACHMENTS,
    DISRUPTION_BUDGETS,
    NODE_TOPOLOGIES,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    JOBS,
    KAI_POD_GROUPS,
    POD_GANGS,
    COSCHEDULING_GROUPS,
    VOLCANO_GROUPS,
    COMPOSITE_GROUPS,
    NATIVE_GROUPS,
    NATIVE_WORKLOADS,
    PROVISIONING_REQUESTS,
    PODS,
)
"""The kinds that the scheduler mirrors."""

WATCHED_BY_NAME: dict[tuple[str, str], Kind[Any]] = {
    (kind.group, kind.name): kind for kind in WATCHED
}
"""By group and kind, as ``apiVersion`` and ``kind`` of an object give them."""

KIND_BY_COLLECTION = {kind.collection_name: (kind.at().api_version, kind.name) for kind in WATCHED}
"""API version and kind, as objects give them, by name of the collection."""


def watched_as(document: Mapping[str, Any]) -> Resource[Any] | None:
    """The resource as which the scheduler watches an object; None if it does not."""
    kind, api_version = _watched_kind(document), str(document.get("apiVersion", ""))
    if kind is None or kind.version_problem(api_version):
        return None
    return kind.at(api_version.rpartition("/")[2])


def unsupported_version(document: Mapping[str, Any]) -> str:
    """Why an object of a kind that the scheduler watches cannot be read; "" of any other object."""
    kind = _watched_kind(document)
    return "" if kind is None else kind.version_problem(str(document.get("apiVersion", "")))


def _watched_kind(document: Mapping[str, Any]) -> Kind[Any] | None:
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    return WATCHED_BY_NAME.get((group, str(document.get("kind", ""))))
