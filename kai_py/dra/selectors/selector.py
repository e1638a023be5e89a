"""CEL expressions on a device: selectors, and derived attributes that an expression computes.

The result of a selector is yes, no or an error with its text. ``compile_selector`` never raises for
user input: a text that is no valid selector gives a ``CompileError``, which is cached like a
result. The environment declares the variable ``device`` and its fields.

The result of a derived attribute must have one of the types of a device attribute: bool, int,
string, semver, or a list of one of them where list attributes are enabled.

Source: k8s.io/dynamic-resource-allocation/cel, ``CompileCELExpression`` and ``DeviceMatches``;
KEP-6080.
"""

from functools import cache, lru_cache

from msgspec import Struct

from kai_py.cel.check import Environment
from kai_py.cel.expression import CompileError, Expression, compile_expression
from kai_py.cel.library.versions import Semver
from kai_py.cel.types import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of
from kai_py.cel.values import CELRuntimeError, Value, kind_of
from kai_py.dra.selectors.device import AttributeList, AttributeValue, CELDevice

DEVICE = Type("kubernetes.DRADevice")


class SelectorFeatures(Struct, frozen=True):
    """What an expression may use, by feature gate.

    The default is everything: a scheduler reads what an API server has already admitted.
    """

    consumable_capacity: bool = True
    list_attributes: bool = True


ALL_FEATURES = SelectorFeatures()


@cache
def device_environment(features: SelectorFeatures = ALL_FEATURES) -> Environment:
    """The environment with the variable ``device``."""
    attribute = DYN if features.list_attributes else ANY
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = BOOL
    hidden = frozenset[str]() if features.list_attributes else frozenset({"includes"})
    return Environment({"device": DEVICE}, {DEVICE.name: fields}, hidden)


class Selector(Struct, frozen=True, eq=False):
    """A compiled selector."""

    expression: Expression

    @property
    def text(self) -> str:
        """The source text."""
        return self.expression.text

    def matches(self, device: CELDevice) -> bool:
        """Whether a device matches.

        :raises CELRuntimeError: the selector fails on this device.
        """
        return as_bool(evaluate_on(self.expression, device)[0])


def evaluate_on(expression: Expression, device: CELDevice) -> tuple[Value, int]:
    """The value of an expression on a device, and the cost of computing it.

    :raises CELRuntimeError: the evaluation failed.
    """
    device.require_sound()
    return expression.program.run(device.activation)


def as_bool(value: Value) -> bool:
    """The value of a selector as its boolean result.

    :raises CELRuntimeError: it is no boolean.
    """
    if isinstance(value, bool):
        return value
    kind = kind_of(value)
    name = _GO_NAMES.get(kind, f"'{kind.rpartition('.')[2]}'")
    conversion = _CONVERSIONS.get(kind, f"type conversion error from {name} to 'bool'")
    raise CELRuntimeError(f"CEL result of type {kind} could not be converted to bool: {conversion}")


_GO_NAMES = {"list": "list", "map": "map", "double": "Double", "bytes": "Bytes"}
_CONVERSIONS = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "type": "type conversion not supported for 'type'",
}


def explain(error: CELRuntimeError) -> str:
    """The text of an error with the hint that Kubernetes adds to it."""
    if not error.reason.startswith("no such key:"):
        return error.reason
    return (
        f"{error.reason}. consider using CEL optional chaining (.? followed by orValue()) "
        "or guarding the check with has() for optional fields"
    )


@lru_cache(maxsize=1024)
def compile_selector(
    text: str, features: SelectorFeatures = ALL_FEATURES
) -> Selector | CompileError:
    """Compile a selector, once per text."""

    def type_fault(found: Type) -> str:
        unknown = found.dynamic if features.list_attributes else found == ANY
        fits = found.name == "bool" or unknown
        return "" if fits else f"must evaluate to bool or the unknown type, not {found}"

    compiled = compile_expression(text, device_environment(features), type_fault)
    return compiled if isinstance(compiled, CompileError) else Selector(compiled)


SCALARS = frozenset({"bool", "int", "string", "kubernetes.Semver"})
_GO_TYPES = {
    "bool": "bool", "int": "int64", "string": "string", "kubernetes.Semver": "semver.Version",
    "uint": "uint64", "double": "float64", "bytes": "[]uint8", "null_type": "structpb.NullValue",
    "google.protobuf.Duration": "time.Duration", "google.protobuf.Timestamp": "time.Time",
    "list": "[]ref.Val", "map": "map[ref.Val]ref.Val", "type": "string",
    "kubernetes.Quantity": "*resource.Quantity", "optional_type": "*types.Optional",
    "net.IP": "netip.Addr", "net.CIDR": "netip.Prefix", "kubernetes.URL": "*url.URL",
}  # fmt: skip
_LISTS: dict[type, str] = {bool: "bools", int: "ints", str: "strings", Semver: "versions"}


class AttributeExpression(Struct, frozen=True, eq=False):
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

    def type_fault(found: Type) -> str:
        is_list = features.list_attributes and found.name == "list"
        if _allowed(found) or (is_list and _allowed(found.params[0])):
            return ""
        lists = " or a list of these scalars" if features.list_attributes else ""
        expected = f"a primitive scalar (string, integer, boolean, semver){lists}"
        return f"must evaluate to {expected}, not {found}"

    compiled = compile_expression(text, device_environment(features), type_fault)
    return compiled if isinstance(compiled, CompileError) else AttributeExpression(compiled)


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
    return _GO_TYPES.get(kind, kind)
