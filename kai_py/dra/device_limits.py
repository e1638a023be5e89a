"""Quota limits that a device counts towards.

A limit names an attribute, or a capacity, with its domain, and the values that count. Attributes
are compared as text, a list by any of its elements; capacities as quantities.
"""

from collections.abc import Iterator

from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.resource import DeviceAttribute
from kai_py.dra.rows import DeviceRow
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
