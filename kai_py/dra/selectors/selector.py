"""Selectors: CEL expressions on a device whose result is yes, no or an error with its text.

``compile_selector`` never raises for user input: a text that is no valid selector gives a
``CompileError``, which is cached like a result. The environment declares the variable ``device``
and its fields. Source: k8s.io/dynamic-resource-allocation/cel, ``CompileCELExpression`` and
``DeviceMatches``.
"""

from dataclasses import dataclass
from functools import cache, lru_cache

from kai_py.cel.check import Environment
from kai_py.cel.expression import CompileError, Expression, compile_expression
from kai_py.cel.types import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of
from kai_py.cel.values import CELRuntimeError, Value, kind_of
from kai_py.dra.selectors.device import CELDevice

DEVICE = Type("kubernetes.DRADevice")


@dataclass(frozen=True, slots=True)
class SelectorFeatures:
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


@dataclass(frozen=True, eq=False)
class Selector:
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
    compiled = compile_expression(text, device_environment(features))
    if isinstance(compiled, CompileError):
        return compiled
    result_type = compiled.checked.type
    unknown = result_type.dynamic if features.list_attributes else result_type == ANY
    if result_type.name != "bool" and not unknown:
        return CompileError(text, f"must evaluate to bool or the unknown type, not {result_type}")
    return Selector(compiled)
