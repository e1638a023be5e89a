"""Compiled expressions: parsed, checked and ready to run.

``compile_expression`` never raises for user input: a text that is no valid expression gives a
``CompileError``.
"""

from dataclasses import dataclass

from kai_py.cel.check import Checked, Environment, check
from kai_py.cel.closures import Activation
from kai_py.cel.evaluate import Program, build
from kai_py.cel.library.strings import compile_pattern
from kai_py.cel.syntax import Call, ExpressionError, Ident, Literal, Node, render_failure, walk
from kai_py.cel.values import CELRuntimeError, Value

CONVERSIONS = frozenset(
    {"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"}
)
"""Functions between CEL's own types."""
PATTERN_FUNCTIONS = frozenset({"find", "findAll"})


@dataclass(frozen=True)
class CompileError:
    """Why a text is no valid expression, in the API server's wording."""

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

    def evaluate(self, activation: Activation) -> tuple[Value, int]:
        """The value, and the cost of computing it.

        :raises CELRuntimeError: the evaluation failed.
        """
        return self.program.run(activation)

    def uses(self, variable: str) -> bool:
        """Whether the expression names a variable."""
        names = (node.name for node in walk(self.checked.root) if isinstance(node, Ident))
        return variable in names


def compile_expression(text: str, environment: Environment) -> Expression | CompileError:
    """Parse, check and compile an expression of any type."""
    # Its parser generator takes long to import, and most clusters in files have no expression.
    from kai_py.cel.parse import parse  # noqa: PLC0415

    try:
        checked = check(parse(text), environment)
    except ExpressionError as failure:
        return CompileError(text, render_failure(text, failure))
    try:
        _compile_patterns(checked.root)
        _convert_constants(checked)
    except CELRuntimeError as failure:
        return CompileError(text, f"program instantiation failed: {failure.reason}")
    return Expression(text, checked, build(checked))


def _convert_constants(checked: Checked) -> None:
    """Convert literals ahead of evaluation, as cel-go's optimizer does.

    :raises CELRuntimeError: one has no such value.
    """
    for node in walk(checked.root):
        if isinstance(node, Call) and _is_constant(node):
            build(checked, node).run({})


def _is_constant(node: Node) -> bool:
    """Whether it is a literal, or one converted."""
    while isinstance(node, Call) and node.function in CONVERSIONS and len(node.args) == 1:
        node = node.args[0]
    return isinstance(node, Literal)


def _compile_patterns(root: Node) -> None:
    """Compile literal patterns ahead of evaluation.

    :raises CELRuntimeError: a pattern is invalid.
    """
    for node in walk(root):
        if isinstance(node, Call) and node.function in PATTERN_FUNCTIONS and node.args:
            pattern = node.args[0]
            if isinstance(pattern, Literal) and isinstance(pattern.value, str):
                compile_pattern(pattern.value)
