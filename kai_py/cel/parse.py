"""The parser: source text to syntax tree.

cel-python's LALR grammar does the parsing. Some of its rules are replaced to add what Kubernetes
enables: optional selection ``a.?b`` and ``a[?b]``, optional elements ``[?a]`` and ``{?k: v}``, and
trailing commas; and its numbers and strings, by those of cel-go. The parse tree, one node per
precedence level, is folded here into ``syntax`` nodes; macros are expanded on the way. Nesting is
limited, so that no expression can exhaust the stack.
"""

import importlib.util
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import lark

from kai_py.cel import literals
from kai_py.cel.library import find
from kai_py.cel.macros import expand
from kai_py.cel.syntax import (
    RESERVED,
    Call,
    ExpressionError,
    Ident,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    Select,
)
from kai_py.cel.syntax_errors import first_fault
from kai_py.cel.types import TYPE_NAMES

MAX_DEPTH = 100
DOTTED_TYPES = frozenset(name for name in TYPE_NAMES if "." in name)
MAX_LENGTH = 100_000

_RULES = {
    "member": 'member_dot | member_optdot | member_dot_arg | member_index | member_optidx'
    ' | member_object | primary\n'
    'member_optdot : member "." "?" IDENT\n'
    'member_optidx : member "[" "?" expr "]"',
    "relation_in": "relation IN\nIN : /in(?![_a-zA-Z0-9])/",
    "list_lit": '"[" "]" | "[" elements "]" | "[" elements "," "]"\n'
    'elements : element | elements "," element\n'
    'element : expr | "?" expr',
    "map_lit": '"{" "}" | "{" mapinits "}" | "{" mapinits "," "}"',
    "mapinits": 'mapinit | mapinits "," mapinit\nmapinit : expr ":" expr | "?" expr ":" expr',
    # A sign belongs to the number behind it; a point needs digits, else it selects a field.
    "INT_LIT": "SIGN? /0x/ HEXDIGIT+ | SIGN? DIGIT+\n"
    r"SIGN : /-[\t\n\f\r ]*/",
    "UINT_LIT": "SIGN? /0x/ HEXDIGIT+ /[uU]/ | SIGN? DIGIT+ /[uU]/",
    "FLOAT_LIT": 'SIGN? DIGIT* "." DIGIT+ EXPONENT? | SIGN? DIGIT+ EXPONENT',
    # A backslash hides the quote after it, but in raw strings.
    "STRING_LIT": r"""/(?:"(?:\\.|[^"\\\n\r])*"|'(?:\\.|[^'\\\n\r])*'"""
    r"""|[rR](?:"[^"\n\r]*"|'[^'\n\r]*'))/""",
    "MLSTRING_LIT": r"""/(?:"{3}(?:\\[\s\S]|[^\\])*?"{3}|'{3}(?:\\[\s\S]|[^\\])*?'{3}"""
    r"""|[rR](?:"{3}[\s\S]*?"{3}|'{3}[\s\S]*?'{3}))/""",
}  # fmt: skip
_PRIORITIES = {"UINT_LIT": ".2", "FLOAT_LIT": ".1"}
"""Priorities of terminals that begin alike."""
_BINARY = {
    "relation_lt": "_<_", "relation_le": "_<=_", "relation_gt": "_>_", "relation_ge": "_>=_",
    "relation_eq": "_==_", "relation_ne": "_!=_", "relation_in": "@in",
    "addition_add": "_+_", "addition_sub": "_-_",
    "multiplication_mul": "_*_", "multiplication_div": "_/_", "multiplication_mod": "_%_",
}  # fmt: skip
_NUMBERS = frozenset({"INT_LIT", "UINT_LIT", "FLOAT_LIT"})
_KEYWORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}

Tree = lark.Tree[lark.Token]


def parse(text: str) -> Node:
    """Parse an expression and expand its macros.

    :raises ExpressionError: the text is not an expression.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expression code point size exceeds limit: {MAX_LENGTH}", 0)
    try:
        tree = _parser().parse(text)
    except lark.exceptions.UnexpectedInput as fault:
        raise _syntax_error(text, fault) from None
    return _fold(tree, 0)


def _syntax_error(text: str, fault: lark.exceptions.UnexpectedInput) -> ExpressionError:
    """The error in the words of the API server, where they are known; else in our own."""
    found = first_fault(text)
    if found is not None:
        return ExpressionError(found.message, found.start)
    start = fault.pos_in_stream or 0
    if isinstance(fault, lark.exceptions.UnexpectedToken):
        if fault.token.type == "$END":
            return ExpressionError("Syntax error: unexpected end of expression", len(text))
        return ExpressionError(f"Syntax error: mismatched input '{fault.token}'", start)
    return ExpressionError(f"Syntax error: token recognition error at: '{text[start]}'", start)


def load_grammar() -> None:
    """Read the grammar, which the first expression would wait for. Takes about half a second."""
    _parser()


@cache
def _parser() -> lark.Lark:
    grammar = _published_grammar().read_text(encoding="utf-8")
    for rule, body in _RULES.items():
        pattern = re.compile(rf"^{rule}\s*:.*$(?:\n\s*\|.*$)*", re.MULTILINE)
        text = f"{rule}{_PRIORITIES.get(rule, '')} : {body}"
        grammar, count = pattern.subn(text.replace("\\", r"\\"), grammar, count=1)
        assert count == 1, f"cel-python's grammar has no rule {rule}"
    return lark.Lark(
        grammar, parser="lalr", start="expr", keep_all_tokens=True, propagate_positions=True
    )


def _published_grammar() -> Path:
    """The path of cel-python's grammar file, found without importing the package."""
    package = importlib.util.find_spec("celpy")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).with_name("cel.lark")


