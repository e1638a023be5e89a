"""The objects of resource.k8s.io in a snapshot, and how claims are looked up in them."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from kai_py.api.records.resource import (
    AllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceSlice,
)
from kai_py.api.records.resource_admin import DeviceTaintRule
from kai_py.api.references import ClaimRef


class DeviceObjects(Struct, frozen=True):
    """Everything of resource.k8s.io; ``generation`` changes with slices, classes and rules.

    ``claims`` are keyed by (namespace, name) and include allocations that are being written.
    """

    slices: Mapping[str, ResourceSlice] = field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    taint_rules: Mapping[str, DeviceTaintRule] = field(default_factory=dict)
    claims: Mapping[tuple[str, str], ResourceClaim] = field(default_factory=dict)
    generation: int = 0
    claims_generation: int = 0

    def claim(self, ref: ClaimRef) -> ResourceClaim | None:
        """The claim of this name; None if it does not exist."""
        return self.claims.get((ref.namespace, ref.name))

    def allocation(self, ref: ClaimRef) -> AllocationResult | None:
        """What is allocated for the claim of this name; None if nothing is, or there is none."""
        claim = self.claim(ref)
        return None if claim is None else claim.status.allocation

    def allocated_devices(
        self, refs: Iterable[ClaimRef]
    ) -> Iterator[DeviceRequestAllocationResult]:
        """The devices that are allocated for the claims of these names."""
        for ref in refs:
            allocation = self.allocation(ref)
            if allocation is not None:
                yield from allocation.devices.results
