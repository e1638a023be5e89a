"""Accounting of devices: the quota limits and the GPUs that a device counts towards.

A limit names an attribute, or a capacity, with its domain, and the values that count. Attributes
are compared as text, a list by any of its elements; capacities as quantities.

A device of a GPU driver is one GPU; a MIG partition ``Ng.*`` is N of the 7 compute slices of one.
Other devices of the driver (channels, daemons) are none. GPU drivers are configured, never guessed
from the name of a class.
"""

import re
from collections.abc import Iterator, Sequence

from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.resource import DeviceAttribute
from kai_py.dra.rows import DeviceRow
from kai_py.snapshot.accounting import MAX_MIG_SLICES, MIG_SLICES_PER_GPU
from kai_py.snapshot.tables.queues import DeviceLimit


def counts_towards(row: DeviceRow, limit: DeviceLimit) -> bool:
    """Whether an allocated ``row`` counts towards ``limit``."""
    names = _names(row, limit.attribute)
    for name in names:
        attribute = row.device.attributes.get(name)
        if attribute is not None:
            return any(text in limit.values for text in _value_texts(attribute))
    return any(
        capacity.name in names and capacity.value in (_nano(value) for value in limit.values)
        for capacity in row.capacities
    )


def _names(row: DeviceRow, attribute: str) -> tuple[str, ...]:
    """The names under which the device may have the attribute: bare in its driver's domain."""
    domain, _, bare = attribute.partition("/")
    return (attribute, bare) if domain == row.id.driver else (attribute,)


def _value_texts(attribute: DeviceAttribute) -> Iterator[str]:
    if attribute.bool_value is not None:
        yield str(attribute.bool_value).lower()
    for flag in attribute.bool_values or ():
        yield str(flag).lower()
    for value in (attribute.string_value, attribute.version_value, attribute.int_value):
        if value is not None:
            yield str(value)
    for several in (attribute.string_values, attribute.version_values, attribute.int_values):
        yield from (str(value) for value in several or ())


def _nano(value: str) -> int | None:
    try:
        return parse_quantity(value).nano
    except QuantityError:
        return None


_PROFILE = re.compile(r"^(\d+)g\.")
_NO_GPU_TYPES = frozenset({"channel", "daemon", "nic"})


def device_gpus(row: DeviceRow, drivers: frozenset[str]) -> float:
    """GPUs that an allocated ``row`` counts as."""
    if row.id.driver not in drivers:
        return 0.0
    profile = row.text("profile")
    partition = _PROFILE.match(profile) if profile else None
    if partition:
        return min(int(partition.group(1)), MAX_MIG_SLICES) / MIG_SLICES_PER_GPU
    return 0.0 if row.text("type") in _NO_GPU_TYPES else 1.0


def physical_gpus(rows: Sequence[DeviceRow], drivers: frozenset[str]) -> float:
    """GPUs that the devices of a slice add to their node.

    A partition adds nothing beside the GPU it is part of, which is listed too or, where the
    partition draws on counters, published in another slice.
    """
    whole = {uuid for row in rows if (uuid := row.text("uuid"))}
    return sum(
        device_gpus(row, drivers)
        for row in rows
        if not (parent := row.text("parentUUID")) or not (row.consumes or parent in whole)
    )
