"""Why a device is rejected, with the capacity or the attribute that it lacks."""

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
