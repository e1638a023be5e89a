"""Compiled expressions: parsed, checked, and turned into Python closures, one per node.

``compile_expression`` never raises for user input: a text that is no valid expression gives a
``CompileError``.

Reading a variable at literal keys, such as ``device.attributes["d"].x``, is one closure, because it
is most of the work; so is a list of literals. Variables of macros are numbered here.

Source: CEL specification "Evaluation".
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kai_py.cel import closures, values
from kai_py.cel.actual_cost import BY_OVERLOAD, CALL_COSTS, NESTED_WORK
from kai_py.cel.check import Checked, Environment, check
from kai_py.cel.closures import Activation, Closure, Frame
from kai_py.cel.library import find
from kai_py.cel.library.strings import compile_pattern
from kai_py.cel.macros import RESULT
from kai_py.cel.syntax import (
    Bind,
    Call,
    Comprehension,
    ExpressionError,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    Select,
    render_failure,
    variable_path,
    walk,
)
from kai_py.cel.types import TYPE_NAMES, Type
from kai_py.cel.values import CELRuntimeError, TypeName, Value

CONVERSIONS = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
"""Functions that are applied to constants once, ahead of evaluation, as cel-go's optimizer does."""
PATTERN_FUNCTIONS = {"find": 1, "findAll": 1, "matches": 1}
"""Functions with a pattern, and its position, from the text at 0."""
_LAZY: dict[str, Callable[..., Closure]] = {
    "_?_:_": closures.conditional,
    "@not_strictly_false": closures.not_strictly_false,
}
"""Operators that evaluate only some of their arguments, or take errors."""
_INDEXES = {"_[_]": values.index, "_[?_]": values.optional_index}


class Program(Struct, frozen=True):
    """A compiled expression."""

    closure: Closure
    slots: int

    def run(self, activation: Activation) -> tuple[Value, int]:
        """Evaluate; returns the value and its cost.

        :raises CELRuntimeError: the evaluation failed.
        """
        frame = Frame(activation, self.slots)
        value = self.closure(frame)
        frame.add_cost(0)
        return value, frame.cost

    def attempt(self, activation: Activation) -> tuple[Value | CELRuntimeError, int]:
        """Evaluate; returns the value or the error, and the cost together with other work."""
        frame = Frame(activation, self.slots)
        try:
            value = self.closure(frame)
            frame.add_cost(0)
        except CELRuntimeError as error:
            return error.as_value(), frame.cost + frame.work
        return value, frame.cost + frame.work


class CompileError(Struct, frozen=True):
    """Why a text is no valid expression, in the API server's wording."""

    text: str
    message: str

    def __str__(self) -> str:
        return self.message


class Expression(Struct, frozen=True, eq=False, weakref=True):
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


def compile_expression(
    text: str, environment: Environment, type_fault: Callable[[Type], str] = lambda _: ""
) -> Expression | CompileError:
    """Parse, check and compile an expression.

    ``type_fault``: why the type of the expression is refused, "" where it is not.
    """
    # The parser generator takes long to import, and most clusters in files have no expression.
    from kai_py.cel.parse import parse  # noqa: PLC0415

    try:
        checked = check(parse(text), environment)
    except ExpressionError as failure:
        return CompileError(text, render_failure(text, failure))
    fault = type_fault(checked.type)
    if fault:
        return CompileError(text, fault)
    try:
        _compile_patterns(checked.root)
        return Expression(text, checked, build(checked))
    except CELRuntimeError as failure:
        return CompileError(text, f"program instantiation failed: {failure.reason}")


def _compile_patterns(root: Node) -> None:
    """Compile literal patterns ahead of evaluation.

    :raises CELRuntimeError: a pattern is invalid.
    """
    for node in walk(root):
        if isinstance(node, Call) and node.function in PATTERN_FUNCTIONS:
            position = PATTERN_FUNCTIONS[node.function] - (node.target is not None)
            pattern = node.args[position]
            while isinstance(pattern, Call) and pattern.function in ("dyn", "string"):
                pattern = pattern.args[0]
            if isinstance(pattern, Literal) and isinstance(pattern.value, str):
                compile_pattern(pattern.value)


def build(checked: Checked, root: Node | None = None) -> Program:
    """Compile a checked expression, or a part of it that uses no variable from outside.

    :raises CELRuntimeError: a constant cannot be converted.
    """
    scope = _Scope({}, [0], checked)
    closure = _compile(root or checked.root, scope)
    return Program(closure, scope.count[0])


class _Scope(Struct, frozen=True):
    """The readers of local variables, and how many slots are in use.

    ``grown_list``: the slot of the list that the innermost loop makes, if it makes one.
    """

    readers: dict[str, Closure]
    count: list[int]
    checked: Checked
    grown_list: int | None = None

    def slot(self) -> int:
        self.count[0] += 1
        return self.count[0] - 1

    def with_readers(self, readers: dict[str, Closure]) -> "_Scope":
        return replace(self, readers={**self.readers, **readers})


def _compile(node: Node, scope: _Scope) -> Closure:
    path = variable_path(node)
    if path and path[0] not in scope.readers and path[0] in scope.checked.environment.variables:
        return closures.read_path(path[0], path[1:])
    closure = _COMPILERS[type(node)](node, scope)
    return closures.constant(closure(Frame({}, 0))) if _is_constant(node) else closure


