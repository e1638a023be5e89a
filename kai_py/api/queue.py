"""The Queue model of ``scheduling.kai.io/v1alpha1``, from which its CRD is generated.

A queue is a node of the queue tree. It is *guaranteed* what it deserves, may grow to its max, and
shares what is left over by priority (strictly) and weight (within one priority). Everything but
``deservedGPUs``, ``maxGPUs`` and ``priority`` is optional refinement.

Rules that hold within one object are written twice, as a CEL rule for the API server and as a
validator for objects that do not come from one; both give the same message. Problems of several
queues (a missing parent, a cycle) are reported by the scheduler as a condition.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kai_py.api.model import (
    Amount,
    ApiModel,
    LabelValue,
    Name,
    QualifiedName,
    cel_rule,
    list_map,
    with_cel_rules,
)
from kai_py.api.problems import FieldProblem, field_problems
from kai_py.api.quantity import Quantity
from kai_py.api.queue_status import QueueStatus
from kai_py.api.resource_names import BASE_RESOURCES, is_resource
from kai_py.api.spot import SpotFallback, SpotUse
from kai_py.api.texts import count_of
from kai_py.api.times import DurationText

GROUP = "scheduling.kai.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
ADMISSION_GATE = "scheduling.kai.io/queue-admission"
"""Scheduling gate of pods for which no nodes may be added before they fit their queue's quota."""
CHECKPOINT_BY_KEY = f"{GROUP}/checkpoint-by"
"""Annotation of a pod that is asked to save its work: until when, RFC 3339."""
CHECKPOINTED_KEY = f"{GROUP}/checkpointed"
"""Annotation by which a pod says that it has: the value of ``CHECKPOINT_BY_KEY``."""
WITHDRAWN_BINDINGS = f"{GROUP}/withdrawn-bindings"
"""Annotation of a waiting pod: bindings made for this version of it, or before, are void."""
WITHDRAWN_RELEASES = f"{GROUP}/withdrawn-releases"
"""Annotation of a claim: releases made for this version of it, or before, are void."""
QUEUE_NAME_KEY = f"{GROUP}/queue-name"
"""Annotation or label that names a workload's queue."""

DEFAULT_PRIORITY = 100
"""The priority of a queue without one, as in KAI: leaving it out and writing 100 are the same."""
MAX_PROBLEMS_LISTED = 10
"""Problems of one Queue that an error lists; the others are counted."""

GpuCount = Annotated[float, Field(ge=0, le=1_000_000, strict=True, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1_000_000, strict=True, allow_inf_nan=False)]

_MAX_BELOW_DESERVED = "max must be at least deserved (leave max out for no limit)"
_MAX_GPUS_BELOW_DESERVED = "maxGPUs must be at least deservedGPUs (leave maxGPUs out for no limit)"
_ONE_DEVICE_SELECTOR = "set exactly one of deviceClassName and attribute"
_VALUES_WITH_ATTRIBUTE = "values belong to attribute: set both or neither"
OWN_PARENT = "a queue cannot be its own parent"
_SPARES_EMPTY = "set matchLabels or matchExpressions: a selector without any would match all nodes"
_NO_RESOURCE = (
    f"resources are {', '.join(BASE_RESOURCES)}, hugepages-SIZE, or have a domain, as in "
    "nvidia.com/gpu; GPUs of every kind together are deservedGPUs and maxGPUs"
)
_NAMESPACES_EMPTY = "set names or selector; leave namespaces out to allow every namespace"

_MAX_AT_LEAST_DESERVED = cel_rule(
    "!has(self.max) || !has(self.deserved) || "
    "quantity(string(self.max)).compareTo(quantity(string(self.deserved))) >= 0",
    _MAX_BELOW_DESERVED,
    field=".max",
)


class ResourceShare(ApiModel):
    """What a queue is entitled to of one resource."""

    model_config = with_cel_rules(_MAX_AT_LEAST_DESERVED)

    deserved: Amount | None = None
    """Guaranteed amount; absent means none. But of cpu, memory, ephemeral-storage and pods, without
    a weight for them, it means as much as the queue may be allocated."""
    max: Amount | None = None
    """Limit; absent means unlimited."""
    weight: Weight | None = None
    """Weight in the division of the remainder of this resource; absent means the queue's weight."""

    @model_validator(mode="after")
    def _max_at_least_deserved(self) -> Self:
        if self.max is not None and self.deserved is not None and self.max < self.deserved:
            raise ValueError(_MAX_BELOW_DESERVED)
        return self


