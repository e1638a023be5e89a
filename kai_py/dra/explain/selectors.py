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
from kai_py.dra.cluster_layout import Bools, ClusterLayout
from kai_py.dra.eligibility import DeviceCheck
from kai_py.dra.identity import DeviceID
from kai_py.dra.parsed_claims import Option, RequestSelector
from kai_py.dra.rows import DeviceRow
from kai_py.dra.selectors.columns import HAS, Column
from kai_py.dra.selectors.device import MAPS
from kai_py.dra.selectors.masks import Conjunct, Mask, conjunct_masks
from kai_py.dra.selectors.selector import compile_selector


@dataclass(frozen=True, slots=True)
class DeviceRejectionCount:
    """Devices that a check turned down; ``cause`` is the selector and condition, or the taint."""

    check: DeviceCheck
    cause: str
    devices: int


@dataclass(frozen=True, slots=True)
class ClosestDevice:
    """A device, the first condition it fails, and what it has of what the condition reads."""

    device: DeviceID
    condition: str
    values: tuple[tuple[str, str], ...]
    """Name as in the slice, and value; "missing" where it has none."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectedDevices:
    """The devices that pass all selectors of an option."""

    option: Option
    passing: Bools
    """(rows,)"""
    rejected: tuple[DeviceRejectionCount, ...]
    closest: ClosestDevice | None
    """None where a device passes, or none exists."""


def select_devices(option: Option, layout: ClusterLayout, visible: Bools) -> SelectedDevices:
    """Pass the devices ``seen``, (rows,) bool, through the conditions of ``option``."""
    passing = visible.copy()
    removed: list[DeviceRejectionCount] = []
    conditions = list(_conditions(option, layout))
    for selector, conjunct, found in conditions:
        failing = passing & ~found.value
        passing &= found.value
        for rows in (failing & ~found.error, failing & found.error):
            if rows.any():
                error = _error(conjunct, layout.rows[int(rows.argmax())])
                cause = f"{selector} ({conjunct.text}{error})"
                removed.append(
                    DeviceRejectionCount(_check(selector), cause, int(np.count_nonzero(rows)))
                )
    nearest = None
    if visible.any() and not passing.any():
        nearest = _closest_device(
            layout, visible, [(conjunct, found) for _, conjunct, found in conditions]
        )
    return SelectedDevices(option, passing, tuple(removed), nearest)


def _conditions(
    option: Option, layout: ClusterLayout
) -> Iterator[tuple[RequestSelector, Conjunct, Mask]]:
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


def _check(selector: RequestSelector) -> DeviceCheck:
    return DeviceCheck.CLASS if selector.owner.startswith("class ") else DeviceCheck.SELECTOR


def _closest_device(
    layout: ClusterLayout, visible: Bools, conditions: Sequence[tuple[Conjunct, Mask]]
) -> ClosestDevice:
    failed = sum((~found.value).astype(np.int64) for _, found in conditions)
    failed = np.where(visible, failed, len(conditions) + 1)
    tied = np.flatnonzero(failed == failed.min()).tolist()
    row = min(tied, key=lambda each: layout.rows[each].id)
    conjunct = next(conjunct for conjunct, found in conditions if not found.value[row])
    device = layout.rows[row]
    values = dict(_value(device, column) for column in conjunct.columns)
    return ClosestDevice(device.id, conjunct.text, tuple(values.items()))


def _value(row: DeviceRow, column: Column) -> tuple[str, str]:
    keys = column[1:] if column[:1] == (HAS,) else column
    held: object = row.cel.fields
    for key in keys:
        held = held.get(key) if isinstance(held, dict) else None
    name = "/".join(keys[1:]) if keys[:1] and keys[0] in MAPS and len(keys) > 1 else keys[0]
    if held is None:
        return name, "missing"
    return name, f'"{held}"' if isinstance(held, str) else str(held)
