"""Which condition of which selector turns how many devices down, and which device comes nearest?

Selectors are taken apart at ``&&``; a device is counted at the first condition it fails. The
nearest device is the one that fails the fewest conditions.

Complexity: array work over all devices per condition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kai_py.cel.expression import CompileError
from kai_py.cel.values import CELRuntimeError
from kai_py.dra.claims import Option, Selector
from kai_py.dra.fleet_layout import Bools, FleetLayout
from kai_py.dra.identity import DeviceID
from kai_py.dra.rows import DeviceRow
from kai_py.dra.selection import Step
from kai_py.dra.selectors.columns import HAS, Column
from kai_py.dra.selectors.device import MAPS
from kai_py.dra.selectors.masks import Conjunct, Mask, conjunct_masks
from kai_py.dra.selectors.selector import compile_selector


@dataclass(frozen=True, slots=True)
class Removal:
    """Devices that a check turned down; ``cause`` is the selector and condition, or the taint."""

    step: Step
    cause: str
    devices: int


@dataclass(frozen=True, slots=True)
class Nearest:
    """A device, the first condition it fails, and what it has of what the condition reads."""

    device: DeviceID
    condition: str
    values: tuple[tuple[str, str], ...]
    """Name as in the slice, and value; "missing" where it has none."""


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """The devices that pass all selectors of an option."""

    option: Option
    passing: Bools
    """(rows,)"""
    removed: tuple[Removal, ...]
    nearest: Nearest | None
    """None where a device passes, or none exists."""


def select_devices(option: Option, layout: FleetLayout, seen: Bools) -> Selected:
    """Pass the devices ``seen``, (rows,) bool, through the conditions of ``option``."""
    passing = seen.copy()
    removed: list[Removal] = []
    conditions = list(_conditions(option, layout))
    for selector, conjunct, found in conditions:
        failing = passing & ~found.value
        passing &= found.value
        for rows in (failing & ~found.error, failing & found.error):
            if rows.any():
                error = _error(conjunct, layout.rows[int(rows.argmax())])
                cause = f"{selector} ({conjunct.text}{error})"
                removed.append(Removal(_step(selector), cause, int(np.count_nonzero(rows))))
    nearest = None
    if seen.any() and not passing.any():
        nearest = _nearest(layout, seen, [(conjunct, found) for _, conjunct, found in conditions])
    return Selected(option, passing, tuple(removed), nearest)


def _conditions(option: Option, layout: FleetLayout) -> Iterator[tuple[Selector, Conjunct, Mask]]:
    for selector in option.selectors:
        compiled = compile_selector(selector.expression)
        if not isinstance(compiled, CompileError):
            for conjunct, found in conjunct_masks(compiled, layout.table):
                yield selector, conjunct, found


def _error(conjunct: Conjunct, row: DeviceRow) -> str:
    """What a condition raises on a device, "" where it gives an answer."""
    condition = compile_selector(conjunct.text)
    try:
        if not isinstance(condition, CompileError):
            condition.matches(row.cel)
    except CELRuntimeError as error:
        return f", error: {error.reason}"
    return ""


def _step(selector: Selector) -> Step:
    return Step.CLASS if selector.owner.startswith("class ") else Step.SELECTOR


def _nearest(
    layout: FleetLayout, seen: Bools, conditions: Sequence[tuple[Conjunct, Mask]]
) -> Nearest:
    failed = sum((~found.value).astype(np.int64) for _, found in conditions)
    failed = np.where(seen, failed, len(conditions) + 1)
    tied = np.flatnonzero(failed == failed.min()).tolist()
    row = min(tied, key=lambda each: layout.rows[each].id)
    conjunct = next(conjunct for conjunct, found in conditions if not found.value[row])
    device = layout.rows[row]
    values = dict(_value(device, column) for column in conjunct.columns)
    return Nearest(device.id, conjunct.text, tuple(values.items()))


def _value(row: DeviceRow, column: Column) -> tuple[str, str]:
    keys = column[1:] if column[:1] == (HAS,) else column
    held: object = row.cel.fields
    for key in keys:
        held = held.get(key) if isinstance(held, dict) else None
    name = "/".join(keys[1:]) if keys[:1] and keys[0] in MAPS and len(keys) > 1 else keys[0]
    if held is None:
        return name, "missing"
    return name, f'"{held}"' if isinstance(held, str) else str(held)
