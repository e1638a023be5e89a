"""Macros such as ``list.all(x, p)``, and the comprehensions they expand to.

Macros are expanded during parsing, exactly as in cel-go: the expansion determines the cost of an
expression, so the accumulator is read, negated and tested step by step without short cuts.

Source: CEL specification "Macros"; cel-go ``ext`` "Bindings", "Lists", "TwoVarComprehensions".
"""

from collections.abc import Callable

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
)

RESULT = "@result"
"""The accumulator's name, which no identifier of a source text can equal."""

TARGET = "@target"
"""The optional of ``optMap`` and ``optFlatMap``, which cel-go evaluates at each use."""

SORTED = "@__sortBy_input__"
"""The list of ``sortBy`` while its keys are computed."""

TRUE, FALSE, ONE = Literal(value=True), Literal(value=False), Literal(1)


def expand(call: Call) -> Node:
    """Expand ``call`` if it is a macro, else return it unchanged.

    :raises ExpressionError: a macro's variable is no simple name.
    """
    if call.target is None:
        return _has(call) if call.function == "has" and len(call.args) == 1 else call
    if isinstance(call.target, Ident) and call.target.name == "cel" and call.function == "bind":
        return _bind(call) if len(call.args) == 3 else call
    macro = _MACROS.get((call.function, len(call.args)))
    return macro(call) if macro else call


def _accumulated() -> Ident:
    """A new node on every call: the checker records one type per node."""
    return Ident(RESULT)


def _has(call: Call) -> Node:
    field = call.args[0]
    if not isinstance(field, Select):
        raise ExpressionError("invalid argument to has() macro", field.start)
    return Select(field.operand, field.field, call.start, test=True)


def _bind(call: Call) -> Node:
    name = _variable(call.args[0], "cel.bind() variable names must be simple identifiers")
    return Bind(name, call.args[1], call.args[2], call.start)


def _variable(node: Node, message: str = "argument must be a simple name") -> str:
    if not isinstance(node, Ident):
        raise ExpressionError(message, node.start)
    return node.name


def _variables(call: Call, count: int) -> tuple[str, ...]:
    names = tuple(_variable(node) for node in call.args[:count])
    if len(set(names)) < len(names):
        raise ExpressionError(f"duplicate variable name: {names[0]}", call.args[1].start)
    return names


def _loop(
    call: Call, count: int, *, initial: Node, step: Node,
    condition: Node = TRUE, result: Node | None = None,
) -> Node:  # fmt: skip
    over = call.target
    assert over is not None
    variables = _variables(call, count)
    return Comprehension(
        over, variables, RESULT, initial, condition, step, result or _accumulated(), call.start
    )


def _all(call: Call) -> Node:
    return _loop(
        call,
        len(call.args) - 1,
        initial=TRUE,
        condition=Call("@not_strictly_false", None, (_accumulated(),)),
        step=Logic((_accumulated(), call.args[-1]), call.start, conjunction=True),
    )


def _exists(call: Call) -> Node:
    negated = Call("!_", None, (_accumulated(),))
    return _loop(
        call,
        len(call.args) - 1,
        initial=FALSE,
        condition=Call("@not_strictly_false", None, (negated,)),
        step=Logic((_accumulated(), call.args[-1]), call.start, conjunction=False),
    )


def _exists_one(call: Call) -> Node:
    counted = Call("_+_", None, (_accumulated(), ONE), call.start)
    return _loop(
        call,
        len(call.args) - 1,
        initial=Literal(0),
        step=_if(call.args[-1], counted, call.start),
        result=Call("_==_", None, (_accumulated(), ONE), call.start),
    )


def _append(element: Node, start: int) -> Node:
    return Call("_+_", None, (_accumulated(), ListLiteral((element,), start=start)), start)


def _if(condition: Node, chosen: Node, start: int) -> Node:
    return Call("_?_:_", None, (condition, chosen, _accumulated()), start)


def _map(call: Call) -> Node:
    return _collect(call, 1)


def _transform_list(call: Call) -> Node:
    return _collect(call, 2)


def _collect(call: Call, variables: int) -> Node:
    """A list of what the last argument is for each element, if the optional filter takes it."""
    step = _append(call.args[-1], call.start)
    if len(call.args) > variables + 1:
        step = _if(call.args[variables], step, call.start)
    return _loop(call, variables, initial=ListLiteral(()), step=step)


def _filter(call: Call) -> Node:
    step = _if(call.args[1], _append(call.args[0], call.start), call.start)
    return _loop(call, 1, initial=ListLiteral(()), step=step)


def _transform_map(call: Call) -> Node:
    insert = Call("cel.@mapInsert", None, (_accumulated(), call.args[0], call.args[-1]), call.start)
    step = _if(call.args[2], insert, call.start) if len(call.args) == 4 else insert
    return _loop(call, 2, initial=MapLiteral(()), step=step)


def _transform_map_entry(call: Call) -> Node:
    insert = Call("cel.@mapInsert", None, (_accumulated(), call.args[-1]), call.start)
    step = _if(call.args[2], insert, call.start) if len(call.args) == 4 else insert
    return _loop(call, 2, initial=MapLiteral(()), step=step)


def _optional_map(call: Call) -> Node:
    return _optional(call, lambda body: Call("optional.of", None, (body,), call.start))


def _optional_flat_map(call: Call) -> Node:
    return _optional(call, lambda body: body)


def _optional(call: Call, wrap: Callable[[Node], Node]) -> Node:
    name = _variable(call.args[0], f"{call.function}() variable name must be a simple identifier")
    target = Ident(TARGET)
    body = Bind(name, Call("value", target, (), call.start), call.args[1], call.start)
    choice = Call(
        "_?_:_",
        None,
        (
            Call("hasValue", target, (), call.start),
            wrap(body),
            Call("optional.none", None, (), call.start),
        ),
        call.start,
    )
    assert call.target is not None
    return Bind(target.name, call.target, choice, call.start)


def _sort_by(call: Call) -> Node:
    """Sort a list, evaluated once, by the keys that the second argument gives for its elements."""
    assert call.target is not None
    if isinstance(call.target, Literal | MapLiteral):
        message = (
            "sortBy can only be applied to a list, identifier, comprehension, call or select "
            "expression"
        )
        raise ExpressionError(message, call.target.start)
    keys = _map(Call("map", Ident(SORTED), call.args, call.start))
    ordered = Call("@sortByAssociatedKeys", Ident(SORTED), (keys,), call.start)
    return Bind(SORTED, call.target, ordered, call.start)


_MACROS: dict[tuple[str, int], Callable[[Call], Node]] = {
    ("all", 2): _all,
    ("all", 3): _all,
    ("exists", 2): _exists,
    ("exists", 3): _exists,
    ("exists_one", 2): _exists_one,
    ("exists_one", 3): _exists_one,
    ("existsOne", 3): _exists_one,
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_map_entry,
    ("transformMapEntry", 4): _transform_map_entry,
    ("sortBy", 2): _sort_by,
    ("optMap", 2): _optional_map,
    ("optFlatMap", 2): _optional_flat_map,
}
