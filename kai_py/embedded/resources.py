"""The resources that the server serves, built-in and custom.

A `ServedResource` is one (group, version, plural) as discovery lists it. The built-in ones are
constants here; custom ones are added to the `Registry` while the server runs. Resources that share
a `storage` are views of the same objects.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TypeAlias

from kai_py.embedded import columns
from kai_py.embedded.columns import Column
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import FieldError, no_such_resource
from kai_py.embedded.kinds import (
    KindRules,
    claims,
    cluster,
    device_taints,
    devices,
    pod_defaults,
    pods,
    workloads,
)
from kai_py.embedded.kinds.cluster import from_events_group, to_events_group

Convert: TypeAlias = Callable[[Json], Json]


def _unchanged(document: Json) -> Json:
    return document


def _no_unknown_fields(_document: Json) -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class ServedResource:
    """One served resource.

    `subresources` lists what may follow a name in a path; with `status` among them the main
    endpoint ignores status and the status endpoint everything else. `selectable` are the fields a
    field selector may use besides name and namespace. `storage` is the key of its objects in the
    store, `to_stored` and `to_served` convert between the stored and this version. With `custom`,
    updates without resourceVersion and strategic patches are errors.
    """

    group: str
    version: str
    plural: str
    kind: str
    _: KW_ONLY
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    columns: tuple[Column, ...] = columns.NAME_AND_AGE
    rules: KindRules = field(default_factory=KindRules)
    custom: bool = False
    orphans_by_default: bool = False
    storage: str = ""
    to_stored: Convert = _unchanged
    to_served: Convert = _unchanged
    unknown_fields: Callable[[Json], Sequence[str]] = _no_unknown_fields

    def __post_init__(self) -> None:
        if not self.storage:
            object.__setattr__(self, "storage", self.group_resource)

    @property
    def group_resource(self) -> str:
        """The name in messages and in `Registry.named`: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        """Whether status is written through its own endpoint."""
        return "status" in self.subresources


_EVENT_FIELDS = (
    *(f"involvedObject.{each}" for each in ("kind", "namespace", "name", "uid", "fieldPath")),
    "reason",
    "reportingComponent",
    "source",
    "type",
)

_CORE = partial(ServedResource, "", "v1")
_APPS = partial(ServedResource, "apps", "v1")
_RESOURCE = partial(ServedResource, "resource.k8s.io", "v1")

PODS = _CORE(
    "pods",
    "Pod",
    short_names=("po",),
    categories=("all",),
    subresources=("status", "binding", "eviction"),
    selectable=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    columns=columns.POD,
    rules=pods.POD_RULES,
)
NODES = _CORE(
    "nodes",
    "Node",
    namespaced=False,
    short_names=("no",),
    subresources=("status",),
    selectable=("spec.unschedulable",),
    columns=columns.NODE,
    rules=cluster.NODE_RULES,
)
NAMESPACES = _CORE(
    "namespaces",
    "Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=("status", "finalize"),
    selectable=("status.phase",),
    columns=columns.NAMESPACE,
    rules=cluster.NAMESPACE_RULES,
)
EVENTS = _CORE(
    "events",
    "Event",
    short_names=("ev",),
    selectable=_EVENT_FIELDS,
    columns=columns.EVENT,
    rules=cluster.EVENT_RULES,
)
EVENTS_GROUP = ServedResource(
    "events.k8s.io",
    "v1",
    "events",
    "Event",
    short_names=("ev",),
    selectable=_EVENT_FIELDS,
    columns=columns.EVENT,
    rules=cluster.EVENT_RULES,
    storage="events",
    to_stored=from_events_group,
    to_served=to_events_group,
)
SERVICES = _CORE("services", "Service", short_names=("svc",), subresources=("status",))
CONFIG_MAPS = _CORE("configmaps", "ConfigMap", short_names=("cm",), columns=columns.CONFIG_MAP)
SECRETS = _CORE("secrets", "Secret", selectable=("type",), columns=columns.SECRET)
SERVICE_ACCOUNTS = _CORE("serviceaccounts", "ServiceAccount", short_names=("sa",))
VOLUME_CLAIMS = _CORE(
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    short_names=("pvc",),
    subresources=("status",),
    rules=cluster.VOLUME_CLAIM_RULES,
)
VOLUMES = _CORE(
    "persistentvolumes",
    "PersistentVolume",
    namespaced=False,
    short_names=("pv",),
    subresources=("status",),
    rules=cluster.VOLUME_RULES,
)
DEPLOYMENTS = _APPS(
    "deployments",
    "Deployment",
    short_names=("deploy",),
    categories=("all",),
    subresources=("status", "scale"),
    columns=columns.DEPLOYMENT,
    rules=workloads.DEPLOYMENT_RULES,
)
REPLICA_SETS = _APPS(
    "replicasets",
    "ReplicaSet",
    short_names=("rs",),
    categories=("all",),
    subresources=("status", "scale"),
    selectable=("status.replicas",),
    columns=columns.REPLICA_SET,
    rules=workloads.REPLICA_SET_RULES,
)
STATEFUL_SETS = _APPS(
    "statefulsets",
    "StatefulSet",
    short_names=("sts",),
    categories=("all",),
    subresources=("status", "scale"),
    columns=columns.STATEFUL_SET,
    rules=workloads.STATEFUL_SET_RULES,
)
JOBS = ServedResource(
    "batch",
    "v1",
    "jobs",
    "Job",
    categories=("all",),
    subresources=("status",),
    selectable=("status.successful",),
    columns=columns.JOB,
    rules=workloads.JOB_RULES,
    orphans_by_default=True,
)
CLAIMS = _RESOURCE(
    "resourceclaims",
    "ResourceClaim",
    subresources=("status",),
    columns=columns.CLAIM,
    rules=claims.CLAIM_RULES,
)
CLAIM_TEMPLATES = _RESOURCE(
    "resourceclaimtemplates", "ResourceClaimTemplate", rules=claims.CLAIM_TEMPLATE_RULES
)
DEVICE_CLASSES = _RESOURCE(
    "deviceclasses", "DeviceClass", namespaced=False, rules=devices.DEVICE_CLASS_RULES
)
SLICES = _RESOURCE(
    "resourceslices",
    "ResourceSlice",
    namespaced=False,
    selectable=("spec.nodeName", "spec.driver"),
    columns=columns.SLICE,
    rules=devices.SLICE_RULES,
)
TAINT_RULES = _RESOURCE(
    "devicetaintrules",
    "DeviceTaintRule",
    namespaced=False,
    subresources=("status",),
    rules=device_taints.TAINT_RULE_RULES,
)
PRIORITY_CLASSES = ServedResource(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    namespaced=False,
    short_names=("pc",),
    columns=columns.PRIORITY_CLASS,
    rules=cluster.PRIORITY_CLASS_RULES,
)
BUDGETS = ServedResource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    short_names=("pdb",),
    subresources=("status",),
    columns=columns.BUDGET,
    rules=cluster.BUDGET_RULES,
)
RUNTIME_CLASSES = ServedResource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)
LIMIT_RANGES = ServedResource(
    "",
    "v1",
    "limitranges",
    "LimitRange",
    short_names=("limits",),
    rules=KindRules(default=pod_defaults.default_limit_range),
)
LEASES = ServedResource("coordination.k8s.io", "v1", "leases", "Lease", columns=columns.LEASE)
STORAGE_CLASSES = ServedResource(
    "storage.k8s.io",
    "v1",
    "storageclasses",
    "StorageClass",
    namespaced=False,
    short_names=("sc",),
    rules=cluster.STORAGE_CLASS_RULES,
)

