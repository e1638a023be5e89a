"""Constraints between the devices of a claim: match and distinct attributes.

A constraint's state is a value: adding a device gives a new state or None. A match constraint
requires one value (with list attributes enabled: one common element) over all devices of its
requests, a distinct constraint requires all values (all elements) to differ. Types count: the int 1
differs from the string "1". Derived attributes of a request come first, then the qualified name on
the device, then the bare name where the domain is the driver's (KEP-4381, KEP-5491, KEP-6080).
"""

import enum

from msgspec import Struct

from kai_py.api.records.resource import DeviceAttribute
from kai_py.dra.rows import DeviceRow

AttributeElement = tuple[str, int | bool | str]
"""A value with its type: ("int", 1), ("string", "a")."""

ConstraintState = frozenset[AttributeElement] | None
"""Match: the values still possible; distinct: the values in use; None: no device yet."""


class ConstraintKind(enum.Enum):
    """What a constraint requires of its attribute."""

    MATCH = "matchAttribute"
    DISTINCT = "distinctAttribute"


class Constraint(Struct, frozen=True):
    """One constraint of a claim; ``requests`` names "req" or "req/alternative", empty means all."""

    kind: ConstraintKind
    attribute: str
    requests: frozenset[str]

    def applies_to(self, request: str) -> bool:
        """Whether devices of ``request`` ("req" or "req/alternative") are constrained."""
        if not self.requests:
            return True
        return request in self.requests or request.partition("/")[0] in self.requests


def with_device(
    kind: ConstraintKind, state: ConstraintState, values: frozenset[AttributeElement] | None
) -> ConstraintState:
    """The state with a device of ``values`` added; None means that it must not join.

    ``values`` is None where the device lacks the attribute; it is empty for a type that can't be
    compared, which only the first device may have.
    """
    if values is None or state is None:
        return values
    if kind is ConstraintKind.DISTINCT:
        return state | values if values and state.isdisjoint(values) else None
    return (state & values) or None


def find_attribute(row: DeviceRow, name: str) -> DeviceAttribute | None:
    """The attribute of a device by qualified name, or by bare name in its driver's domain."""
    qualified = row.device.attributes.get(name)
    if qualified is not None:
        return qualified
    domain, _, bare = name.rpartition("/")
    return row.device.attributes.get(bare) if domain == row.id.driver else None


def attribute_elements(
    attribute: DeviceAttribute | None, *, lists: bool
) -> frozenset[AttributeElement] | None:
    """The values of an attribute: none for a list without ``lists``; None without any value."""
    if attribute is None:
        return None
    for kind in ("int", "bool", "string", "version"):
        value = getattr(attribute, f"{kind}_value")
        if value is not None:
            return frozenset(((kind, value),))
    for kind in ("int", "bool", "string", "version"):
        values = getattr(attribute, f"{kind}_values")
        if values is not None and not lists:
            return frozenset()
        if values:
            return frozenset((kind, value) for value in values)
    return None
