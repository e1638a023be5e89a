"""Records of resource.k8s.io/v1: devices that drivers offer, claims of users, and allocations.

The field names and meanings are those of the API (KEP-4381, 4815, 4816, 5004, 5007, 5018, 5055,
5075, 5491, 5945, 5963, 6080). Quantities stay text here; ``kai_py.api.quantity`` parses them. Older
served versions are converted into these records by ``kai_py.api.records.resource_versions``.
"""

from datetime import datetime

import msgspec

from kai_py.api.records.core import Condition, NodeSelector, ObjectMeta, Toleration
from kai_py.api.records.node import Taint
from kai_py.api.records.record import QuantityText, Record

MAX_RESULTS_PER_CLAIM = 32
MAX_RESERVED_FOR = 256
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
NO_JSON = msgspec.Raw(b"")
_NULL = msgspec.Raw(b"null")
DELETE_PROTECTION_FINALIZER = "resource.kubernetes.io/delete-protection"


class DeviceAttribute(Record, frozen=True, omit_defaults=True):
    """One typed value, or one list of a type; none set means an unknown type."""

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)
    int_values: tuple[int, ...] | None = msgspec.field(name="ints", default=None)
    bool_values: tuple[bool, ...] | None = msgspec.field(name="bools", default=None)
    string_values: tuple[str, ...] | None = msgspec.field(name="strings", default=None)
    version_values: tuple[str, ...] | None = msgspec.field(name="versions", default=None)


class CapacityRequestPolicyRange(Record, frozen=True, omit_defaults=True):
    """requestPolicy.validRange: a request is rounded up to ``min`` plus a multiple of ``step``."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityRequestPolicy(Record, frozen=True, omit_defaults=True):
    """How requests for a part of a capacity are rounded and bounded."""

    default: QuantityText | None = None
    valid_range: CapacityRequestPolicyRange | None = None
    valid_values: tuple[QuantityText, ...] = ()


class DeviceCapacity(Record, frozen=True, omit_defaults=True):
    """One capacity of a device; the policy only matters when the device can be shared."""

    value: QuantityText = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Record, frozen=True, omit_defaults=True):
    """One counter's value."""

    value: QuantityText = "0"


class CounterSet(Record, frozen=True, omit_defaults=True):
    """Counters that the devices of a pool draw on together, usually one physical device."""

    name: str = ""
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)


class DeviceCounterConsumption(Record, frozen=True, omit_defaults=True):
    """What a device draws from one counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = msgspec.field(default_factory=dict)
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Taint, frozen=True, omit_defaults=True):
    """A taint on a device; effects other than NoSchedule and NoExecute do not matter."""


class DeviceToleration(Toleration, frozen=True, omit_defaults=True):
    """A toleration of device taints; an empty key or effect matches every key or effect."""


class NodeAllocatableResourceMapping(Record, frozen=True, omit_defaults=True):
    """device.nodeAllocatableResourceMappings[], as Kubernetes 1.36 has it (KEP-5517)."""

    capacity_key: str = ""
    allocation_multiplier: QuantityText | None = None


class NodeAllocatableMapping(Record, frozen=True, omit_defaults=True):
    """…nodeAllocatableResources[].mapping: the device stands for so much of the resource."""

    capacity_key: str = ""
    capacity_multiplier: QuantityText | None = None
    device_multiplier: QuantityText | None = None


class NodeAllocatableOverhead(Record, frozen=True, omit_defaults=True):
    """…nodeAllocatableResources[].overhead: what pods with the device need of the resource."""

    per_pod: QuantityText | None = None
    per_container: QuantityText | None = None


class NodeAllocatableResource(Record, frozen=True, omit_defaults=True):
    """device.nodeAllocatableResources[], from Kubernetes 1.37 on (KEP-5517)."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(Record, frozen=True, omit_defaults=True):
    """One device of a slice; its node fields count only with ``per_device_node_selection``."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, DeviceCapacity] = msgspec.field(default_factory=dict)
    allow_multiple_allocations: bool = False
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = msgspec.field(
        default_factory=dict
    )
    node_allocatable_resources: dict[str, NodeAllocatableResource] = msgspec.field(
        default_factory=dict
    )

    @property
    def takes_node_resources(self) -> bool:
        """Whether it stands for resources of its node, or needs some."""
        return bool(self.node_allocatable_resource_mappings or self.node_allocatable_resources)


class ResourcePool(Record, frozen=True, omit_defaults=True):
    """A pool is complete when ``resource_slice_count`` slices of its newest generation exist."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Record, frozen=True, omit_defaults=True):
    """Devices or counter sets of one pool, and the nodes that can reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    shared_counters: tuple[CounterSet, ...] = ()
    devices: tuple[Device, ...] = ()
    partition_type_attribute: str = ""
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(Record, frozen=True, omit_defaults=True):
    """resource.k8s.io ResourceSlice, written by drivers."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class CELDeviceSelector(Record, frozen=True, omit_defaults=True):
    """A CEL expression over one device."""

    expression: str = ""