def _fold(tree: Tree, depth: int) -> Node:
    """The node of a parse tree, skipping levels with nothing but the next one."""
    while True:
        children = [child for child in tree.children if child is not None]
        if len(children) != 1 or not isinstance(children[0], lark.Tree):
            break
        tree = children[0]
    if depth > MAX_DEPTH:
        raise ExpressionError(f"expression recursion limit exceeded: {MAX_DEPTH}", 0)
    return _FOLDS[tree.data](children, depth + 1)


Children = list[Tree | lark.Token]


def _conditional(children: Children, depth: int) -> Node:
    condition, token, chosen, _, other = children
    args = tuple(_fold(_tree(child), depth) for child in (condition, chosen, other))
    return Call("_?_:_", None, args, _at(token))


def _logic(children: Children, depth: int) -> Node:
    rule = {"&&": "conditionaland", "||": "conditionalor"}[str(children[1])]
    left, operator, right = children
    rights = [right]
    # The grammar nests to the left; a long chain is unrolled here instead of recursing.
    while True:
        deeper = _tree(left)
        inner = [child for child in deeper.children if child is not None]
        if deeper.data != rule or len(inner) != 3:
            break
        left, rights = inner[0], [*rights, inner[2]]
    trees = [_tree(child) for child in (left, *reversed(rights))]
    operands = tuple(_fold(tree, depth) for tree in trees)
    spans = tuple((tree.meta.start_pos, tree.meta.end_pos) for tree in trees)
    return Logic(operands, _at(operator), conjunction=rule == "conditionaland", spans=spans)


def _binary(children: Children, depth: int) -> Node:
    operator, right = _tree(children[0]), _tree(children[1])
    left, token = operator.children
    args = (_fold(_tree(left), depth), _fold(right, depth))
    return Call(_BINARY[operator.data], None, args, _at(token))


def _unary(children: Children, depth: int) -> Node:
    """``!`` or ``-``, any number of times: two of them are none, whatever they are applied to."""
    operator, operand = _tree(children[0]), _tree(children[1])
    start, count = _at(operator.children[0]), 1
    while operand.data == "unary" and len(operand.children) == 2:
        again, operand = map(_tree, operand.children)
        if again.data != operator.data:
            raise _no_operand(again, operand)
        count += 1
    if operator.data == "unary_neg" and _take_sign(operand):
        count += 1
    argument = _fold(operand, depth)
    function = "!_" if operator.data == "unary_not" else "-_"
    return argument if count % 2 == 0 else Call(function, None, (argument,), start)


def _take_sign(tree: Tree) -> bool:
    """Take the sign from the number that the text of a tree begins with, if there is one."""
    parent, first = _first_token(tree)
    if first.type not in _NUMBERS or not first.startswith("-"):
        return False
    digits = first[1:].lstrip()
    parent.children[0] = lark.Token(first.type, digits, _at(first) + len(first) - len(digits))
    return True


def _no_operand(operator: Tree, operand: Tree) -> ExpressionError:
    """The error for a ``!`` or ``-`` that is the operand of the other."""
    _, wrong = _first_token(operand if operator.data == "unary_neg" else operator)
    return ExpressionError(f"Syntax error: no viable alternative at input '-{wrong}'", _at(wrong))


def _first_token(tree: Tree) -> tuple[Tree, lark.Token]:
    """The first token of a tree, and the innermost tree that it begins."""
    while True:
        first = next(child for child in tree.children if child is not None)
        if isinstance(first, lark.Token):
            return tree, first
        tree = first


def _dot(children: Children, depth: int) -> Node:
    operand, dot, name = children
    selected = Select(_fold(_tree(operand), depth), _field(name), _at(dot))
    return _type_name(selected) or selected


def _type_name(node: Select) -> Ident | None:
    """The name of a type, which is one identifier in spite of its dots; None for other nodes."""
    fields = []
    inner: Node = node
    while isinstance(inner, Select) and not inner.optional:
        fields.append(inner.field)
        inner = inner.operand
    if not isinstance(inner, Ident):
        return None
    name = ".".join((inner.name, *reversed(fields)))
    return Ident(name, inner.start) if name in DOTTED_TYPES else None


def _optional_dot(children: Children, depth: int) -> Node:
    operand, dot, _, name = children
    return Select(_fold(_tree(operand), depth), _field(name), _at(dot), optional=True)


