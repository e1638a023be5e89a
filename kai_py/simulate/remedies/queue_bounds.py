"""Raises the bounds of a queue in its manifest, in our Queue and in KAI's, per resource.

Ours has GPUs at the top of its spec, devices in a list, every other resource in a map; KAI's has
GPUs, millicores and megabytes. Amounts are in the snapshot's units and are rounded up to what the
manifest can express.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from kai_py.api.quantity import NANO, Quantity, QuantityFormat
from kai_py.api.queue import API_VERSION
from kai_py.api.records.kai import QUEUE_API_VERSION
from kai_py.embedded.patches import apply_merge_patch
from kai_py.simulate.files.objects import Document
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.tables.queue_objects import KAI_BOUNDS, KAI_UNITS
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, DEVICE_SELECTOR, DeviceLimit

KIBI = 1024
GPU_PARTS = 1000
"""A GPU amount is rounded up to 1/GPU_PARTS."""

Patch = dict[str, Any]


class QueueBound(StrEnum):
    """A bound of a queue; the values are our Queue's fields."""

    DESERVED = "deserved"
    MAX = "max"


class RaisedBound(Struct, frozen=True):
    """A bound of a queue and its new ``amount``."""

    bound: QueueBound
    resource: str
    amount: float


class BoundPatch(Struct, frozen=True):
    """A raised bound in a spec: the field's name for messages, its value, the merge patch."""

    field: str
    value: object
    patch: Patch


def bound_patches(
    queue: Document, raises: Iterable[RaisedBound]
) -> tuple[list[BoundPatch], Patch] | None:
    """The patches for all ``raises``, and the merge patch of all; None if one is impossible."""
    found: list[BoundPatch] = []
    patch: Patch = {}
    for raised in raises:
        # Patches replace whole lists, so each has to start from what the one before made.
        result = bound_patch(apply_merge_patch(queue, patch), raised)
        if result is None:
            return None
        found.append(result)
        patch = apply_merge_patch(patch, {"spec": result.patch})
    return found, patch


def bound_patch(queue: Document, raised: RaisedBound) -> BoundPatch | None:
    """The patch for one bound; None if ``queue`` cannot express it."""
    if queue["apiVersion"] == API_VERSION:
        return _native_patch(queue.get("spec") or {}, raised)
    if queue["apiVersion"] == QUEUE_API_VERSION and raised.resource in KAI_UNITS:
        return _kai_patch(raised)
    return None


def _native_patch(spec: Mapping[str, Any], raised: RaisedBound) -> BoundPatch | None:
    resource, bound = raised.resource, raised.bound
    if resource == GPU:
        field, gpus = f"{bound}GPUs", _gpus(raised.amount)
        return BoundPatch(field, gpus, {field: gpus})
    if resource.startswith((DEVICE_CLASS, DEVICE_ATTRIBUTE)):
        return _device_patch(spec, raised)
    if resource.startswith(DEVICE_SELECTOR):
        return _limit_patch(spec, raised)
    amount = _quantity(resource, raised.amount)
    return BoundPatch(
        f"resources.{resource}.{bound}", amount, {"resources": {resource: {bound.value: amount}}}
    )


def _device_patch(spec: Mapping[str, Any], raised: RaisedBound) -> BoundPatch | None:
    """Patch the list of devices as a whole, since a merge patch replaces lists."""
    entries, count = spec.get("devices") or (), math.ceil(raised.amount)
    changed = [
        {**each, raised.bound.value: count} if _row(each) == raised.resource else each
        for each in entries
    ]
    found = next((each for each in entries if _row(each) == raised.resource), None)
    if found is None:
        return None
    return BoundPatch(f"devices.{found['name']}.{raised.bound}", count, {"devices": changed})


def _limit_patch(spec: Mapping[str, Any], raised: RaisedBound) -> BoundPatch | None:
    selector, count = raised.resource.removeprefix(DEVICE_SELECTOR), math.ceil(raised.amount)
    entries = spec.get("limits") or ()
    if not any(each["selector"] == selector for each in entries):
        return None
    changed = [{**each, "max": count} if each["selector"] == selector else each for each in entries]
    return BoundPatch(f"limits[{selector}].max", count, {"limits": changed})


def _row(entry: Mapping[str, Any]) -> str:
    if "attribute" in entry:
        return DeviceLimit(entry["attribute"], tuple(sorted(set(entry["values"])))).resource
    return f"{DEVICE_CLASS}{entry['deviceClassName']}"


def _kai_patch(raised: RaisedBound) -> BoundPatch:
    field, unit = KAI_BOUNDS[raised.bound], KAI_UNITS[raised.resource]
    whole = math.ceil(raised.amount / unit)
    amount = _gpus(raised.amount) if raised.resource == GPU else whole
    patch = {"resources": {raised.resource: {field: amount}}}
    return BoundPatch(f"resources.{raised.resource}.{field}", amount, patch)


def _gpus(amount: float) -> float:
    # The tolerance keeps float noise from rounding up to the next part.
    gpus = math.ceil(amount * GPU_PARTS - 1e-6) / GPU_PARTS
    return int(gpus) if gpus.is_integer() else gpus


def _quantity(resource: str, amount: float) -> str:
    whole = math.ceil(amount)
    if resource == "cpu":
        return str(Quantity(whole * NANO // 1000))
    binary = whole % KIBI == 0 and whole % 1000 != 0
    # Whichever suffix divides the amount.
    form = QuantityFormat.BINARY_SI if binary else QuantityFormat.DECIMAL_SI
    return str(Quantity(whole * NANO, form))
