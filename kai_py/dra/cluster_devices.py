"""The devices of the cluster, kept in sync with the objects of resource.k8s.io.

One inventory and one allocation state serve accounting, placement and explanation. ``sync`` applies
what changed since the last call, by identity of the (immutable) records; a call without changes
costs nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.records.resource import (
    AllocationResult,
    Device,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from kai_py.dra.class_info import GpuDefinition
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.compute_domains import DAEMON, DRIVER, ChannelClaims
from kai_py.dra.device_accounting import DeviceAccounting
from kai_py.dra.device_kinds import DeviceKinds, PossibleDevices, possible_devices
from kai_py.dra.device_state import DeviceState, unreadable_shares
from kai_py.dra.divisible_gpus import DivisibleGpu, divisible_by_node, memory_mib
from kai_py.dra.gpu_weight import GpuWeights
from kai_py.dra.identity import DeviceID, PoolID
from kai_py.dra.inventory import Inventory
from kai_py.dra.node_resources import NONE, NodeResources, node_resources
from kai_py.dra.search import DEFAULT_BUDGET
from kai_py.dra.selectors.selector import compile_selector
from kai_py.dra.spending import Spending
from kai_py.dra.taints import with_class_selectors
from kai_py.dra.whole_devices import FreeDevices, WholeDeviceClaims
from kai_py.snapshot.accounting import DeviceRequestSpec
from kai_py.snapshot.device_objects import DeviceObjects
from kai_py.snapshot.extended_resources import classes_by_resource
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.quarantine import Quarantine
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.tables.queues import DeviceLimit

SLICE, ALLOCATION = "reading its devices", "allocation"
"""What fails where an object is set aside."""
STEP = 32
"""Slices that are read, and claims that are counted, in one step."""
MAX_CHANGES = 10_000
"""Changes of the allocation state, or more in proportion to its pools, after which it is replaced.

