"""Derived attributes: attributes of a device that an expression computes.

The result must have one of the types of a device attribute: bool, int, string, semver, or a list of
one of them where list attributes are enabled. Source: KEP-6080;
k8s.io/dynamic-resource-allocation/cel.
"""

from dataclasses import dataclass
from functools import lru_cache

from kai_py.cel.expression import CompileError, Expression, compile_expression
from kai_py.cel.library.versions import Semver
from kai_py.cel.types import Type
from kai_py.cel.values import CELRuntimeError, Value, kind_of
from kai_py.dra.selectors.device import AttributeList, AttributeValue, CELDevice
from kai_py.dra.selectors.selector import (
    ALL_FEATURES,
    SelectorFeatures,
    device_environment,
    evaluate_on,
)

SCALARS = frozenset({"bool", "int", "string", "kubernetes.Semver"})
_GO_NAMES = {
    "bool": "bool", "int": "int64", "string": "string", "kubernetes.Semver": "semver.Version",
    "uint": "uint64", "double": "float64", "bytes": "[]uint8", "null_type": "structpb.NullValue",
    "google.protobuf.Duration": "time.Duration", "google.protobuf.Timestamp": "time.Time",
    "list": "[]ref.Val", "map": "map[ref.Val]ref.Val", "type": "string",
    "kubernetes.Quantity": "*resource.Quantity", "optional_type": "*types.Optional",
    "net.IP": "netip.Addr", "net.CIDR": "netip.Prefix", "kubernetes.URL": "*url.URL",
}  # fmt: skip
_LISTS: dict[type, str] = {bool: "bools", int: "ints", str: "strings", Semver: "versions"}


@dataclass(frozen=True, eq=False)
class AttributeExpression:
    """A compiled derived attribute."""

    expression: Expression

    def value(self, device: CELDevice) -> AttributeValue:
        """Compute the attribute of a device.

        :raises CELRuntimeError: the expression fails, or its value is of no attribute type.
        """
        return attribute_value(evaluate_on(self.expression, device)[0])


@lru_cache(maxsize=4096)
def compile_attribute(
    text: str, features: SelectorFeatures = ALL_FEATURES
) -> AttributeExpression | CompileError:
    """Compile the expression of a derived attribute, once per text."""
    compiled = compile_expression(text, device_environment(features))
    if isinstance(compiled, CompileError):
        return compiled
    result_type = compiled.checked.type
    if _allowed(result_type) or (
        features.list_attributes and result_type.name == "list" and _allowed(result_type.params[0])
    ):
        return AttributeExpression(compiled)
    lists = " or a list of these scalars" if features.list_attributes else ""
    expected = f"a primitive scalar (string, integer, boolean, semver){lists}"
    return CompileError(text, f"must evaluate to {expected}, not {result_type}")


def _allowed(type_: Type) -> bool:
    return type_.dynamic or type_.name in SCALARS


def attribute_value(value: Value) -> AttributeValue:
    """The value of an expression as that of an attribute.

    :raises CELRuntimeError: it has the type of none.
    """
    if isinstance(value, AttributeList):
        return value
    if isinstance(value, tuple):
        return _list(value)
    if isinstance(value, bool | str | Semver) or type(value) is int:
        return value
    raise CELRuntimeError(f"unsupported CEL return type: {_go_name(value)}")


def _list(elements: tuple[Value, ...]) -> AttributeList:
    if not elements:
        return AttributeList("strings", ())
    element_type = type(elements[0])
    if element_type not in _LISTS:
        raise CELRuntimeError(f"unsupported list element type: {_go_name(elements[0])}")
    for index, element in enumerate(elements):
        if type(element) is not element_type:
            raise CELRuntimeError(
                f"expected list element at index {index} to be {_go_name(elements[0])}, "
                f"got {_go_name(element)}"
            )
    return AttributeList(_LISTS[element_type], elements)


def _go_name(value: Value) -> str:
    kind = kind_of(value)
    return _GO_NAMES.get(kind, kind)
