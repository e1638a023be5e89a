"""Why a device is rejected, with the capacity or the attribute that it lacks.

Constraints of claims are named if an allocation would be possible without them. Of a selector, the
devices that each of its conditions rejects are counted, and the device that comes closest is named.
Selectors are split at ``&&``; a device is counted at the first condition it fails. The closest
device is the one that fails the fewest conditions.

Complexity: array work over all devices per condition.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.resource import DeviceConstraint, ResourceClaim
from kai_py.cel.expression import CompileError
from kai_py.cel.values import CELRuntimeError
from kai_py.dra.capacity import consumed_capacity
from kai_py.dra.cluster_layout import Bools, ClusterLayout
from kai_py.dra.eligibility import DeviceCheck, DeviceRejection
from kai_py.dra.identity import DeviceID
from kai_py.dra.parsed_claims import Option, RequestSelector
from kai_py.dra.rows import DeviceRow
from kai_py.dra.search_state import SearchState
from kai_py.dra.selectors.columns import HAS, Column
from kai_py.dra.selectors.device import MAPS
from kai_py.dra.selectors.masks import Conjunct, Mask, conjunct_masks
from kai_py.dra.selectors.selector import compile_selector


def rejection_of(search_state: SearchState, option: Option, device: int) -> DeviceRejection | None:
    """Why a device can't be taken: its own properties come before its allocation."""
    result = search_state.eligibility.check(option, device)
    rejection = (
        result if isinstance(result, DeviceRejection) else search_state.rejection(option, device)
    )
    if rejection is None:
        return None
    if rejection.check is DeviceCheck.CAPACITY:
        detail = _small_capacity(search_state, option, device)
    elif rejection.check is DeviceCheck.CAPACITY_LEFT:
        detail = f"of {rejection.detail}"
        if rejection.detail not in option.capacity:
            detail += " (none is requested, so a share takes the default, or all)"
    elif rejection.check is DeviceCheck.CONSTRAINT:
        detail = _missing_attribute(search_state, option, device)
    else:
        return rejection
    return DeviceRejection(rejection.check, detail)


def _small_capacity(search_state: SearchState, option: Option, device: int) -> str:
    """The first requested capacity that the device does not have, or of which it has too little."""
    eligibility = search_state.eligibility
    known = {each.name: each for each in eligibility.view.rows[device].capacities}
    fractional = eligibility.claims.features.fractional_capacity_range
    for name, amount in sorted(option.capacity.items()):
        capacity = known.get(name)
        if capacity is None:
            return f"of {name}, which they do not publish"
        if consumed_capacity((capacity,), {name: amount}, fractional=fractional) is None:
            return f"of {name}"
    return ""


def _missing_attribute(search_state: SearchState, option: Option, device: int) -> str:
    """The first constraint whose attribute the device does not have."""
    eligibility = search_state.eligibility
    constraints = eligibility.claims.claims[option.claim].constraints
    for index in option.constraints:
        if eligibility.elements(option, index, device) is None:
            return f"{constraints[index].kind.value} {constraints[index].attribute}"
    return "a constraint"


MAX_CONSTRAINTS_TRIED = 4
"""Constraints of which each is left out once."""

Claims = Sequence[ResourceClaim]


def unmet_constraints(
    claims: Claims, is_feasible: Callable[[Claims], bool]
) -> tuple[DeviceConstraint, ...]:
    """The first constraint without which the claims are feasible, or all if that takes several.

    Empty if the claims are not feasible without constraints either.
    """
    constraints = [(at, each) for at, claim in enumerate(claims) for each in _of(claim)]
    if not constraints or not is_feasible([_with(claim, ()) for claim in claims]):
        return ()
    if len(constraints) > 1:
        for at, left_out in constraints[:MAX_CONSTRAINTS_TRIED]:
            kept = tuple(each for each in _of(claims[at]) if each is not left_out)
            if is_feasible([*claims[:at], _with(claims[at], kept), *claims[at + 1 :]]):
                return (left_out,)
    return tuple(each for _, each in constraints)


def _of(claim: ResourceClaim) -> tuple[DeviceConstraint, ...]:
    return claim.spec.devices.constraints


def _with(claim: ResourceClaim, constraints: tuple[DeviceConstraint, ...]) -> ResourceClaim:
    devices = replace(claim.spec.devices, constraints=constraints)
    return replace(claim, spec=replace(claim.spec, devices=devices))


class DeviceRejectionCount(Struct, frozen=True):
    """Devices that a check rejects; ``cause``: the selector and condition, or the taint."""

    check: DeviceCheck
    cause: str
    devices: int


class ClosestDevice(Struct, frozen=True):
    """A device, the first condition it fails, and its values that the condition reads."""

    device: DeviceID
    condition: str
    values: tuple[tuple[str, str], ...]
    """Name as in the slice, and value; "missing" where it has none."""


class SelectedDevices(Struct, frozen=True, eq=False):
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