class DeviceSelector(Record, frozen=True, omit_defaults=True):
    """A selector; without ``cel`` it is of an unknown kind."""

    cel: CELDeviceSelector | None = None


class CapacityRequirements(Record, frozen=True, omit_defaults=True):
    """How much of each capacity a request needs, keys compared as written."""

    requests: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class DerivedAttribute(Record, frozen=True, omit_defaults=True):
    """An attribute computed from a device by CEL, for the constraints of one request."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(Record, frozen=True, omit_defaults=True):
    """A request for ``count`` devices, or for all, that satisfy class and selectors."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceSubRequest(Record, frozen=True, omit_defaults=True):
    """One alternative of a ``firstAvailable`` list."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements = CapacityRequirements()
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceRequest(Record, frozen=True, omit_defaults=True):
    """Either ``exactly`` or the ordered alternatives ``first_available``."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Record, frozen=True, omit_defaults=True):
    """A condition on all devices of the named requests together; no names mean all requests."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Record, frozen=True, omit_defaults=True):
    """Parameters for a driver: JSON as it was written, copied without being understood."""

    driver: str = ""
    parameters: msgspec.Raw = NO_JSON

    def __post_init__(self) -> None:
        # Raw bytes are a view of the message they came in, which would be kept alive.
        kept = NO_JSON if self.parameters == _NULL else self.parameters.copy()
        msgspec.structs.force_setattr(self, "parameters", kept)


class DeviceClaimConfiguration(Record, frozen=True, omit_defaults=True):
    """Configuration of a claim; no names mean all requests."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Record, frozen=True, omit_defaults=True):
    """claim.spec.devices."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Record, frozen=True, omit_defaults=True):
    """claim.spec; immutable."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Record, frozen=True, omit_defaults=True):
    """One device allocated to ``request`` ("name" or "name/alternative")."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str = msgspec.field(name="shareID", default="")
    consumed_capacity: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationConfiguration(Record, frozen=True, omit_defaults=True):
    """Configuration that the driver gets with the allocation; no names mean all requests."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Record, frozen=True, omit_defaults=True):
    """allocation.devices."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Record, frozen=True, omit_defaults=True):
    """claim.status.allocation; without a node selector the devices are reachable everywhere."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class ResourceClaimConsumerReference(Record, frozen=True, omit_defaults=True):
    """claim.status.reservedFor[]: a pod, or a PodGroup of scheduling.k8s.io."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Record, frozen=True, omit_defaults=True):
    """claim.status.devices[]: conditions that a driver reports for an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = msgspec.field(name="shareID", default="")
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(Record, frozen=True, omit_defaults=True):
    """claim.status; the allocation is immutable once set and can only be cleared."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Record, frozen=True, omit_defaults=True):
    """resource.k8s.io ResourceClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Record, frozen=True, omit_defaults=True):
    """Metadata and spec of the claims created from a template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Record, frozen=True, omit_defaults=True):
    """resource.k8s.io ResourceClaimTemplate."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassConfiguration(Record, frozen=True, omit_defaults=True):
    """Configuration that a class adds to every allocation that uses it."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Record, frozen=True, omit_defaults=True):
    """Selectors and configuration shared by all requests that name the class."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Record, frozen=True, omit_defaults=True):
    """resource.k8s.io DeviceClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
