"""Claims that list alternatives, while victims are searched: charged with what is taken.

A claim without an allocation is charged with the alternative that costs most. Where no victims are
found at that price, the search is repeated with those alternatives alone that cost least, and is
judged by their cost. So a reclaimer gets the second of two alternatives though the first would
bring its queue above its fair share or its limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kai_py.api.records.resource import ResourceClaimSpec
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.device_options import ClaimChoices
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats


@dataclass(frozen=True, slots=True)
class CheapestClaims:
    """``specs``: by the id of the claims' own; ``cost``: (quota resources,) of the request then."""

    specs: Mapping[int, ResourceClaimSpec]
    cost: Floats


def cheapest_claims(
    state: CycleState, gang: Gang, request: PlacementRequest
) -> CheapestClaims | None:
    """The claims of a request with the alternatives that cost least; None where that is no less.

    Alternatives beyond a bound, were its queues empty, do not count. Claims whose cost would still
    depend on the devices found are left as they are.
    """
    accounting, quota = state.accounting, state.quota
    nothing = np.zeros_like(quota.usage.allocated)
    usage = replace(quota.usage, allocated=nothing, non_preemptible=nothing)
    choices = ClaimChoices.of(state, gang, request.members, usage)
    options = choices.within({}) if choices.own else None
    if options is None:
        return None
    cheapest = choices.cheapest(options).specs
    specs: dict[int, ResourceClaimSpec] = {}
    cost = quota.cost_of(request.members).copy()
    for spec in choices.own.values():
        narrowed = cheapest[id(spec)]
        most = accounting.claim_spec(narrowed)
        if accounting.claim_spec(spec) == most or most != accounting.least_of_claim(narrowed):
            continue
        specs[id(spec)] = narrowed
        cost -= quota.cost_vector(accounting.claim_spec(spec))
        cost += quota.cost_vector(most)
    return CheapestClaims(specs, cost) if specs else None
