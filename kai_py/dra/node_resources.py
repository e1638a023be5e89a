"""Resources of a node that its devices use: cpu, memory, hugepages (KEP-5517).

A device may represent a resource of its node (*mapping*: a CPU driver's cores), or need some of it
(*overhead*: host memory of a GPU). Two spellings exist:

    1.36  nodeAllocatableResourceMappings: {cpu: {capacityKey, allocationMultiplier}}
    1.37  nodeAllocatableResources: {cpu: {mapping: {capacityKey, capacityMultiplier} or
                                    {deviceMultiplier}, overhead: {perPod, perContainer}}}

A mapping counts once for each allocated device, or times the capacity that is consumed of it.
Overhead counts for each pod, and for each container that refers to the claim. A claim with a mapped
device belongs to one pod. Where the server's feature gate is off, slices have none of these fields.
Sources: the texts of both APIs, nodeallocatabledynamicresources.go of kube-scheduler 1.36.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from kai_py.api.quantity import MAX_NANO, NANO, Quantity, QuantityError, parse_quantity
from kai_py.api.records.resource import (
    AllocationResult,
    Device,
    DeviceRequestAllocationResult,
    NodeAllocatableMapping,
)
from kai_py.snapshot.resources import amount_of

FindDevice = Callable[[str, str, str], Device | None]
"""(driver, pool, device) to the device."""

Amounts = dict[str, Quantity]


class NodeResources(Struct, frozen=True):
    """What the devices of one claim take of its node; ``former``: in the spelling of 1.36."""

    mapped: Amounts = field(default_factory=dict)
    per_pod: Amounts = field(default_factory=dict)
    per_container: Amounts = field(default_factory=dict)
    former: bool = False

    def __bool__(self) -> bool:
        return bool(self.mapped or self.per_pod or self.per_container)

    def of_pod(self, containers: int) -> dict[str, float]:
        """Row units that a pod takes whose ``containers`` refer to the claim."""
        total: Amounts = {}
        for name, quantity in (*self.mapped.items(), *self.per_pod.items()):
            _add(total, name, quantity)
        for name, quantity in self.per_container.items():
            _add(total, name, Quantity(quantity.nano * containers, quantity.format))
        return {name: amount_of(name, quantity) for name, quantity in total.items()}

    def status(self, claim: str) -> dict[str, Any]:
        """The pod's ``status.nodeAllocatableResourceClaimStatuses[]``, but the containers."""
        entry: dict[str, Any] = {"resourceClaimName": claim}
        if self.former:
            return entry | {"resources": {name: str(q) for name, q in sorted(self.mapped.items())}}
        if self.mapped:
            entry["mapping"] = [
                {"name": name, "quantity": str(q)} for name, q in sorted(self.mapped.items())
            ]
        overheads = sorted({*self.per_pod, *self.per_container})
        if overheads:
            entry["overhead"] = [
                {"name": name}
                | ({"perPod": str(self.per_pod[name])} if name in self.per_pod else {})
                | (
                    {"perContainer": str(self.per_container[name])}
                    if name in self.per_container
                    else {}
                )
                for name in overheads
            ]
        return entry


NONE = NodeResources()


def node_resources(allocation: AllocationResult, find: FindDevice) -> NodeResources:
    """What the devices of an allocation take of the node: nothing if gone or unreadable."""
    mapped: Amounts = {}
    per_pod: Amounts = {}
    per_container: Amounts = {}
    former = False
    for result in allocation.devices.results:
        device = find(result.driver, result.pool, result.device)
        if device is None:
            continue
        former = former or bool(device.node_allocatable_resource_mappings)
        for name, quantity in _mapped(device, result):
            _add(mapped, name, quantity)
        for name, resource in device.node_allocatable_resources.items():
            overhead = resource.overhead
            if overhead is not None and overhead.per_pod is not None:
                _add(per_pod, name, _read(overhead.per_pod))
            if overhead is not None and overhead.per_container is not None:
                _add(per_container, name, _read(overhead.per_container))
    if not (mapped or per_pod or per_container):
        return NONE
    return NodeResources(mapped, per_pod, per_container, former)


def _mapped(
    device: Device, result: DeviceRequestAllocationResult
) -> Iterator[tuple[str, Quantity]]:
    for name, former in device.node_allocatable_resource_mappings.items():
        multiplier = former.allocation_multiplier
        if former.capacity_key:
            consumed = result.consumed_capacity.get(former.capacity_key)
            if consumed is not None:
                yield (
                    name,
                    _product(_read(consumed), _read(1 if multiplier is None else multiplier)),
                )
        elif multiplier is not None:
            yield name, _read(multiplier)
    for name, resource in device.node_allocatable_resources.items():
        if resource.mapping is not None:
            yield from _by_mapping(name, resource.mapping, result.consumed_capacity)


def _by_mapping(
    name: str, mapping: NodeAllocatableMapping, consumed: Mapping[str, Any]
) -> Iterator[tuple[str, Quantity]]:
    if mapping.capacity_key:
        if mapping.capacity_key in consumed and mapping.capacity_multiplier is not None:
            base = _read(consumed[mapping.capacity_key])
            yield name, _product(base, _read(mapping.capacity_multiplier))
    elif mapping.device_multiplier is not None:
        yield name, _read(mapping.device_multiplier)


def _product(left: Quantity, right: Quantity) -> Quantity:
    return Quantity(min(left.nano * right.nano // NANO, MAX_NANO), left.format)


def _read(text: str | float) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError:
        return Quantity(0)


def _add(total: Amounts, name: str, quantity: Quantity) -> None:
    if quantity.nano > 0:
        total[name] = total[name] + quantity if name in total else quantity
