"""Columns: the values of a device that an expression depends on.

A column is one thing a device has: its driver, one attribute, whether it has an attribute, all
attributes of a domain. Two devices that agree on an expression's columns get the same result, so an
expression is evaluated once per distinct combination. Literal paths give narrow columns; a computed
key widens to the whole domain, a bare ``device.attributes`` to all domains.

Complexity: one walk over the syntax tree.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from kai_py.cel.syntax import (
    Bind,
    Call,
    Comprehension,
    Ident,
    Literal,
    Node,
    Select,
    children,
    variable_path,
    with_children,
)
from kai_py.cel.values import EMPTY_MAP, Value
from kai_py.dra.selectors.device import MAPS, AttributeList, BadAttribute, CELDevice

Column = tuple[str, ...]
"""Keys below ``device``; led by ``HAS`` where only their presence counts."""

HAS = "has"
_MISSING = ("missing",)


def columns_of(node: Node) -> tuple[Column, ...]:
    """The columns a node depends on, in a fixed order, none inside another."""
    found: set[Column] = set()
    _collect(node, found)
    outermost = {
        column
        for column in found
        if column[:1] == (HAS,) or not any(column[:size] in found for size in range(len(column)))
    }
    return tuple(sorted(outermost))


def _collect(node: Node, found: set[Column]) -> None:
    presence = _presence(node)
    if presence is not None:
        found.add((HAS, *presence))
        return
    path = device_path(_plain(node))
    if path is not None:
        found.add(_column(path))
        return
    for child in children(node):
        _collect(child, found)


def device_path(node: Node) -> Column | None:
    """The literal keys by which a node reads from ``device``, if it does just that."""
    path = variable_path(node)
    return path[1:] if path and path[0] == "device" else None


def _column(path: Column) -> Column:
    return path[:3] if path[:1] and path[0] in MAPS else path[:1]


def _presence(node: Node) -> Column | None:
    """The path whose presence alone a node tests."""
    match node:
        case Select(operand, field, test=True):
            path = device_path(operand)
            key = field
        case Call("@in", None, (Literal(str() as key), container)):
            path = device_path(container)
        case _:
            return None
    if path is None or len(path) not in {1, 2} or path[0] not in MAPS:
        return None
    return (*path, key)


def _plain(node: Node) -> Node:
    """``a.?b`` and ``a[?"b"]`` as ``a.b``: they depend on the same column."""
    match node:
        case Select(operand, test=False):
            return replace(node, operand=_plain(operand), optional=False)
        case Call("_[_]" | "_[?_]", None, (operand, key)):
            return replace(node, function="_[_]", args=(_plain(operand), key))
        case _:
            return node


def column_keys(devices: Sequence[CELDevice], column: Column) -> list[Value]:
    """A hashable key per device; equal keys are equal values, of one type."""
    match column:
        case ("capacity", domain, name):
            amounts = _named(devices, "capacity", domain, name)
            keys = [amount if amount is _MISSING else amount.nano for amount in amounts]
        case ("attributes", domain, name):
            keys = _attribute_keys(_named(devices, "attributes", domain, name))
        case (_, outer, domain, name):
            found = _named(devices, outer, domain, name)
            keys = [value is not _MISSING and type(value) is not BadAttribute for value in found]
        case ("has", outer, domain):
            keys = [domain in device.fields[outer] for device in devices]
        case ("driver",):
            keys = [device.driver for device in devices]
        case ("allowMultipleAllocations",):
            keys = [device.allow_multiple_allocations for device in devices]
        case _:
            keys = [_hashable(_below(device, column)) for device in devices]
    return keys


def _attribute_keys(values: list[Value]) -> list[Value]:
    if set(map(type, values)) <= _PLAIN:
        return values
    # Other types hash slowly, but few of the objects differ: each is hashed once.
    distinct = dict(zip(map(id, values), values, strict=True))
    keys = {number: _hashable(value) for number, value in distinct.items()}
    return [keys[id(value)] for value in values]


def _named(devices: Sequence[CELDevice], outer: str, domain: str, name: str) -> list[Value]:
    """One attribute or capacity of each device, read directly from its mapping."""
    full = f"{domain}/{name}"
    if outer == "attributes":
        values: list[Value] = [
            device.attributes.get(name if device.driver == domain else full, _MISSING)
            for device in devices
        ]
    else:
        values = [
            device.capacity.get(name if device.driver == domain else full, _MISSING)
            for device in devices
        ]
    if _MISSING in values:
        for position, value in enumerate(values):
            if value is _MISSING:
                values[position] = getattr(devices[position], outer).get(full, _MISSING)
    return values


_PLAIN = frozenset({str, int, type(_MISSING)})
"""Types whose values are keys as they are; a boolean is not, as it would equal an integer."""


def _below(device: CELDevice, column: Column) -> Value:
    value: Value = device.fields
    for key in column:
        value = value.get(key, EMPTY_MAP)
    return value


def _hashable(value: Value) -> Value:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        # In insertion order, which a loop over the map sees.
        return tuple((key, _hashable(item)) for key, item in value.items())
    return (value.kind if isinstance(value, AttributeList) else type(value).__name__, value)


def inline(node: Node) -> Node:
    """Replace variables that ``cel.bind`` binds to a plain path of ``device`` by that path."""
    if isinstance(node, Bind) and device_path(node.value) is not None and not _hides(node.body):
        return inline(_substitute(node.body, node.name, node.value))
    return node


def _hides(node: Node) -> bool:
    """Whether some variable inside is called ``device``."""
    return "device" in _names(node) or any(map(_hides, children(node)))


def _substitute(node: Node, name: str, value: Node) -> Node:
    if isinstance(node, Ident):
        return value if node.name == name else node
    parts = children(node)
    hidden = parts[1:] if name in _names(node) else ()
    shown = parts[: len(parts) - len(hidden)]
    return with_children(node, (*(_substitute(part, name, value) for part in shown), *hidden))


def _names(node: Node) -> tuple[str, ...]:
    """The variables a node introduces for all its children but the first."""
    if isinstance(node, Bind):
        return (node.name,)
    return node.variables if isinstance(node, Comprehension) else ()
