"""Claims that list alternatives, while victims are searched: charged with what is taken.

A claim without an allocation is charged with the alternative that costs most. Where no victims are
found at that price, the search is repeated with those alternatives alone that cost least, and is
judged by their cost. So a reclaimer gets the second of two alternatives though the first would
bring its queue above its fair share or its limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace as with_fields

from kai_py.api.records.resource import DeviceRequest, ResourceClaimSpec
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.resources import Floats


@dataclass(frozen=True, slots=True)
class CheapestClaims:
    """``specs``: by the id of the claims' own; ``cost``: (quota resources,) of the request then."""

    specs: Mapping[int, ResourceClaimSpec]
    cost: Floats


def cheapest_claims(state: CycleState, request: PlacementRequest) -> CheapestClaims | None:
    """The claims of a request with the alternatives that cost least; None where that is no less.

    Claims whose cost would still depend on the devices found are left as they are.
    """
    accounting, quota = state.accounting, state.quota
    specs: dict[int, ResourceClaimSpec] = {}
    cost = quota.cost_of(request.members).copy()
    for member in request.members:
        for spec in state.statement.devices.own_claims(member).values():
            narrowed = specs.get(id(spec)) or _cheapest(state, spec)
            if narrowed is None:
                continue
            specs[id(spec)] = narrowed
            cost -= quota.cost_vector(accounting.claim_spec(spec))
            cost += quota.cost_vector(accounting.claim_spec(narrowed))
    return CheapestClaims(specs, cost) if specs else None


def _cheapest(state: CycleState, spec: ResourceClaimSpec) -> ResourceClaimSpec | None:
    accounting = state.accounting
    requests = tuple(_with_cheapest(state, each) for each in spec.devices.requests)
    narrowed = with_fields(spec, devices=with_fields(spec.devices, requests=requests))
    most, least = accounting.claim_spec(narrowed), accounting.least_of_claim(spec)
    is_less = accounting.claim_spec(spec) != most
    return narrowed if is_less and most == least else None


def _with_cheapest(state: CycleState, request: DeviceRequest) -> DeviceRequest:
    if not request.first_available:
        return request
    accounting = state.accounting
    least = accounting.least_of_request(request)
    kept = tuple(
        each for each in request.first_available if accounting.least_of_alternative(each) == least
    )
    return with_fields(request, first_available=kept)