def _method(children: Children, depth: int) -> Node:
    operand, _, name, bracket, *rest = children
    target = _fold(_tree(operand), depth)
    call = Call(_name(name), target, _arguments(rest, depth), _at(bracket))
    if isinstance(target, Ident) and find(f"{target.name}.{call.function}", method=False):
        return Call(f"{target.name}.{call.function}", None, call.args, call.start)
    return expand(call)


def _index(children: Children, depth: int) -> Node:
    operand, bracket, index, _ = children
    args = (_fold(_tree(operand), depth), _fold(_tree(index), depth))
    return Call("_[_]", None, args, _at(bracket))


def _optional_index(children: Children, depth: int) -> Node:
    operand, bracket, _, index, _ = children
    args = (_fold(_tree(operand), depth), _fold(_tree(index), depth))
    return Call("_[?_]", None, args, _at(bracket))


def _message(children: Children, depth: int) -> Node:
    operand = _fold(_tree(children[0]), depth)
    name = operand.name if isinstance(operand, Ident) else "message"
    raise ExpressionError(f"undeclared reference to '{name}' (in container '')", _at(children[1]))


def _identifier(children: Children, _depth: int) -> Node:
    token = children[-1]
    start = _at(children[0])
    if str(token) in _KEYWORDS and len(children) == 1:
        return Literal(_KEYWORDS[str(token)], start)
    return Ident(_name(token), start)


def _function(children: Children, depth: int) -> Node:
    name, bracket, *rest = children[children[0] == "." :]
    return expand(Call(_name(name), None, _arguments(rest, depth), _at(bracket)))


def _parenthesis(children: Children, depth: int) -> Node:
    return _fold(_tree(children[1]), depth)


def _list(children: Children, depth: int) -> Node:
    parsed = _flatten(children[1], "elements") if len(children) > 2 else []
    elements, optional = [], []
    for number, element in enumerate(parsed):
        parts = [part for part in element.children if part is not None]
        optional += [number] * (len(parts) == 2)
        elements.append(_fold(_tree(parts[-1]), depth))
    return ListLiteral(tuple(elements), frozenset(optional), _at(children[0]))


def _map(children: Children, depth: int) -> Node:
    parsed = _flatten(children[1], "mapinits") if len(children) > 2 else []
    entries, optional = [], []
    for number, entry in enumerate(parsed):
        optional += [number] * (len(entry.children) == 4)
        key, _, value = entry.children[-3:]
        entries.append((_fold(_tree(key), depth), _fold(_tree(value), depth)))
    return MapLiteral(tuple(entries), frozenset(optional), _at(children[0]))


def _literal(children: Children, _depth: int) -> Node:
    token = children[0]
    assert isinstance(token, lark.Token)
    text, start = str(token), _at(token)
    if text in _KEYWORDS:
        return Literal(_KEYWORDS[text], start)
    return Literal(_LITERALS[token.type](text, start), start)


def _arguments(children: Children, depth: int) -> tuple[Node, ...]:
    if len(children) == 1:
        return ()
    given = _tree(children[0]).children[::2]
    return tuple(_fold(_tree(argument), depth) for argument in given)


def _flatten(tree: Tree | lark.Token, rule: str) -> list[Tree]:
    """The items of a left-recursive list of ``rule``."""
    items: list[Tree] = []
    current = _tree(tree)
    while current.data == rule and len(current.children) == 3:
        items.append(_tree(current.children[2]))
        current = _tree(current.children[0])
    items.append(_tree(current.children[0]))
    return items[::-1]


def _tree(child: Tree | lark.Token | None) -> Tree:
    assert isinstance(child, lark.Tree)
    return child


def _name(token: Tree | lark.Token | None) -> str:
    text = str(token)
    if text in RESERVED:
        raise ExpressionError(f"reserved identifier: {text}", _at(token))
    return text


def _field(token: Tree | lark.Token | None) -> str:
    """The name of a field, which may be a reserved word other than ``in``."""
    if str(token) == "in":
        raise ExpressionError("Syntax error: no viable alternative at input '.in'", _at(token))
    return str(token)


def _at(token: Tree | lark.Token | None) -> int:
    return (token.start_pos or 0) if isinstance(token, lark.Token) else 0


_FOLDS: dict[str, Callable[[Children, int], Node]] = {
    "expr": _conditional,
    "conditionalor": _logic,
    "conditionaland": _logic,
    "relation": _binary,
    "addition": _binary,
    "multiplication": _binary,
    "unary": _unary,
    "member_dot": _dot,
    "member_optdot": _optional_dot,
    "member_dot_arg": _method,
    "member_index": _index,
    "member_optidx": _optional_index,
    "member_object": _message,
    "ident": _identifier,
    "dot_ident": _identifier,
    "ident_arg": _function,
    "dot_ident_arg": _function,
    "paren_expr": _parenthesis,
    "list_lit": _list,
    "map_lit": _map,
    "literal": _literal,
}
_LITERALS: dict[str, Callable[[str, int], bool | int | float | str | bytes | None]] = {
    "INT_LIT": literals.read_int,
    "UINT_LIT": literals.read_uint,
    "FLOAT_LIT": literals.read_float,
    "STRING_LIT": literals.read_string,
    "MLSTRING_LIT": literals.read_string,
    "BYTES_LIT": literals.read_bytes,
}
