"""Why a device is rejected, with the capacity or the attribute that it lacks.

Which constraints of claims prevent an allocation that would be possible without them.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kai_py.api.records.resource import DeviceConstraint, ResourceClaim
from kai_py.dra.capacity import consumed_capacity
from kai_py.dra.eligibility import DeviceCheck, DeviceRejection
from kai_py.dra.parsed_claims import Option
from kai_py.dra.search_state import SearchState


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
