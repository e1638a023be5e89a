"""Mutants: one changed operator, condition or sign in a module of a pure package or of commit.

The changes are those that reviewers overlook: a comparison with its boundary moved or turned round,
``and`` for ``or``, a condition negated, a sign, minimum for maximum. All mutants of a module are
compiled into it at once, each as ``changed if active(number) else original``, so that one process
imports and collects everything once and then judges any of them.
"""

import ast
import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("policy", "plan", "snapshot", "dra", "grouping", "commit")
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
NAMED = {"min": "max", "max": "min", "any": "all", "all": "any"}
SWITCH = "__mutant_is_active__"
"""The name under which mutated modules find the function that says whether a mutant is active."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``module``: path below the repository; ``place``: the number of its place in the module."""

    module: str
    place: int
    line: int
    change: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"


def sample(
    repository: Path, count: int, seed: int, packages: Sequence[str] = PACKAGES
) -> list[Mutant]:
    """``count`` mutants, each of a module that is drawn by its number of places to change."""
    places = [
        (path, number)
        for package in packages
        for path in sorted((repository / "kai_py" / package).rglob("*.py"))
        for number in range(len(list(_places(_tree(path)))))
    ]
    chosen = random.Random(seed).sample(places, min(count, len(places)))
    return [mutant_at(repository, path, number) for path, number in chosen]


def switched(source: str, chosen: Mapping[int, int]) -> ast.Module:
    """The module with mutants inside; ``chosen``: the number of the mutant by its place."""
    tree = ast.parse(source)
    targets: dict[ast.expr, list[tuple[int, ast.expr]]] = {}
    for place, node in enumerate(_places(tree)):
        if place in chosen:
            targets.setdefault(_expression(node), []).append((chosen[place], _changed(node)))
    return ast.fix_missing_locations(_Switching(targets).visit(tree))


class _Switching(ast.NodeTransformer):
    def __init__(self, targets: Mapping[ast.expr, Sequence[tuple[int, ast.expr]]]) -> None:
        self._targets = targets

    def visit(self, node: ast.AST) -> ast.AST:
        seen = self.generic_visit(node)
        if not isinstance(node, ast.expr) or not isinstance(seen, ast.expr):
            return seen
        for number, changed in self._targets.get(node, ()):
            asked = ast.Call(ast.Name(SWITCH, ast.Load()), [ast.Constant(number)], [])
            seen = ast.copy_location(ast.IfExp(asked, changed, seen), node)
        return seen


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def mutant_at(repository: Path, path: Path, number: int) -> Mutant:
    """The mutant of the place with this number in the module at ``path``."""
    node = list(_places(_tree(path)))[number]
    before, after = ast.unparse(_expression(node)), ast.unparse(_changed(node))
    return Mutant(str(path.relative_to(repository)), number, node.lineno, f"{before} -> {after}")


def _places(tree: ast.AST) -> Iterator[ast.expr | ast.If]:
    """What may be changed and matters at run time."""
    for node in ast.walk(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
                yield node
            case ast.BoolOp():
                yield node
            case ast.BinOp(op=operator) if type(operator) in CALCULATED:
                yield node
            case ast.UnaryOp(op=ast.Not()):
                yield node
            case ast.Call(func=ast.Name(id=name)) if name in NAMED:
                yield node
            case ast.If(test=ast.Name() | ast.Call() | ast.Attribute()):
                yield node


def _expression(node: ast.expr | ast.If) -> ast.expr:
    return node.test if isinstance(node, ast.If) else node


def _changed(node: ast.expr | ast.If) -> ast.expr:
    """What stands in the place of the expression, which stays as it is."""
    seen = copy.deepcopy(_expression(node))
    match node, seen:
        case ast.If(), _:
            return ast.UnaryOp(ast.Not(), seen)
        case _, ast.Compare(ops=[operator]):
            seen.ops = [COMPARED[type(operator)]()]
        case _, ast.BoolOp(op=operator):
            seen.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case _, ast.BinOp(op=operator):
            seen.op = CALCULATED[type(operator)]()
        case _, ast.UnaryOp():
            return seen.operand
        case _, ast.Call(func=ast.Name(id=name)):
            seen.func = ast.Name(NAMED[name], ast.Load())
    return seen
