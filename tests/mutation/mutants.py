"""Mutants: one changed operator, constant or condition in a module of the pure packages.

The changes are those that reviewers overlook: a comparison with its boundary moved or turned round,
``and`` for ``or``, a condition negated, a constant off by one, a sign, minimum for maximum.
"""

import ast
import random
from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class Mutant:
    """``module``: path below the repository; ``source``: of the whole module."""

    module: str
    line: int
    change: str
    source: str


def sample(repository: Path, count: int, seed: int) -> list[Mutant]:
    """``count`` mutants, each of a module that is drawn by its number of places to change."""
    places = [
        (path, number)
        for package in PACKAGES
        for path in sorted((repository / "kai_py" / package).rglob("*.py"))
        for number in range(len(list(_places(ast.parse(path.read_text(encoding="utf-8"))))))
    ]
    chosen = random.Random(seed).sample(places, min(count, len(places)))
    return [_mutant(repository, path, number) for path, number in chosen]


def _mutant(repository: Path, path: Path, number: int) -> Mutant:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = list(_places(tree))[number]
    before = ast.unparse(node)
    _change(node)
    after = ast.unparse(node)
    module = str(path.relative_to(repository))
    return Mutant(module, node.lineno, f"{before} -> {after}", ast.unparse(tree))


def _places(tree: ast.AST) -> Iterator[ast.expr | ast.If]:
    """What may be changed, outside of annotations."""
    for node in ast.walk(tree):
        match node:
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


def _change(node: ast.expr | ast.If) -> None:
    match node:
        case ast.Compare(ops=[operator]):
            node.ops = [COMPARED[type(operator)]()]
        case ast.BoolOp(op=operator):
            node.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.BinOp(op=operator):
            node.op = CALCULATED[type(operator)]()
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.Call(func=ast.Name(id=name)):
            node.func = ast.Name(NAMED[name], ast.Load())
        case ast.If():
            node.test = ast.UnaryOp(ast.Not(), node.test)
