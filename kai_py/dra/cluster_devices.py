"""The devices of the cluster, kept in sync with the objects of resource.k8s.io.

One inventory and one allocation state serve accounting, placement and explanation. ``sync`` applies
what changed since the last call, by identity of the (immutable) records; a call without changes
costs nothing.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_py.api.bounded import remember
from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.resource import (
    AllocationResult,
    Device,
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceSelector,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceSlice,
)
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.compute_domains import DAEMON, DRIVER, ChannelClaims
from kai_py.dra.device_kinds import (
    DeviceKind,
    DeviceKinds,
    PossibleDevices,
    devices_by_node,
    max_on_one_node,
    possible_devices,
)
from kai_py.dra.device_limits import DeviceLimits
from kai_py.dra.device_state import DeviceState, unreadable_shares
from kai_py.dra.divisible_gpus import DivisibleGpu, divisible_by_node, memory_mib
from kai_py.dra.gpu_weight import GpuWeights, requested_share, share_of
from kai_py.dra.identity import DeviceID, PoolID
from kai_py.dra.inventory import Inventory
from kai_py.dra.node_resources import NONE, NodeResources, node_resources
from kai_py.dra.rows import DeviceRow
from kai_py.dra.search import DEFAULT_BUDGET
from kai_py.dra.spending import Spending
from kai_py.snapshot.accounting import (
    DEVICE_CLASS,
    MIG_SLICES_PER_GPU,
    Accounting,
    DeviceRequestSpec,
)
from kai_py.snapshot.extended_resources import classes_by_resource
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.quarantine import Quarantine, reference
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import DeviceObjects
from kai_py.snapshot.tables.queues import DeviceLimit

SLICE, CLASS, ALLOCATION = "reading its devices", "counting its devices", "allocation"
"""What fails where an object is set aside."""
GPU_DRIVERS = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gpu.example.com")
STEP = 32
"""Slices that are read, and claims that are counted, in one step."""
MAX_REQUESTS = 4_096
"""Of which it is kept what their devices count as."""
MAX_CHANGES = 10_000
"""Changes of the allocation state, or more in proportion to its pools, after which it is replaced.