class DeviceShare(ApiModel):
    """What a queue is entitled to of the devices of one class, or with one attribute value."""

    model_config = with_cel_rules(
        _MAX_AT_LEAST_DESERVED,
        cel_rule("has(self.deviceClassName) != has(self.attribute)", _ONE_DEVICE_SELECTOR),
        cel_rule("has(self.attribute) == has(self.values)", _VALUES_WITH_ATTRIBUTE),
    )

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of this entry, unique within the queue; used in the status and in messages."""
    device_class_name: Name | None = None
    """Devices requested through this DeviceClass."""
    attribute: (
        Annotated[str, Field(min_length=3, max_length=96, pattern=r"^[^/]+/[^/]+$")] | None
    ) = None
    """Devices by an attribute: driver domain and name, as in gpu.nvidia.com/productName."""
    values: (
        Annotated[
            tuple[Annotated[str, Field(max_length=64)], ...], Field(min_length=1, max_length=16)
        ]
        | None
    ) = None
    """Values of the attribute, any of them, written as text."""
    deserved: Amount = Field(default=Quantity(0), json_schema_extra={"default": 0})
    """Guaranteed number of devices."""
    max: Amount | None = None
    """Limit; absent means unlimited."""

    @model_validator(mode="after")
    def _one_selector_and_max(self) -> Self:
        if (self.device_class_name is None) == (self.attribute is None):
            raise ValueError(_ONE_DEVICE_SELECTOR)
        if (self.attribute is None) != (self.values is None):
            raise ValueError(_VALUES_WITH_ATTRIBUTE)
        if self.max is not None and self.max < self.deserved:
            raise ValueError(_MAX_BELOW_DESERVED)
        return self


class DeviceCountLimit(ApiModel):
    """A limit of the number of devices of some kind."""

    selector: Annotated[str, Field(min_length=1, max_length=2048)]
    """CEL expression over a device, as in a DeviceClass; a device for which it is true counts."""
    max: Amount
    """Limit of devices that the queue may be allocated."""


class LabelRequirement(ApiModel):
    """One requirement of a label selector."""

    key: QualifiedName
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Relation of the key to the values."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=64)] = ()
    """Values for In and NotIn."""


class NamespaceSelector(ApiModel):
    """A label selector; all requirements must hold."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=32, default_factory=dict)]
    """Labels that must be present with these values."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=32)] = ()
    """Further requirements."""


class NamespaceFilter(ApiModel):
    """Namespaces whose workloads may use the queue, by name or by label."""

    model_config = with_cel_rules(
        cel_rule(
            "has(self.selector) || (has(self.names) && size(self.names) > 0)", _NAMESPACES_EMPTY
        )
    )

    names: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=63)], ...],
        Field(max_length=256, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = ()
    """Namespaces by name."""
    selector: NamespaceSelector | None = None
    """Namespaces by label."""

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.names and self.selector is None:
            raise ValueError(_NAMESPACES_EMPTY)
        return self


class SpareNodes(ApiModel):
    """A label selector of nodes; all requirements must hold."""

    model_config = with_cel_rules(
        cel_rule(
            "(has(self.matchLabels) && size(self.matchLabels) > 0) || "
            "(has(self.matchExpressions) && size(self.matchExpressions) > 0)",
            _SPARES_EMPTY,
        )
    )

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=32, default_factory=dict)]
    """Labels that must be present with these values."""
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=32)] = ()
    """Further requirements."""

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.match_labels and not self.match_expressions:
            raise ValueError(_SPARES_EMPTY)
        return self


class QueueSpec(ApiModel):
    """Entitlement of the queue and the namespaces that may use it."""

    model_config = with_cel_rules(
        cel_rule(
            "!has(self.maxGPUs) || self.maxGPUs >= self.deservedGPUs",
            _MAX_GPUS_BELOW_DESERVED,
            field=".maxGPUs",
        ),
        cel_rule(
            f"!has(self.resources) || self.resources.all(name, name in {[*BASE_RESOURCES]} || "
            "name.startsWith('hugepages-') || name.contains('/'))",
            _NO_RESOURCE,
            field=".resources",
        ),
    )

    deserved_gpus: GpuCount = 0.0
    """GPUs guaranteed to the queue, of any vendor and however requested; fractions count."""
    max_gpus: GpuCount | None = None
    """Limit of the GPUs allocated to the queue; absent means unlimited."""
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1, strict=True)] = DEFAULT_PRIORITY
    """The remainder goes to queues of higher priority first."""
    weight: Weight = 1.0
    """Weight in the division of the remainder among queues of one priority; 0 means none."""
    parent: Name | None = None
    """Queue above this one; absent means a root of the tree."""
    resources: Annotated[
        dict[str, ResourceShare],
        Field(
            max_length=32,
            json_schema_extra={"x-kubernetes-map-type": "granular"},
            default_factory=dict,
        ),
    ]
    """Further resources by name: cpu, memory, pods (a number), any extended resource."""
    devices: Annotated[
        tuple[DeviceShare, ...],
        Field(max_length=32, json_schema_extra=list_map("name")),
    ] = ()
    """Entitlements by DeviceClass or by device attribute, within the GPU entitlement."""
    limits: Annotated[tuple[DeviceCountLimit, ...], Field(max_length=16)] = ()
    """Limits of devices by CEL expressions: by class, product, memory or any other attribute."""
    preempt_min_runtime: DurationText | None = None
    """Time for which a workload that has started may not be preempted inside its queue, except its
    elastic pods; absent means as the queue above."""
    reclaim_min_runtime: DurationText | None = None
    """Time for which a workload that has started may not be reclaimed, except its elastic pods;
    absent means as the queue above. Against a queue outside of a parent, that of the parent
    counts: the ancestor just below the lowest one that both queues have in common."""
    reserve_after: DurationText | None = None
    """A gang that has been pending this long gets nodes reserved for it, one gang at a time."""
    ageing: DurationText | None = None
    """Pending time that counts as one point of priority inside the queue; 0: none. The
    annotation scheduling.kai.io/ageing of a gang takes precedence."""
    ageing_limit: Annotated[int, Field(ge=0, le=1_000_000_000, strict=True)] | None = None
    """Maximum points of priority that a gang gains by pending."""
    max_evictions_per_hour: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] | None = None
    """Maximum number of pods of the queue evicted for others in an hour; absent means no limit."""
    spot: SpotUse | None = None
    """Whether pods of the queue use spot nodes: prefer, only or never; absent means as the queue
    above, or as the annotation scheduling.kai.io/spot of workloads says."""
    spot_fallback: SpotFallback | None = None
    """When gangs limited to spot nodes may use on-demand nodes; absent means as the queue above, or
    never."""
    ready_timeout: DurationText | None = None
    """Time after its start by which minMember pods of a gang must be ready; then it is evicted
    whole and started again later. 0: none; absent means as the queue above. The annotation
    scheduling.kai.io/ready-timeout of a gang may only shorten it."""
    ready_attempts: Annotated[int, Field(ge=1, le=100, strict=True)] | None = None
    """How often a gang that does not get ready is started before it stays pending; absent means as
    the queue above, or 3."""
    admission_gate: Annotated[bool, Field(strict=True)] = False
    """New pods of the queue are gated until its quota admits them, where the webhook runs."""
    namespaces: NamespaceFilter | None = None
    """Namespaces whose workloads may use the queue; absent means every namespace or, if queues are
    closed, those that name the queue."""
    spares: SpareNodes | None = None
    """Nodes that only workloads of this queue and below may use, and only to replace pods that they
    lost with a node or a device."""

    @model_validator(mode="after")
    def _max_at_least_deserved_gpus(self) -> Self:
        if self.max_gpus is not None and self.max_gpus < self.deserved_gpus:
            raise ValueError(_MAX_GPUS_BELOW_DESERVED)
        names = [entry.name for entry in self.devices]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"devices has two entries named {name!r}")
        return self

    @model_validator(mode="after")
    def _resources_that_exist(self) -> Self:
        if not all(map(is_resource, self.resources)):
            raise ValueError(_NO_RESOURCE)
        return self


class QueueMetadata(BaseModel):
    """The part of a queue's metadata that rules read; everything else is the API server's."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    """The queue's name."""


