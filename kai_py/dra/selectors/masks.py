"""Which devices of a table does a selector match?

A selector is taken apart at ``&&``, ``||`` and ``!``; these combine whole arrays by Kleene's logic,
with errors as the third value, which is exactly what CEL does for one device. Every other part is
evaluated by the ordinary evaluator, once per distinct combination of the columns it depends on, and
what it gave is kept in the table's encoding. A selector that might exceed the cost limit is not
taken apart, since its cost counts as a whole.

Complexity: O(devices) array work per part, plus one evaluation per combination never seen before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kai_py.cel.charge import LIMIT
from kai_py.cel.evaluate import Program, build
from kai_py.cel.syntax import Call, Logic, Node
from kai_py.cel.values import CELRuntimeError
from kai_py.dra.selectors.columns import Column, columns_of, inline
from kai_py.dra.selectors.selector import Selector, as_bool

if TYPE_CHECKING:
    from kai_py.dra.selectors.table import DeviceTable

Bools = npt.NDArray[np.bool_]

NO, YES, ERROR = 0, 1, 2


class Mask(NamedTuple):
    """A selector's answers, one per device; where ``error`` holds, ``value`` does not."""

    value: Bools
    error: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A part that is evaluated per combination of its columns."""

    program: Program
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negation:
    """The opposite of a part."""

    part: Plan


@dataclass(frozen=True, slots=True, eq=False)
class Junction:
    """All of the parts, or any of them."""

    parts: tuple[Plan, ...]
    conjunction: bool


Plan = Leaf | Negation | Junction


@dataclass(frozen=True, slots=True, eq=False)
class Conjunct:
    """One of the conditions a selector joins by ``&&``."""

    text: str
    plan: Plan

    @property
    def columns(self) -> tuple[Column, ...]:
        """What of a device the condition reads."""
        return tuple(dict.fromkeys(_columns(self.plan)))


def mask(selector: Selector, table: DeviceTable) -> Mask:
    """Evaluate a selector on all devices of a table."""
    found = table.masks.get(selector)
    if found is None:
        found = table.masks[selector] = _sound(_evaluate(_plan(selector), table), table)
    assert isinstance(found, Mask)
    return found


def conjunct_masks(selector: Selector, table: DeviceTable) -> tuple[tuple[Conjunct, Mask], ...]:
    """Evaluate each condition on its own: which of them turned how many devices down."""
    return tuple(
        (conjunct, _sound(_evaluate(conjunct.plan, table), table))
        for conjunct in conjuncts(selector)
    )


@lru_cache(maxsize=16384)
def _plan(selector: Selector) -> Plan:
    checked = selector.expression.checked
    if selector.max_cost > LIMIT:
        return Leaf(selector.expression.program, columns_of(checked.root))
    return _take_apart(selector, inline(checked.root))


def _take_apart(selector: Selector, node: Node) -> Plan:
    match node:
        case Logic(operands, conjunction=conjunction):
            parts = tuple(_take_apart(selector, operand) for operand in operands)
            return Junction(parts, conjunction)
        case Call("!_", None, (operand,)):
            return Negation(_take_apart(selector, operand))
        case _:
            return Leaf(build(selector.expression.checked, node), columns_of(node))


@lru_cache(maxsize=4096)
def conjuncts(selector: Selector) -> tuple[Conjunct, ...]:
    """Split a selector at its outermost ``&&``, with the source text of each condition."""
    node = inline(selector.expression.checked.root)
    whole = Conjunct(" ".join(selector.text.split()), _plan(selector))
    if selector.max_cost > LIMIT or not isinstance(node, Logic) or not node.conjunction:
        return (whole,)
    return tuple(_split(selector, node))


def _split(selector: Selector, node: Logic) -> list[Conjunct]:
    found = []
    for operand, (start, end) in zip(node.operands, node.spans, strict=True):
        if isinstance(operand, Logic) and operand.conjunction:
            found += _split(selector, operand)
            continue
        text = " ".join(selector.text[start:end].split())
        found.append(Conjunct(text, _take_apart(selector, operand)))
    return found


def _columns(plan: Plan) -> tuple[Column, ...]:
    match plan:
        case Leaf():
            return plan.columns
        case Negation(part):
            return _columns(part)
        case Junction(parts):
            return tuple(column for part in parts for column in _columns(part))


def _evaluate(plan: Plan, table: DeviceTable) -> Mask:
    match plan:
        case Leaf():
            return _leaf(plan, table)
        case Negation(part):
            value, error = _evaluate(part, table)
            return Mask(~value & ~error, error)
        case Junction(parts, conjunction):
            return _junction([_evaluate(part, table) for part in parts], conjunction=conjunction)


def _junction(masks: list[Mask], *, conjunction: bool) -> Mask:
    """Combine by Kleene's logic: one deciding operand outweighs any error."""
    value, error = masks[0]
    for other, fault in masks[1:]:
        if conjunction:
            decided = (~value & ~error) | (~other & ~fault)
            value, error = value & other, (error | fault) & ~decided
        else:
            value, error = value | other, (error | fault) & ~(value | other)
    return Mask(value, error)


def _leaf(leaf: Leaf, table: DeviceTable) -> Mask:
    columns = [table.column(column) for column in leaf.columns]
    groups, first = table.combinations(leaf.columns)
    known = table.encoding.outcomes.setdefault(leaf, {})
    outcomes = np.empty(len(first), np.int8)
    keys = zip(*(column[first].tolist() for column in columns), strict=True)
    rows = first.tolist()
    for group, key in enumerate(keys if columns else [()] * len(rows)):
        outcome = known.get(key)
        if outcome is None:
            outcome = known[key] = _outcome(leaf.program, table, rows[group])
        outcomes[group] = outcome
    found = outcomes[groups]
    return Mask(found == YES, found == ERROR)


def _outcome(program: Program, table: DeviceTable, row: int) -> int:
    try:
        return YES if as_bool(program.run(table.devices[row].fields)[0]) else NO
    except CELRuntimeError:
        return ERROR


def _sound(found: Mask, table: DeviceTable) -> Mask:
    """Count a device with an unreadable attribute as an error, whatever the selector."""
    value, error = found.value & ~table.faulty, found.error | table.faulty
    value.flags.writeable = error.flags.writeable = False
    return Mask(value, error)