What follows it then looks at all pools once, so that costs little; its log stays short."""


@dataclass
class ClusterDevices:
    """All devices with their allocations."""

    gpus: GpuDefinition = field(default_factory=GpuDefinition)
    inventory: Inventory = field(default_factory=Inventory)
    allocator_steps: int = DEFAULT_BUDGET
    """Budget of the allocator for one pod on one node."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    spending: Spending = field(default_factory=Spending.limited)
    channels: ChannelClaims = field(default_factory=ChannelClaims)
    _generation: int = -1
    _claims_generation: int = -1
    _slices: dict[str, ResourceSlice] = field(default_factory=dict)
    _claims: dict[tuple[str, str], ResourceClaim] = field(default_factory=dict)
    _node_gpus: tuple[int, int, Floats] | None = None
    _divisible: dict[str, tuple[int, Mapping[str, tuple[DivisibleGpu, ...]]]] = field(
        default_factory=dict
    )
    _gpu_memory: Mapping[str, float] | None = None
    _takes_node_resources: tuple[int, bool] | None = None

    def __post_init__(self) -> None:
        self.state = DeviceState(self.inventory.device)
        self._weights = GpuWeights(self.inventory)
        self._kinds = DeviceKinds(self.inventory, self._weights)
        self.costs = DeviceAccounting(self.gpus, self.inventory, self._kinds, self.quarantine)
        self.accounting = self.costs.accounting
        self.free = FreeDevices(self.costs)
        self.whole_claims = WholeDeviceClaims(self.costs)
        # A search that a whole allowance does not suffice for has its answer.
        allowed = self.spending.steps.per_gang, self.spending.steps.per_cycle
        self.allocator = ClusterAllocator(
            self.inventory, self.costs.classes, min(self.allocator_steps, *allowed), self.spending
        )

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        """The DeviceClasses by name."""
        return self.costs.classes

    def prepare(self, objects: DeviceObjects) -> Iterator[None]:
        """Take in slices and allocations that changed, in steps; nothing may be planned between."""
        if objects.generation != self._generation:
            yield from self._compile_selectors(objects.classes)
            yield from self._put_slices(objects.slices)
        if objects.claims_generation != self._claims_generation:
            yield from self._count_claims(objects.claims)
            self._claims_generation = objects.claims_generation

    def sync(self, objects: DeviceObjects) -> bool:
        """Apply what changed; returns whether any class now counts as other devices than before."""
        self.allocator.start_cycle()
        self.costs.start_cycle()
        slices_changed = objects.generation != self._generation
        if slices_changed:
            self._sync_slices(objects)
        for _ in self.prepare(objects):
            pass
        if len(self.state.changes) > max(MAX_CHANGES, len(self.state.pools)):
            self.state = DeviceState(self.inventory.device, dict(self.state.pools))
        limits_changed = self.costs.limits_changed()
        classes_changed = slices_changed and self.costs.count_classes()
        return limits_changed or classes_changed

    def set_limits(self, limits: Iterable[DeviceLimit]) -> None:
        """Count devices by these limits from the next ``sync`` on."""
        self.costs.set_limits(limits)

    def divisible_gpus(self, device_class: str) -> Mapping[str, tuple[DivisibleGpu, ...]]:
        """The GPUs of a class of which parts can be claimed, by node."""
        known = self._divisible.get(device_class)
        if known is None or known[0] != self.inventory.revision:
            kinds = self.costs.kinds_of_class(device_class)
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

    def channel_classes(self) -> frozenset[str]:
        """Names of the classes with channels of ComputeDomains."""
        return frozenset(filter(self._has_channels, self.costs.classes_of_driver(DRIVER)))

    def _has_channels(self, name: str) -> bool:
        rows = [kind.row for kind in self.costs.kinds_of_class(name)]
        return not rows or any(r.id.driver == DRIVER and r.text("type") != DAEMON for r in rows)

    def possible_devices(self, request: DeviceRequestSpec) -> PossibleDevices | None:
        """Devices that a request could get while all are free; None where that is not known."""
        selectors = self.costs.selectors_of(request)
        kinds = () if selectors is None else self._kinds.matching(*selectors)
        return None if kinds is None else possible_devices(kinds)

    def node_gpus(self, nodes: NodeColumns) -> Floats:
        """(nodes,) GPUs that ResourceSlices publish per node."""
        cached = self._node_gpus
        if cached is None or cached[:2] != (self.inventory.revision, nodes.generation):
            gpus = np.zeros(len(nodes))
            for pool in self.inventory.pools():
                if pool.driver not in self.gpus.drivers:
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
        rules = [objects.taint_rules[name] for name in sorted(objects.taint_rules)]
        self.inventory.set_taint_rules(tuple(with_class_selectors(rules, objects.classes)))
        self._divisible.clear()
        self._gpu_memory = None
        self.costs.replace_classes(objects.classes)
        self.allocator.classes = objects.classes
        self._generation = objects.generation

    def _compile_selectors(self, classes: Mapping[str, DeviceClass]) -> Iterator[None]:
        """Compile the selectors of changed classes, one a step: one may take a third of a second.

        How they are compiled is remembered by their text.
        """
        changed = [each for name, each in classes.items() if self.classes.get(name) is not each]
        for selector in (each for device_class in changed for each in device_class.spec.selectors):
            if selector.cel is not None:
                compile_selector(selector.cel.expression)
                yield

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
        try:
            self.inventory.put(resource_slice)
        except Exception as error:
            self.inventory.discard(resource_slice.metadata.name)
            self.quarantine.report_record("resourceslices", resource_slice, SLICE, error)
        else:
            self.quarantine.clear_record("resourceslices", resource_slice, SLICE)

    def _mark_allocated(self, claim: ResourceClaim, allocation: AllocationResult) -> None:
        self.state.mark_allocated(allocation)
        unreadable = unreadable_shares(allocation)
        if unreadable:
            error = ValueError(f"status.allocation: consumedCapacity of {', '.join(unreadable)}")
            self.quarantine.report_record("resourceclaims", claim, ALLOCATION, error)
        else:
            self.quarantine.clear_record("resourceclaims", claim, ALLOCATION)
