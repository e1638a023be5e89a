"""Does a device match a selector? Three answers: yes, no, and an error with its text.

``compile_selector`` never raises for what a user wrote: a text that is no valid selector gives a
``CompileError``, kept like a result, so that it too is found out only once.

Source: k8s.io/dynamic-resource-allocation/cel, ``CompileCELExpression`` and ``DeviceMatches``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from kai_py.cel.check import STORED, Checked, Environment, check
from kai_py.cel.estimate import cost
from kai_py.cel.evaluate import Program, build
from kai_py.cel.library.regex import compile_pattern
from kai_py.cel.parse import parse
from kai_py.cel.syntax import Call, ExpressionError, Literal, Node, children, render_failure
from kai_py.cel.values import CELRuntimeError, Value, kind_of

if TYPE_CHECKING:
    from kai_py.dra.selectors.device import CELDevice

PATTERN_FUNCTIONS = frozenset({"matches", "find", "findAll"})


@dataclass(frozen=True)
class CompileError:
    """Why a text is no valid expression, in the API server's words."""

    text: str
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, eq=False)
class Expression:
    """A checked expression, ready to run."""

    text: str
    checked: Checked
    program: Program

    @cached_property
    def max_cost(self) -> int:
        """Give the greatest possible cost; Kubernetes refuses more than 1,000,000."""
        return cost.estimate(self.checked)

    def evaluate(self, device: CELDevice) -> tuple[Value, int]:
        """Give the value on a device, and the cost of finding it.

        :raises CELRuntimeError: the evaluation failed.
        """
        device.require_sound()
        return self.program.run(device.fields)


@dataclass(frozen=True, eq=False)
class Selector:
    """A compiled selector."""

    expression: Expression

    @property
    def text(self) -> str:
        """Give the source text."""
        return self.expression.text

    @property
    def max_cost(self) -> int:
        """Give the greatest possible cost."""
        return self.expression.max_cost

    def matches(self, device: CELDevice) -> bool:
        """Tell whether a device matches.

        :raises CELRuntimeError: the selector fails on this device.
        """
        return as_bool(self.expression.evaluate(device)[0])


def as_bool(value: Value) -> bool:
    """Take a selector's value as its answer.

    :raises CELRuntimeError: it is no boolean.
    """
    if isinstance(value, bool):
        return value
    kind = kind_of(value)
    conversion = _CONVERSIONS.get(kind, "type conversion error from '{kind}' to 'bool'")
    raise CELRuntimeError(
        f"CEL result of type {kind} could not be converted to bool: {conversion.format(kind=kind)}"
    )


_CONVERSIONS = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
}


@lru_cache(maxsize=16384)
def compile_selector(text: str, environment: Environment = STORED) -> Selector | CompileError:
    """Compile a selector, once per text."""
    compiled = compile_expression(text, environment)
    if isinstance(compiled, CompileError):
        return compiled
    found = compiled.checked.type
    if found.name != "bool" and not found.dynamic:
        return CompileError(text, f"must evaluate to bool or the unknown type, not {found}")
    return Selector(compiled)


def compile_expression(text: str, environment: Environment) -> Expression | CompileError:
    """Parse, check and compile an expression of any type."""
    try:
        checked = check(parse(text), environment)
    except ExpressionError as failure:
        return CompileError(text, render_failure(text, failure))
    try:
        _compile_patterns(checked.root)
    except CELRuntimeError as failure:
        return CompileError(text, f"program instantiation failed: {failure.reason}")
    return Expression(text, checked, build(checked))


def _compile_patterns(root: Node) -> None:
    """Find out now that a literal pattern is invalid.

    :raises CELRuntimeError: it is.
    """
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Call) and node.function in PATTERN_FUNCTIONS and node.args:
            pattern = node.args[0] if node.target is not None else node.args[-1]
            if isinstance(pattern, Literal) and isinstance(pattern.value, str):
                compile_pattern(pattern.value)
        waiting.extend(children(node))
