"""Decoding of the served versions of resource.k8s.io into the records of v1.

v1beta2 has the shape of v1. v1beta1 nests all of a device but its name under ``basic`` and has the
fields of ``exactly`` directly in the request. Allocations have one shape in all three versions, so
one encoder serves them all. DeviceTaintRule is also served as v1alpha3, with the shape of v1 as far
as it is read here.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from kai_py.api.records.core import NodeSelector, ObjectMeta
from kai_py.api.records.record import Record, record_decoder
from kai_py.api.records.resource import (
    AllocationResult,
    CounterSet,
    Device,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

PREFERRED_VERSIONS = ("v1", "v1beta2", "v1beta1")

Kind = TypeVar("Kind", bound=Record)


class _FlatDevice(Record, frozen=True):
    name: str = ""
    basic: Device = Device()


class _FlatSliceSpec(Record, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    shared_counters: tuple[CounterSet, ...] = ()
    devices: tuple[_FlatDevice, ...] = ()
    partition_type_attribute: str = ""
    skip_node_operations: tuple[str, ...] = ()


class _FlatSlice(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _FlatSliceSpec = _FlatSliceSpec()


class _FlatRequest(ExactDeviceRequest, frozen=True):
    name: str = ""
    first_available: tuple[DeviceSubRequest, ...] = ()


class _FlatDeviceClaim(Record, frozen=True):
    requests: tuple[_FlatRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class _FlatClaimSpec(Record, frozen=True):
    devices: _FlatDeviceClaim = _FlatDeviceClaim()


class _FlatClaim(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _FlatClaimSpec = _FlatClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class _FlatTemplateSpec(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _FlatClaimSpec = _FlatClaimSpec()


class _FlatTemplate(Record, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _FlatTemplateSpec = _FlatTemplateSpec()


def _request(flat: _FlatRequest) -> DeviceRequest:
    if flat.first_available:
        return DeviceRequest(name=flat.name, first_available=flat.first_available)
    exactly = ExactDeviceRequest(
        device_class_name=flat.device_class_name,
        selectors=flat.selectors,
        allocation_mode=flat.allocation_mode,
        count=flat.count,
        admin_access=flat.admin_access,
        tolerations=flat.tolerations,
        capacity=flat.capacity,
        derived_attributes=flat.derived_attributes,
    )
    return DeviceRequest(name=flat.name, exactly=exactly)


def _claim_spec(flat: _FlatClaimSpec) -> ResourceClaimSpec:
    return ResourceClaimSpec(
        devices=DeviceClaim(
            requests=tuple(_request(request) for request in flat.devices.requests),
            constraints=flat.devices.constraints,
            config=flat.devices.config,
        )
    )


def _claim(flat: _FlatClaim) -> ResourceClaim:
    return ResourceClaim(metadata=flat.metadata, spec=_claim_spec(flat.spec), status=flat.status)


def _template(flat: _FlatTemplate) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(
        metadata=flat.metadata,
        spec=ResourceClaimTemplateSpec(
            metadata=flat.spec.metadata, spec=_claim_spec(flat.spec.spec)
        ),
    )


def _slice(flat: _FlatSlice) -> ResourceSlice:
    fields = {
        field: getattr(flat.spec, field)
        for field in ResourceSliceSpec.__struct_fields__
        if field != "devices"
    }
    devices = tuple(
        msgspec.structs.replace(device.basic, name=device.name) for device in flat.spec.devices
    )
    return ResourceSlice(metadata=flat.metadata, spec=ResourceSliceSpec(**fields, devices=devices))


_V1BETA1: dict[type[Record], tuple[type[Record], Callable[[Any], Record]]] = {
    ResourceSlice: (_FlatSlice, _slice),
    ResourceClaim: (_FlatClaim, _claim),
    ResourceClaimTemplate: (_FlatTemplate, _template),
}


def decoder(kind: type[Kind], version: str) -> Callable[[bytes | msgspec.Raw], Kind]:
    """A function from the JSON of one object of ``version`` to the v1 record ``kind``."""
    if version != "v1beta1" or kind not in _V1BETA1:
        return record_decoder(kind)
    wire, to_v1 = _V1BETA1[kind]
    decode = record_decoder(wire)

    def decode_flat(data: bytes | msgspec.Raw) -> Kind:
        return cast("Kind", to_v1(decode(data)))

    return decode_flat


def encode_allocation(allocation: AllocationResult) -> dict[str, Any]:
    """status.allocation as JSON values, the same in v1, v1beta2 and v1beta1.

    Opaque parameters stay the bytes they are: the result can be encoded, not read.
    """
    kept = (msgspec.Raw,)
    return cast("dict[str, Any]", msgspec.to_builtins(allocation, builtin_types=kept))


def allocation_document(allocation: AllocationResult) -> dict[str, Any]:
    """status.allocation as a document of its own."""
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(allocation)))
