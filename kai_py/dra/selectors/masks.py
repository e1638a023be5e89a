"""Masks: which devices of a table a selector matches.

A selector is split at ``&&``, ``||`` and ``!``; these combine whole arrays by Kleene's logic, with
errors as the third value, which is exactly what CEL does for one device. Every other part is
evaluated by the ordinary evaluator, once per distinct combination of the columns it depends on, and
the outcome is cached in the table's encoding. Where the parts together might exceed the cost limit,
the selector is evaluated as a whole, since its cost counts as a whole.

Complexity: O(devices) array work per part, plus one evaluation per new combination.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from kai_py.api.bounded import remember
from kai_py.cel.actual_cost import LIMIT
from kai_py.cel.expression import Program, build
from kai_py.cel.syntax import Call, Logic, Node
from kai_py.cel.values import CELRuntimeError, CostLimitError, Value
from kai_py.dra.selectors.columns import Column, columns_of, inline
from kai_py.dra.selectors.selector import Selector, as_bool
from kai_py.dra.selectors.table import MAX_MASKS, DeviceTable

Bools = npt.NDArray[np.bool_]

NO, YES, ERROR = 0, 1, 2


class Mask(NamedTuple):
    """A selector's results, one per device; ``value`` is meaningless where ``error`` is set."""

    value: Bools
    error: Bools


class Leaf(Struct, frozen=True, eq=False, weakref=True):
    """A part that is evaluated per combination of its columns."""

    program: Program
    columns: tuple[Column, ...]
    whole: bool = False
    """Whether this is a complete selector: then exceeding the cost limit is an error."""


class Negation(Struct, frozen=True, eq=False):
    """The negation of a part."""

    part: "Plan"


class Junction(Struct, frozen=True, eq=False):
    """The conjunction or disjunction of the parts."""

    parts: "tuple[Plan, ...]"
    conjunction: bool


Plan = Leaf | Negation | Junction


class Conjunct(Struct, frozen=True, eq=False):
    """One of the conditions that a selector joins by ``&&``."""

    text: str
    plan: Plan

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that the condition reads."""
        return tuple(
            dict.fromkeys(column for leaf in _leaves(self.plan) for column in leaf.columns)
        )


def mask(selector: Selector, table: DeviceTable) -> Mask:
    """Evaluate a selector on all devices of a table."""
    result = table.masks.get(selector)
    if result is None:
        result = _within_limit([_plan(selector)], table) or [_evaluate(_whole(selector), table)]
        result = remember(table.masks, selector, _sound(result[0], table), MAX_MASKS)
    assert isinstance(result, Mask)
    return result


def conjunct_masks(selector: Selector, table: DeviceTable) -> tuple[tuple[Conjunct, Mask], ...]:
    """Evaluate each condition by itself, to tell which of them reject how many devices."""
    parts = conjuncts(selector)
    masks = _within_limit([part.plan for part in parts], table)
    if masks is None:
        return ((_only(selector), mask(selector, table)),)
    return tuple((part, _sound(each, table)) for part, each in zip(parts, masks, strict=True))


def _within_limit(plans: list[Plan], table: DeviceTable) -> list[Mask] | None:
    """Evaluate plans; None if evaluating all of them on one device might exceed the cost limit."""
    try:
        masks = [_evaluate(plan, table) for plan in plans]
    except CostLimitError:
        return None
    costs = table.encoding.costs
    bound = sum(costs[leaf] for plan in plans for leaf in _leaves(plan))
    return masks if bound <= LIMIT else None


@lru_cache(maxsize=1024)
def _plan(selector: Selector) -> Plan:
    return _take_apart(selector, inline(selector.expression.checked.root))


@lru_cache(maxsize=1024)
def _whole(selector: Selector) -> Leaf:
    expression = selector.expression
    return Leaf(expression.program, columns_of(expression.checked.root), whole=True)


def _take_apart(selector: Selector, node: Node) -> Plan:
    match node:
        case Logic(operands, conjunction=conjunction):
            parts = tuple(_take_apart(selector, operand) for operand in operands)
            return Junction(parts, conjunction)
        case Call("!_", None, (operand,)):
            return Negation(_take_apart(selector, operand))
        case _:
            return Leaf(build(selector.expression.checked, node), columns_of(node))


@lru_cache(maxsize=1024)
def conjuncts(selector: Selector) -> tuple[Conjunct, ...]:
    """Split a selector at its outermost ``&&``, with the source text of each condition."""
    node = inline(selector.expression.checked.root)
    if not isinstance(node, Logic) or not node.conjunction:
        return (_only(selector),)
    return tuple(_split(selector, node))


def _only(selector: Selector) -> Conjunct:
    return Conjunct(" ".join(selector.text.split()), _plan(selector))


def _split(selector: Selector, node: Logic) -> list[Conjunct]:
    conditions = []
    for operand, (start, end) in zip(node.operands, node.spans, strict=True):
        if isinstance(operand, Logic) and operand.conjunction:
            conditions += _split(selector, operand)
            continue
        text = " ".join(selector.text[start:end].split())
        conditions.append(Conjunct(text, _take_apart(selector, operand)))
    return conditions


def _leaves(plan: Plan) -> Iterator[Leaf]:
    match plan:
        case Leaf():
            yield plan
        case Negation(part):
            yield from _leaves(part)
        case Junction(parts):
            for each in parts:
                yield from _leaves(each)


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
    encoding = table.encoding
    cached, allowance = encoding.outcomes.setdefault(leaf, {}), encoding.allowance
    max_cost = encoding.costs.setdefault(leaf, 0)
    outcomes = np.empty(len(first), np.int8)
    keys = zip(*(column[first].tolist() for column in columns), strict=True)
    rows = first.tolist()
    for group, key in enumerate(keys if columns else [()] * len(rows)):
        outcome = cached.get(key)
        if outcome is None:
            allowance.require()
            value, cost = leaf.program.attempt(table.devices[rows[group]].activation)
            allowance.spend(cost)
            if cost > LIMIT and not leaf.whole:
                raise CostLimitError
            if cost > max_cost:
                # Stored at once: the next evaluation may exceed the allowance.
                max_cost = encoding.costs[leaf] = cost
            outcome = cached[key] = _outcome(value)
        outcomes[group] = outcome
    per_device = outcomes[groups]
    return Mask(per_device == YES, per_device == ERROR)


def _outcome(value: Value) -> int:
    if isinstance(value, CELRuntimeError):
        return ERROR
    try:
        return YES if as_bool(value) else NO
    except CELRuntimeError:
        return ERROR


def _sound(found: Mask, table: DeviceTable) -> Mask:
    """Count a device with an unreadable attribute as an error, whatever the selector."""
    value, error = found.value & ~table.faulty, found.error | table.faulty
    value.flags.writeable = error.flags.writeable = False
    return Mask(value, error)