What follows it then looks at all pools once, so that costs little; its log stays short."""

PLUGIN_RESOURCES = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gpu.intel.com": "gpu.intel.com/xe",
}


@dataclass(frozen=True, slots=True)
class GpuDefinition:
    """Which devices count as GPUs: by driver, or all devices of a class.

    ``mig_slices_per_gpu``: for MIG devices that a device plugin serves.
    """

    drivers: tuple[str, ...] = GPU_DRIVERS
    classes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ("*/gpu",)
    plugin_resources: Mapping[str, str] = field(default_factory=lambda: dict(PLUGIN_RESOURCES))
    mig_slices_per_gpu: float = MIG_SLICES_PER_GPU


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """What one device of a DeviceClass counts as; nothing for a class that does not exist."""

    gpus: float = 0.0
    plugin_resource: str = ""
    devices: int = field(default=0, compare=False)
    """How many devices it matches; does not affect what pods cost."""
    drivers: tuple[str, ...] = field(default=(), compare=False)
    weights: frozenset[tuple[str, float]] = frozenset()
    """What devices of its kinds count as."""


@dataclass
class ClusterDevices:
    """All devices with their allocations."""

    rules: GpuDefinition = GpuDefinition()
    inventory: Inventory = field(default_factory=Inventory)
    allocator_steps: int = DEFAULT_BUDGET
    """Budget of the allocator for one pod on one node."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    spending: Spending = field(default_factory=Spending.limited)
    channels: ChannelClaims = field(default_factory=ChannelClaims)
    _generation: int = -1
    _claims_generation: int = -1
    _slices: dict[str, ResourceSlice] = field(default_factory=dict)
    _claims: dict[tuple[str, str], ResourceClaim] = field(default_factory=dict)
    _class_infos: dict[str, ClassInfo] = field(default_factory=dict)
    _weights_of_requests: dict[Hashable, tuple[float, ...]] = field(default_factory=dict)
    _node_gpus: tuple[int, int, Floats] | None = None
    _divisible: dict[str, tuple[int, Mapping[str, tuple[DivisibleGpu, ...]]]] = field(
        default_factory=dict
    )
    _gpu_memory: Mapping[str, float] | None = None
    _takes_node_resources: tuple[int, bool] | None = None
    _limits: DeviceLimits = field(default_factory=DeviceLimits)
    _limits_seen: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        self.state = DeviceState(self.inventory.device)
        self._weights = GpuWeights(self.inventory)
        self._kinds = DeviceKinds(self.inventory, self._weights)
        # A search that a whole allowance does not suffice for has its answer.
        allowed = self.spending.steps.per_gang, self.spending.steps.per_cycle
        self.allocator = ClusterAllocator(
            self.inventory, self.classes, min(self.allocator_steps, *allowed), self.spending
        )
        self.accounting = Accounting(
            request_weight=self.request_gpus,
            device_weight=self.device_gpus,
            class_resource=self.class_resource,
            gpu_resources=self.rules.resources,
            mig_slices_per_gpu=self.rules.mig_slices_per_gpu,
            device_count=self.device_count,
            request_quota_resources=self.request_quota_resources,
            request_device_limit=self.request_device_limit,
            least_weight=lambda request: min(self._request_weights(request)),
            certain_quota_resources=self._certain_quota_resources,
            devices_by_node=lambda request: devices_by_node(self._requested_kinds(request)),
            device_quota_resources=self.device_quota_resources,
        )

    def prepare(self, objects: DeviceObjects) -> Iterator[None]:
        """Take in slices and allocations that changed, in steps; nothing may be planned between."""
        if objects.generation != self._generation:
            yield from self._put_slices(objects.slices)
        if objects.claims_generation != self._claims_generation:
            yield from self._count_claims(objects.claims)
            self._claims_generation = objects.claims_generation

    def sync(self, objects: DeviceObjects) -> bool:
        """Apply what changed; returns whether any class now counts as other devices than before."""
        self.allocator.start_cycle()
        self._kinds.start_cycle()
        self._limits.start_cycle()
        slices_changed = objects.generation != self._generation
        if slices_changed:
            self._sync_slices(objects)
        for _ in self.prepare(objects):
            pass
        if len(self.state.changes) > max(MAX_CHANGES, len(self.state.pools)):
            self.state = DeviceState(self.inventory.device, dict(self.state.pools))
        counts_changed = self._limits_changed()
        if not slices_changed:
            return counts_changed
        before = self._class_infos
        self._class_infos = {
            name: self._class_info(name, device_class)
            for name, device_class in objects.classes.items()
        }
        return counts_changed or before != self._class_infos

    def _class_info(self, name: str, device_class: DeviceClass) -> ClassInfo:
        affected = reference("deviceclasses", device_class)
        try:
            found = ClassInfo(
                self._class_gpus(name),
                self._class_resource(name),
                self._class_devices(name),
                self._drivers_of(name),
                self._class_weights(name),
            )
        except Exception as error:
            self.quarantine.report(affected, CLASS, error)
            return ClassInfo()
        self.quarantine.clear(affected, CLASS)
        return found

    def set_limits(self, limits: Iterable[DeviceLimit]) -> None:
        """Count devices by these limits from the next ``sync`` on."""
        self._limits.replace(limits)

    def request_gpus(self, request: DeviceRequestSpec) -> float:
        """GPUs that a device of a request counts as: the most of any that it can get.

        Where its class matches no device yet it counts by the drivers that the selectors name.
        """
        return max(self._request_weights(request))

    def _request_weights(self, request: DeviceRequestSpec) -> tuple[float, ...]:
        """What the devices that a request can get count as."""
        name = request.device_class_name
        expressions, capacity = _expressions(request.selectors), request.capacity.requests
        key = (name, *expressions), tuple(sorted((n, str(value)) for n, value in capacity.items()))
        known = self._weights_of_requests.get(key)
        if known is not None:
            return known
        try:
            requested = {n: parse_quantity(value).nano for n, value in capacity.items()}
        except QuantityError:
            requested = {}
        found = {
            kind.gpus * requested_share(kind.row, requested)
            for kind in self._requested_kinds(request)
            if self._counts_as_gpu(kind.row.id.driver, name)
        }
        if not found or any(
            not self._counts_as_gpu(kind.row.id.driver, name)
            for kind in self._requested_kinds(request)
        ):
            found.add(0.0 if found else self._class_infos.get(name, ClassInfo()).gpus)
        weights = tuple(sorted(found))
        remember(self._weights_of_requests, key, weights, MAX_REQUESTS)
        return weights

    def _counts_as_gpu(self, driver: str, device_class: str) -> bool:
        return driver in self.rules.drivers or device_class in self.rules.classes

    def divisible_gpus(self, device_class: str) -> Mapping[str, tuple[DivisibleGpu, ...]]:
        """The GPUs of a class of which parts can be claimed, by node."""
        known = self._divisible.get(device_class)
        if known is None or known[0] != self.inventory.revision:
            found = self.classes.get(device_class)
            kinds = [] if found is None else self._kinds_of_class(found)
            known = self.inventory.revision, divisible_by_node(kinds)
            self._divisible[device_class] = known
        return known[1]

    def published_gpu_memory(self) -> Mapping[str, float]:
        """MiB of a GPU of which parts can be claimed, by node: of the smallest whose size is known.

        The same object until classes or slices change.
        """
        if self._gpu_memory is None:
            serving = classes_by_resource(self.classes.values()).get(GPU_RESOURCE, "")
            by_node = self.divisible_gpus(serving) if serving else {}
            sizes = {node: memory_mib(gpus) for node, gpus in by_node.items()}
            self._gpu_memory = {node: mib for node, mib in sizes.items() if mib}
        return self._gpu_memory

    def node_resources(self, allocation: AllocationResult) -> NodeResources:
        """What the devices of an allocation take of their node's own resources."""
        if self._takes_node_resources is None or (
            self._takes_node_resources[0] != self.inventory.revision
        ):
            rows = (row for parsed in self.inventory.slices().values() for row in parsed.rows)
            takes = any(row.device.takes_node_resources for row in rows)
            self._takes_node_resources = self.inventory.revision, takes
        return node_resources(allocation, self._device) if self._takes_node_resources[1] else NONE

    def _device(self, driver: str, pool: str, device: str) -> Device | None:
        row = self.inventory.device(DeviceID(driver, pool, device))
        return None if row is None else row.device

    def class_resource(self, name: str) -> str:
        """The resource by which a device plugin reports the devices of a class; "" if none."""
        return self._class_infos.get(name, ClassInfo()).plugin_resource

    def channel_classes(self) -> frozenset[str]:
        """Names of the classes with channels of ComputeDomains."""
        return frozenset(
            name
            for name, info in self._class_infos.items()
            if DRIVER in info.drivers and self._has_channels(name)
        )

    def _has_channels(self, name: str) -> bool:
        rows = self._devices_of_class(self.classes[name])
        return not rows or any(r.id.driver == DRIVER and r.text("type") != DAEMON for r in rows)

    def refund(self, spec: ResourceClaimSpec, allocation: AllocationResult) -> dict[str, float]:
        """By how much the devices that a claim got cost less than the most it could get."""
        if self.has_fixed_charge(spec):
            return {}
        allocated = ResourceClaim(spec=spec, status=ResourceClaimStatus(allocation=allocation))
        highest, actual = self.accounting.claim_spec(spec), self.accounting.claim(allocated)
        difference = {
            name: highest.get(name, 0.0) - actual.get(name, 0.0) for name in {**highest, **actual}
        }
        return {name: amount for name, amount in difference.items() if amount}

    def device_count(self, quota_resource: str) -> float:
        """Devices that count towards a quota resource; every possible partition does."""
        if quota_resource.startswith(DEVICE_CLASS):
            return float(
                self._class_infos.get(
                    quota_resource.removeprefix(DEVICE_CLASS), ClassInfo()
                ).devices
            )
        kinds = self._kinds.all().values()
        return float(
            sum(kind.devices for kind in kinds if quota_resource in self._quota_resources(kind.row))
        )

    def request_quota_resources(self, request: DeviceRequestSpec) -> tuple[str, ...]:
        """Quota resources towards which a device of the request may count."""
        if not self._limits.limits:
            return ()
        rows = (
            row
            for kind in self._requested_kinds(request)
            for row in self._quota_resources(kind.row)
        )
        return tuple(dict.fromkeys(rows))

    def _certain_quota_resources(self, request: DeviceRequestSpec) -> tuple[str, ...]:
        """Quota resources towards which every device of the request counts."""
        if not self._limits.limits:
            return ()
        counted = [self._quota_resources(kind.row) for kind in self._requested_kinds(request)]
        return tuple(
            name for name in (counted[0] if counted else ()) if all(name in c for c in counted)
        )

    def request_device_limit(self, request: DeviceRequestSpec) -> float:
        """The most devices that a request with allocation mode All gets on any node."""
        return float(max_on_one_node(self._requested_kinds(request)))

    def device_quota_resources(self, driver: str, pool: str, device: str) -> tuple[str, ...]:
        """Quota resources towards which a device counts; none once it is removed."""
        row = self.inventory.device(DeviceID(driver, pool, device)) if self._limits.limits else None
        return () if row is None else self._quota_resources(row)

    def _quota_resources(self, row: DeviceRow) -> tuple[str, ...]:
        return self._limits.resources_of(row)

    def _requested_kinds(self, request: DeviceRequestSpec) -> list[DeviceKind]:
        """Device kinds a request can get; all of its class if its selectors match none."""
        device_class = self.classes.get(request.device_class_name)
        if device_class is None:
            return []
        of_class = _expressions(device_class.spec.selectors)
        return self._kinds.requested(of_class, _expressions(request.selectors))

    def possible_devices(self, request: DeviceRequestSpec) -> PossibleDevices | None:
        """Devices that a request could get while all are free; None where that is not known."""
        device_class = self.classes.get(request.device_class_name)
        if device_class is None:
            return possible_devices(())
        of_class = _expressions(device_class.spec.selectors)
        kinds = self._kinds.matching(of_class, _expressions(request.selectors))
        return None if kinds is None else possible_devices(kinds)

    def _limits_changed(self) -> bool:
        """Whether devices may count otherwise than at the last call."""
        before = self._limits_seen
        self._limits_seen = (self._limits.limits, *self._kinds.all()) if self._limits.limits else ()
        return before != self._limits_seen

    def has_fixed_charge(self, spec: ResourceClaimSpec) -> bool:
        """Whether a claim costs the same whichever devices it gets."""
        return not self._limits.limits and all(
            request.exactly is not None
            and request.exactly.allocation_mode != "All"
            and len(self._request_weights(request.exactly)) == 1
            for request in spec.devices.requests
        )

    def _class_weights(self, name: str) -> frozenset[tuple[str, float]]:
        kinds = self._kinds_of_class(self.classes[name])
        return frozenset(
            (kind.row.kind, kind.gpus)
            for kind in kinds
            if self._counts_as_gpu(kind.row.id.driver, name)
        )

    def _drivers_of(self, name: str) -> tuple[str, ...]:
        return tuple(self._class_drivers(self.classes[name]))

    def _class_devices(self, name: str) -> int:
        return sum(kind.devices for kind in self._kinds_of_class(self.classes[name]))

    def _class_resource(self, name: str) -> str:
        device_class = self.classes[name]
        if device_class.spec.extended_resource_name:
            return device_class.spec.extended_resource_name
        for driver in self._class_drivers(device_class):
            if driver in self.rules.plugin_resources:
                return self.rules.plugin_resources[driver]
        return ""

    def device_gpus(self, result: DeviceRequestAllocationResult, device_class: str) -> float:
        """GPUs that an allocated device, or share of it, counts as; a removed one by its driver."""
        if not self._counts_as_gpu(result.driver, device_class):
            return 0.0
        row = self.inventory.device(DeviceID(result.driver, result.pool, result.device))
        return 1.0 if row is None else self._weights.of(row) * share_of(row, result)

    def node_gpus(self, nodes: NodeColumns) -> Floats:
        """(nodes,) GPUs that ResourceSlices publish per node."""
        cached = self._node_gpus
        if cached is None or cached[:2] != (self.inventory.revision, nodes.generation):
            gpus = np.zeros(len(nodes))
            for pool in self.inventory.pools():
                if pool.driver not in self.rules.drivers:
                    continue
                for node, amount in self._weights.of_pool(pool).by_node.items():
                    row = nodes.positions.get(node)
                    if row is not None:
                        gpus[row] += amount
            cached = self._node_gpus = (self.inventory.revision, nodes.generation, gpus)
        return cached[2]

    def _sync_slices(self, objects: DeviceObjects) -> None:
        for name in [each for each in self._slices if each not in objects.slices]:
            self.inventory.discard(name)
            del self._slices[name]
        for _ in self._put_slices(objects.slices):
            pass
        self.inventory.set_taint_rules(
            [objects.taint_rules[name] for name in sorted(objects.taint_rules)]
        )
        self._weights_of_requests.clear()
        self._divisible.clear()
        self._gpu_memory = None
        self._weights.forget(self.inventory.pools())
        self.classes = self.allocator.classes = objects.classes
        self._generation = objects.generation

    def _put_slices(self, slices: Mapping[str, ResourceSlice]) -> Iterator[None]:
        changed = [
            (name, each) for name, each in slices.items() if self._slices.get(name) is not each
        ]
        for number, (name, resource_slice) in enumerate(changed, 1):
            self._put(resource_slice)
            self._slices[name] = resource_slice
            pool = PoolID(resource_slice.spec.driver, resource_slice.spec.pool.name)
            self.state.refresh_pool(pool)
            if number % STEP == 0:
                yield

    def _count_claims(self, claims: Mapping[tuple[str, str], ResourceClaim]) -> Iterator[None]:
        known = self._claims
        # Releases come first: a device may have gone from one claim to another.
        gone = [key for key, claim in known.items() if claims.get(key) is not claim]
        for number, key in enumerate(gone, 1):
            claim = known.pop(key)
            if claim.status.allocation is not None:
                self.state.release(claim.status.allocation)
                self.channels.discard(claim)
            if number % STEP == 0:
                yield
        new = [(key, claim) for key, claim in claims.items() if key not in known]
        for number, (key, claim) in enumerate(new, 1):
            if claim.status.allocation is not None:
                self._mark_allocated(claim, claim.status.allocation)
                self.channels.add(claim)
            known[key] = claim
            if number % STEP == 0:
                yield

    def _put(self, resource_slice: ResourceSlice) -> None:
        """Add a slice; one that cannot be read is left out."""
        affected = reference("resourceslices", resource_slice)
        try:
            self.inventory.put(resource_slice)
        except Exception as error:
            self.inventory.discard(resource_slice.metadata.name)
            self.quarantine.report(affected, SLICE, error)
        else:
            self.quarantine.clear(affected, SLICE)

    def _mark_allocated(self, claim: ResourceClaim, allocation: AllocationResult) -> None:
        self.state.mark_allocated(allocation)
        affected = reference("resourceclaims", claim)
        unreadable = unreadable_shares(allocation)
        if unreadable:
            error = ValueError(f"status.allocation: consumedCapacity of {', '.join(unreadable)}")
            self.quarantine.report(affected, ALLOCATION, error)
        else:
            self.quarantine.clear(affected, ALLOCATION)

    def _class_gpus(self, name: str) -> float:
        if name in self.rules.classes:
            return 1.0
        device_class = self.classes[name]
        kinds = self._kinds_of_class(device_class)
        if kinds:
            return max(kind.gpus * (kind.row.id.driver in self.rules.drivers) for kind in kinds)
        return float(any(d in self.rules.drivers for d in self._class_drivers(device_class)))

    def _class_drivers(self, device_class: DeviceClass) -> list[str]:
        """Drivers of the devices a class matches; without any, those its selectors name."""
        matching = self._devices_of_class(device_class)
        if matching:
            return sorted({row.id.driver for row in matching})
        texts = [s.cel.expression for s in device_class.spec.selectors if s.cel is not None]
        known = sorted({*self.rules.drivers, *self.rules.plugin_resources})
        return [driver for driver in known if any(driver in text for text in texts)]

    def _devices_of_class(self, device_class: DeviceClass) -> list[DeviceRow]:
        """One device of each kind that the class selects."""
        return [kind.row for kind in self._kinds_of_class(device_class)]

    def _kinds_of_class(self, device_class: DeviceClass) -> list[DeviceKind]:
        return self._kinds.selected_by(_expressions(device_class.spec.selectors))


def _expressions(selectors: Iterable[DeviceSelector]) -> list[str]:
    return [each.cel.expression for each in selectors if each.cel is not None]
