"""Which constraints of claims prevent an allocation that would be possible without them."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kai_py.api.records.resource import DeviceConstraint, ResourceClaim

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