class Queue(ApiModel):
    """A queue: GPUs guaranteed to a team, a limit, and its part in the division of the
    remainder."""

    model_config = with_cel_rules(
        cel_rule(
            "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
            OWN_PARENT,
            field=".spec.parent",
        )
    )

    api_version: Literal["scheduling.kai.io/v1alpha1"] = "scheduling.kai.io/v1alpha1"
    """API group and version."""
    kind: Literal["Queue"] = "Queue"
    """Always Queue."""
    metadata: QueueMetadata
    """Name; labels and the rest as usual."""
    spec: QueueSpec
    """Entitlement of the queue and the namespaces that may use it."""
    status: QueueStatus = QueueStatus()
    """Status of the queue as last reported by the scheduler."""

    @model_validator(mode="after")
    def _not_its_own_parent(self) -> Self:
        if self.spec.parent == self.metadata.name:
            raise ValueError(OWN_PARENT)
        return self


class InvalidQueueError(ValueError):
    """A Queue document breaks the API's rules; ``problems`` has the fields and reasons."""

    def __init__(self, name: str, problems: tuple[FieldProblem, ...]) -> None:
        self.name = name
        self.problems = problems
        listed = "; ".join(map(str, problems[:MAX_PROBLEMS_LISTED]))
        others = len(problems) - MAX_PROBLEMS_LISTED
        more = f"; and {count_of(others, 'more problem')}" if others > 0 else ""
        super().__init__(f"Queue {name}: {listed}{more}")


def read_queue(
    document: Mapping[str, Any], *, unknown: Literal["ignore", "forbid"] = "ignore"
) -> Queue:
    """Parse a Queue document, from the API server (unknown fields ignored) or written by a user.

    Raises InvalidQueueError with every problem found.
    """
    try:
        return Queue.model_validate(
            document, extra="ignore" if unknown == "ignore" else None, by_alias=True, by_name=False
        )
    except ValidationError as error:
        raise InvalidQueueError(_name_of(document), field_problems(error, Queue)) from None


def _name_of(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else "(without a name)"
