"""Devices that each condition of a selector rejects, and the device that comes closest.

Selectors are split at ``&&``; a device is counted at the first condition it fails. The closest
device is the one that fails the fewest conditions.

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
    """Devices that a check rejects; ``cause``: the selector and condition, or the taint."""

    check: DeviceCheck
    cause: str
    devices: int


@dataclass(frozen=True, slots=True)
class ClosestDevice:
    """A device, the first condition it fails, and its values that the condition reads."""

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
    """Apply the conditions of ``option`` to the ``visible`` devices, (rows,) bool."""
    passing = visible.copy()
    removed: list[DeviceRejectionCount] = []
    conditions = list(_conditions(option, layout))
    for selector, conjunct, result in conditions:
        failing = passing & ~result.value
        passing &= result.value
        for rows in (failing & ~result.error, failing & result.error):
            if rows.any():
                error = _error(conjunct, layout.rows[int(rows.argmax())])
                cause = f"{selector.place} ({conjunct.text}{error})"
                removed.append(
                    DeviceRejectionCount(_check(selector), cause, int(np.count_nonzero(rows)))
                )
    closest = None
    if visible.any() and not passing.any():
        closest = _closest_device(
            layout, visible, [(conjunct, result) for _, conjunct, result in conditions]
        )
    return SelectedDevices(option, passing, tuple(removed), closest)


def _conditions(
    option: Option, layout: ClusterLayout
) -> Iterator[tuple[RequestSelector, Conjunct, Mask]]:
    for selector in option.selectors:
        compiled = compile_selector(selector.expression)
        if not isinstance(compiled, CompileError):
            for conjunct, result in conjunct_masks(compiled, layout.table):
                yield selector, conjunct, result


def _error(conjunct: Conjunct, row: DeviceRow) -> str:
    """The error text of a condition on a device, "" where it has a result."""
    condition = compile_selector(conjunct.text)
    try:
        if not isinstance(condition, CompileError):
            condition.matches(row.cel)
    except CELRuntimeError as error:
        return f", error: {error.reason}"
    return ""


def _check(selector: RequestSelector) -> DeviceCheck:
    return DeviceCheck.CLASS if selector.is_of_class else DeviceCheck.SELECTOR


def _closest_device(
    layout: ClusterLayout, visible: Bools, conditions: Sequence[tuple[Conjunct, Mask]]
) -> ClosestDevice:
    failed = sum((~result.value).astype(np.int64) for _, result in conditions)
    failed = np.where(visible, failed, len(conditions) + 1)
    tied = np.flatnonzero(failed == failed.min()).tolist()
    row = min(tied, key=lambda each: layout.rows[each].id)
    conjunct = next(conjunct for conjunct, result in conditions if not result.value[row])
    device = layout.rows[row]
    values = dict(_value(device, column) for column in conjunct.columns)
    return ClosestDevice(device.id, conjunct.text, tuple(values.items()))


def _value(row: DeviceRow, column: Column) -> tuple[str, str]:
    keys = column[1:] if column[:1] == (HAS,) else column
    value: object = row.cel.fields
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    name = "/".join(keys[1:]) if keys[:1] and keys[0] in MAPS and len(keys) > 1 else keys[0]
    if value is None:
        return name, "missing"
    return name, f'"{value}"' if isinstance(value, str) else str(value)
