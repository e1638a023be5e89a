"""Records of the core kinds: exactly the fields that grouping, snapshot or commit read.

A field that is not declared here is skipped by the decoder and costs nothing. The records are
frozen and acyclic, so they opt out of the cyclic garbage collector (``gc=False``): with 100,000
pods in memory a collection would otherwise walk all of them.

Every optional field has the API's default, so policies never test for absence.
"""

from datetime import datetime

import msgspec

from kai_py.api.records.record import QuantityText, Record
from kai_py.api.records.volume import Volume


class OwnerReference(Record, frozen=True):
    """The object that owns this one."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Record, frozen=True):
    """Identity of an object; ``resource_version`` is opaque and only compared for equality."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Fields of the object that could not be decoded: not of the API, which drops what it does
    not know (see ``partial``)."""


class SelectorRequirement(Record, frozen=True):
    """One expression of a label selector or node selector; operators as in the API."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Record, frozen=True):
    """metav1.LabelSelector: an empty one selects everything, None selects nothing."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[SelectorRequirement, ...] = ()


class NodeSelectorTerm(Record, frozen=True):
    """Expressions of one term are AND-ed; an empty term matches no node."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Record, frozen=True):
    """Terms are OR-ed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Record, frozen=True):
    """A preferred node affinity term with its weight, 1 to 100."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Record, frozen=True):
    """Required terms filter nodes, preferred terms score them."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(Record, frozen=True):
    """Pods selected by label, in namespaces, counted per topology domain."""

    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Record, frozen=True):
    """A preferred pod affinity term with its weight, 1 to 100."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Record, frozen=True):
    """Required and preferred terms of podAffinity or podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Record, frozen=True):
    """pod.spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Record, frozen=True):
    """pod.spec.tolerations[]; an empty key with Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Record, frozen=True):
    """pod.spec.topologySpreadConstraints[]."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class ContainerResourceClaim(Record, frozen=True):
    """container.resources.claims[]: the pod-level claim name and optionally one request of it."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Record, frozen=True):
    """Requests and limits by resource name; a limit without a request is a request too."""

    requests: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    limits: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    claims: tuple[ContainerResourceClaim, ...] = ()


class ContainerPort(Record, frozen=True):
    """Only host ports matter to placement."""

    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class ContainerRestartRule(Record, frozen=True):
    """container.restartPolicyRules[]: what happens when the container exits."""

    action: str = ""


class Container(Record, frozen=True):
    """A container; ``restart_policy`` Always on an init container makes it a sidecar."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class PodResourceClaim(Record, frozen=True):
    """pod.spec.resourceClaims[]: exactly one of the two names is set."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSchedulingGate(Record, frozen=True):
    """A pod with any gate must not be bound."""

    name: str = ""


class PodSchedulingGroup(Record, frozen=True):
    """pod.spec.schedulingGroup (1.36): the PodGroup the pod belongs to."""

    pod_group_name: str = ""


class WorkloadReference(Record, frozen=True):
    """pod.spec.workloadRef (1.35): a group of a Workload, and the replica of it."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(Record, frozen=True):
    """pod.spec."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    volumes: tuple[Volume, ...] = ()
    termination_grace_period_seconds: int = 30
    host_network: bool = False
    host_users: bool = True


class Condition(Record, frozen=True):
    """A status condition of any kind."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodResourceClaimStatus(Record, frozen=True):
    """pod.status.resourceClaimStatuses[]: a missing claim name means no claim is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Record, frozen=True):
    """Which request of a claim serves a container's extended resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Record, frozen=True):
    """pod.status.extendedResourceClaimStatus: the claim for the pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class ResourceHealth(Record, frozen=True):
    """…allocatedResourcesStatus[].resources[]: one device, Healthy, Unhealthy or Unknown."""

    resource_id: str = msgspec.field(default="", name="resourceID")
    health: str = ""


class ResourceStatus(Record, frozen=True):
    """…allocatedResourcesStatus[]: the devices of an extended resource, or of ``claim:NAME``."""

    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerWaiting(Record, frozen=True):
    """…state.waiting: why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerTerminated(Record, frozen=True):
    """…state.terminated: how a container ended."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(Record, frozen=True):
    """…state or …lastState; neither of them set: it runs."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(Record, frozen=True):
    """pod.status.containerStatuses[]: its start, requests (KEP-1287), device health (KEP-4680)."""

    name: str = ""
    ready: bool = False
    started: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources_status: tuple[ResourceStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class NodeAllocatableMappedResources(Record, frozen=True):
    """…nodeAllocatableResourceClaimStatuses[].mapping[]."""

    name: str = ""
    quantity: QuantityText = "0"


class NodeAllocatableOverheadResources(Record, frozen=True):
    """…nodeAllocatableResourceClaimStatuses[].overhead[]."""

    name: str = ""
    per_pod: QuantityText = "0"
    per_container: QuantityText = "0"


class NodeAllocatableResourceClaimStatus(Record, frozen=True):
    """pod.status.nodeAllocatableResourceClaimStatuses[]: what a claim takes of the node (KEP-5517).

    ``resources`` is the spelling of Kubernetes 1.36.
    """

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    mapping: tuple[NodeAllocatableMappedResources, ...] = ()
    overhead: tuple[NodeAllocatableOverheadResources, ...] = ()


class PodStatus(Record, frozen=True):
    """pod.status."""

    phase: str = "Pending"
    reason: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    """Resources of the pod as a whole (KEP-5419), as are ``allocated_resources``."""
    allocated_resources: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class Pod(Record, frozen=True):
    """v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PartialObjectMetadata(Record, frozen=True):
    """Any object, metadata only (meta.k8s.io/v1 PartialObjectMetadata): namespaces, owners."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
