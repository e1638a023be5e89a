"""How is a bound of a queue raised where it is written? In our Queue and KAI's, per resource.

Ours has GPUs at the top of its spec, devices in a list, every other resource in a map; KAI's has
GPUs, millicores and megabytes. Amounts are in row units and rounded up to what can be written.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kai_py.api.quantity import NANO, Quantity, QuantityFormat
from kai_py.api.queue import API_VERSION
from kai_py.api.records.kai import QUEUE_API_VERSION
from kai_py.dialects.kai.queues import RESOURCE_UNITS
from kai_py.embedded.patches.merge import apply_merge_patch
from kai_py.simulate.objects import Document
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, DeviceLimit

KIBI = 1024
GPU_PARTS = 1000
"""A GPU is rounded up to this part of it."""

Patch = dict[str, Any]


class QueueBound(StrEnum):
    """Which bound; the values are our Queue's fields."""

    DESERVED = "deserved"
    MAX = "max"


KAI_FIELDS = {QueueBound.DESERVED: "quota", QueueBound.MAX: "limit"}


@dataclass(frozen=True, slots=True)
class RaisedBound:
    """A bound of a queue that shall be ``amount``."""

    bound: QueueBound
    resource: str
    amount: float


@dataclass(frozen=True, slots=True)
class BoundPatch:
    """A raise as it stands in a spec: the field's name for people, its value, the merge patch."""

    field: str
    value: object
    patch: Patch


def bound_patches(
    queue: Document, raises: Iterable[RaisedBound]
) -> tuple[list[BoundPatch], Patch] | None:
    """How ``queue`` says all of them, and one merge patch; None where it cannot say one."""
    found: list[BoundPatch] = []
    patch: Patch = {}
    for raised in raises:
        # Lists are replaced as a whole: each finds what the one before has changed.
        said = bound_patch(apply_merge_patch(queue, patch), raised)
        if said is None:
            return None
        found.append(said)
        patch = apply_merge_patch(patch, {"spec": said.patch})
    return found, patch


def bound_patch(queue: Document, raised: RaisedBound) -> BoundPatch | None:
    """How ``queue`` says it; None where it cannot say it."""
    if queue["apiVersion"] == API_VERSION:
        return _native_patch(queue.get("spec") or {}, raised)
    if queue["apiVersion"] == QUEUE_API_VERSION and raised.resource in RESOURCE_UNITS:
        return _kai_patch(raised)
    return None


def _native_patch(spec: Mapping[str, Any], raised: RaisedBound) -> BoundPatch | None:
    resource, bound = raised.resource, raised.bound
    if resource == GPU:
        field, gpus = f"{bound}GPUs", _gpus(raised.amount)
        return BoundPatch(field, gpus, {field: gpus})
    if resource.startswith((DEVICE_CLASS, DEVICE_ATTRIBUTE)):
        return _device_patch(spec, raised)
    amount = _quantity(resource, raised.amount)
    return BoundPatch(
        f"resources.{resource}.{bound}", amount, {"resources": {resource: {bound.value: amount}}}
    )


def _device_patch(spec: Mapping[str, Any], raised: RaisedBound) -> BoundPatch | None:
    """A merge patch replaces a list as a whole: the others stand in it as they are."""
    entries, count = spec.get("devices") or (), math.ceil(raised.amount)
    changed = [
        {**each, raised.bound.value: count} if _row(each) == raised.resource else each
        for each in entries
    ]
    found = next((each for each in entries if _row(each) == raised.resource), None)
    if found is None:
        return None
    return BoundPatch(f"devices.{found['name']}.{raised.bound}", count, {"devices": changed})


def _row(entry: Mapping[str, Any]) -> str:
    if "attribute" in entry:
        return DeviceLimit(entry["attribute"], tuple(sorted(set(entry["values"])))).resource
    return f"{DEVICE_CLASS}{entry['deviceClassName']}"


def _kai_patch(raised: RaisedBound) -> BoundPatch:
    field, unit = KAI_FIELDS[raised.bound], RESOURCE_UNITS[raised.resource]
    whole = math.ceil(raised.amount / unit)
    amount = _gpus(raised.amount) if raised.resource == GPU else whole
    patch = {"resources": {raised.resource: {field: amount}}}
    return BoundPatch(f"resources.{raised.resource}.{field}", amount, patch)


def _gpus(amount: float) -> float:
    rounded = math.ceil(amount * GPU_PARTS - 1e-6) / GPU_PARTS
    return int(rounded) if rounded.is_integer() else rounded


def _quantity(resource: str, amount: float) -> str:
    whole = math.ceil(amount)
    if resource == "cpu":
        return str(Quantity(whole * NANO // 1000))
    binary = whole % KIBI == 0 and whole % 1000 != 0
    form = QuantityFormat.BINARY_SI if binary else QuantityFormat.DECIMAL_SI
    return str(Quantity(whole * NANO, form))