BUILT_IN = (
    PODS, NODES, NAMESPACES, EVENTS, SERVICES, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS,
    VOLUME_CLAIMS, VOLUMES, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, CLAIMS,
    CLAIM_TEMPLATES, DEVICE_CLASSES, SLICES, TAINT_RULES, PRIORITY_CLASSES, BUDGETS, LEASES,
    STORAGE_CLASSES, EVENTS_GROUP, RUNTIME_CLASSES, LIMIT_RANGES,
)  # fmt: skip
CHECKED_KINDS = {
    (each.group, each.kind): each.rules
    for each in (CLAIMS, CLAIM_TEMPLATES, DEVICE_CLASSES, TAINT_RULES, BUDGETS, PRIORITY_CLASSES)
} | {(SLICES.group, SLICES.kind): KindRules(validate=devices.validate_slice)}
"""Rules by group and kind; of slices those that older versions of Kubernetes have, too."""


def kind_errors(group: str, document: Json) -> list[FieldError]:
    """The errors in an object of these kinds, whose defaults are set; none in any other object."""
    rules = CHECKED_KINDS.get((group, document["kind"]), KindRules())
    rules.default(document)
    return rules.validate(document)


class Registry:
    """The served resources, built-in and custom, in the order in which they were added."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], ServedResource] = {}
        for resource in BUILT_IN:
            self.add(resource)

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(tuple(self._by_path.values()))

    def add(self, resource: ServedResource) -> None:
        """Serve a resource, replacing one with the same path."""
        self._by_path[resource.group, resource.version, resource.plural] = resource

    def remove(self, storage: str) -> None:
        """Stop serving every version of the resource kept in `storage`."""
        kept = {path: each for path, each in self._by_path.items() if each.storage != storage}
        self._by_path = kept

    def at(self, group: str, version: str, plural: str) -> ServedResource:
        """The resource at a path; raises RequestError 404 when there is none."""
        try:
            return self._by_path[group, version, plural]
        except KeyError:
            raise no_such_resource() from None

    def named(self, group_resource: str) -> ServedResource:
        """The first served version of `pods`, `jobs.batch`, …; raises RequestError 404."""
        for resource in self:
            if resource.group_resource == group_resource:
                return resource
        raise no_such_resource()

    def of_kind(self, api_version: str, kind: str) -> ServedResource:
        """The resource of objects with this apiVersion and kind; raises RequestError 404."""
        for resource in self:
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        raise no_such_resource()

    def storages(self) -> list[ServedResource]:
        """One resource for each kind of stored object."""
        return list({each.storage: each for each in reversed(list(self))}.values())[::-1]