def _literal(node: Literal, _scope: _Scope) -> Closure:
    return closures.constant(node.value)


def _ident(node: Ident, scope: _Scope) -> Closure:
    if node.name in scope.readers:
        return scope.readers[node.name]
    return closures.constant(TypeName(TYPE_NAMES[node.name].name))


def _select(node: Select, scope: _Scope) -> Closure:
    operand, field = _compile(node.operand, scope), node.field
    if node.test:
        return lambda frame: values.has(operand(frame), field)
    return closures.select(operand, field, optional=node.optional)


def _logic(node: Logic, scope: _Scope) -> Closure:
    operands = [_compile(operand, scope) for operand in node.operands]
    return closures.logic(operands, conjunction=node.conjunction)


def _call(node: Call, scope: _Scope) -> Closure:
    if scope.grown_list is not None and _is_append(node):
        return _append(node, scope, scope.grown_list)
    nodes = node.args if node.target is None else (node.target, *node.args)
    arguments = [_compile(argument, scope) for argument in nodes]
    name, method = node.function, node.target is not None
    if name in _LAZY:
        return _LAZY[name](*arguments)
    if method and name in {"or", "orValue"}:
        return closures.alternative(name, *arguments)
    if name == "@in" and isinstance(node.args[1], ListLiteral) and not node.args[1].elements:
        # As cel-go plans it: nothing is in an empty list, not even a value that can't be evaluated.
        return closures.constant(value=False)
    if name in _INDEXES:
        operand, key = arguments
        return closures.index(operand, key, _INDEXES[name])
    function = find(name, method=method)
    assert function is not None
    registered = f".{name}" if method else name
    cost = CALL_COSTS.get(registered)
    if name == "@in" and isinstance(node.args[1], ListLiteral) and _is_constant(node.args[1]):
        cost = _free
    elif name in BY_OVERLOAD and len(scope.checked.overloads.get(id(node), ())) > 1:
        cost = None
    return closures.call(name, function, arguments, cost, NESTED_WORK.get(registered))


def _free(_: values.Value) -> int:
    """The cost of looking a value up in a constant list, which cel-go makes a set of."""
    return 0


def _is_append(node: Call) -> bool:
    """Whether a node is the step of a loop that appends an element to its list."""
    match node:
        case Call("_+_", None, (Ident(name), ListLiteral((_,)))):
            return name == RESULT
    return False


def _append(node: Call, scope: _Scope, grown_list: int) -> Closure:
    added = node.args[1]
    assert isinstance(added, ListLiteral)
    element = _compile(added.elements[0], scope)
    return closures.append(grown_list, element, is_constant=_is_constant(added))


def _list(node: ListLiteral, scope: _Scope) -> Closure:
    elements = [_compile(element, scope) for element in node.elements]
    return closures.make_list(elements, node.optional)


def _is_constant(node: Node) -> bool:
    """Whether a node is a literal, or a list, a map or the conversion of such nodes."""
    match node:
        case ListLiteral(elements, optional):
            return not optional and all(map(_is_constant, elements))
        case MapLiteral(entries, optional):
            has_keys = all(isinstance(key, Literal) and key.value is not None for key, _ in entries)
            return has_keys and not optional and all(_is_constant(value) for _, value in entries)
        case Call(name, None, (argument,)):
            return name in CONVERSIONS and _is_constant(argument)
    return isinstance(node, Literal)


def _map(node: MapLiteral, scope: _Scope) -> Closure:
    entries = [(_compile(key, scope), _compile(value, scope)) for key, value in node.entries]
    return closures.make_map(entries, node.optional)


def _bind(node: Bind, scope: _Scope) -> Closure:
    compute, slot = _compile(node.value, scope), scope.slot()
    readers = {node.name: closures.read_lazily(slot, compute)}
    return closures.bind(slot, _compile(node.body, scope.with_readers(readers)))


def _loop(node: Comprehension, scope: _Scope) -> Closure:
    accumulator, *variables = (scope.slot() for _ in range(len(node.variables) + 1))
    names = dict(zip(node.variables, map(closures.read_element, variables), strict=True))
    names[node.accumulator] = closures.read_slot(accumulator)
    makes_list = node.accumulator == RESULT and isinstance(node.initial, ListLiteral)
    makes_map = node.accumulator == RESULT and isinstance(node.initial, MapLiteral)
    grown_list = accumulator if makes_list else None
    inside = replace(scope.with_readers(names), grown_list=grown_list)
    result = _compile(node.result, inside)
    return closures.fold(
        _compile(node.over, scope),
        # Filled by the loop, so that it is a new one in each evaluation.
        (lambda _: [] if makes_list else {})
        if makes_list or makes_map
        else _compile(node.initial, scope),
        variables=variables,
        accumulator=accumulator,
        condition=_compile(node.condition, inside),
        step=_compile(node.step, inside),
        result=(lambda frame: tuple(result(frame))) if makes_list else result,
        absorbs=isinstance(node.step, Logic),
    )


_COMPILERS: dict[type, Callable[[Any, _Scope], Closure]] = {
    Literal: _literal,
    Ident: _ident,
    Select: _select,
    Logic: _logic,
    Call: _call,
    ListLiteral: _list,
    MapLiteral: _map,
    Bind: _bind,
    Comprehension: _loop,
}
