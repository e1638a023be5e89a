"""Requests of which only some choices of devices are within the bounds of their queues.

A claim is charged with the most that it may get: the alternative of ``firstAvailable`` that costs
most, for *all* devices those of the largest node, of several kinds the largest. Where that exceeds
a bound, but the least that it may get does not, the request is placed with what is within it:

1. alternatives that exceed a bound, were all others as cheap as they can be, are closed, and so
   are nodes on which *all* devices are too many;
2. if what the devices found cost together exceeds a bound, every request keeps only the
   alternative that costs least.

What was found is charged by what it is, and must be within the bounds. O(alternatives) beside
placing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from msgspec.structs import replace as with_fields

from kai_py.api.records.resource import DeviceRequest, ResourceClaimSpec
from kai_py.api.references import ClaimRef
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.session.requests import place_earliest
from kai_py.policy.limits import check_limits, check_usage
from kai_py.snapshot.accounting import DeviceRequestSpec
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats

FitsQuota = Callable[[Mapping[str, float]], bool]
"""Whether so much more than the least that a claim can cost is within the bounds."""

UNAFFORDABLE = Unschedulable(Stage.QUEUE_MAX, "")
"""What was found costs more than the bounds allow."""


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What of a request's devices is within the bounds.

    ``specs``: narrowed specs by the id of the claims' own; ``allowed``: (nodes,) bool, None for
    all. ``closed``: the alternatives that are not.
    """

    specs: dict[int, ResourceClaimSpec] = field(default_factory=dict)
    allowed: Bools | None = None
    closed: tuple[str, ...] = ()


def place_within_quota(
    state: CycleState, gang: Gang, request: PlacementRequest, over: Unschedulable
) -> Unschedulable | None:
    """Place a request that exceeds a bound at most, or say why not; ``over``: that it exceeds."""
    own = _own_claims(state, request.members)
    if not own:
        return over
    least = least_cost(state, request.members)
    still_over = check_quota(state.quota, gang, request.members, least)
    if still_over is not None:
        return _naming_closed(still_over, _all_alternatives(own))
    queue = state.quota.queues.positions[gang.queue]
    preemptible, usage = gang.is_preemptible(request.members), state.quota.usage
    claims = Counter(map(id, own.values()))

    def is_within(spec: int, extra: Mapping[str, float]) -> bool:
        cost = least + state.quota.cost_vector(extra) * claims[spec]
        return check_limits(usage, queue, cost, preemptible=preemptible) is None

    affordable = _options(state, own.values(), is_within)
    reason = _place(state, gang, request, affordable)
    if reason is UNAFFORDABLE:
        cheapest = _options(state, own.values(), lambda _, extra: not any(extra.values()))
        reason = _place(state, gang, request, cheapest)
    if reason is UNAFFORDABLE:
        reason = over
    return None if reason is None else _naming_closed(reason, affordable.closed)


def least_cost(state: CycleState, members: Sequence[Member]) -> Floats:
    """(quota resources,) the least that pods can cost together."""
    cost: Floats = state.quota.cost_of(members).copy()
    for spec in _own_claims(state, members).values():
        cost -= state.quota.cost_vector(state.accounting.claim_spec(spec))
        cost += state.quota.cost_vector(state.accounting.least_of_claim(spec))
    return cost


def _own_claims(
    state: CycleState, members: Sequence[Member]
) -> Mapping[ClaimRef, ResourceClaimSpec]:
    found: dict[ClaimRef, ResourceClaimSpec] = {}
    for member in members:
        found |= state.statement.devices.own_claims(member)
    return found


def _options(
    state: CycleState,
    specs: Iterable[ResourceClaimSpec],
    is_within: Callable[[int, Mapping[str, float]], bool],
) -> DeviceOptions:
    """The options with a cost that is within the bounds.

    ``is_within``: whether claims of a spec, by id, may cost so much more than the least.
    """
    narrowed: dict[int, ResourceClaimSpec] = {}
    allowed = np.ones(len(state.snapshot.nodes), dtype=np.bool_)
    closed: dict[str, None] = {}
    for key, spec in {id(spec): spec for spec in specs}.items():
        within = partial(is_within, key)
        requests: list[DeviceRequest] = []
        for each in spec.devices.requests:
            least = state.accounting.least_of_request(each)
            options = _alternatives(each)
            fitting = [option for option in options if within(_extra(state, option, least))]
            closed |= dict.fromkeys(
                f"{each.name}/{option.name}"
                for option in each.first_available
                if option not in fitting
            )
            allowed &= _nodes_for_all(state, fitting, least, within)
            kept = tuple(option for option in each.first_available if option in fitting)
            requests.append(with_fields(each, first_available=kept))
        devices = with_fields(spec.devices, requests=tuple(requests))
        narrowed[key] = with_fields(spec, devices=devices)
    return DeviceOptions(narrowed, None if allowed.all() else allowed, tuple(closed))


def _alternatives(request: DeviceRequest) -> Sequence[DeviceRequestSpec]:
    return request.first_available if request.exactly is None else (request.exactly,)


def _extra(
    state: CycleState,
    option: DeviceRequestSpec,
    least: Mapping[str, float],
    devices: float | None = None,
) -> dict[str, float]:
    """How much more an alternative costs, with so many devices, than what costs least."""
    cost = state.accounting.least_of_alternative(option, devices)
    return {name: cost.get(name, 0.0) - least.get(name, 0.0) for name in {**cost, **least}}


def _nodes_for_all(
    state: CycleState,
    options: Sequence[DeviceRequestSpec],
    least: Mapping[str, float],
    within: FitsQuota,
) -> Bools:
    """(nodes,) bool: where the only option, all devices, is not too many."""
    nodes = state.snapshot.nodes
    allowed = np.ones(len(nodes), dtype=np.bool_)
    if len(options) != 1 or options[0].allocation_mode != "All":
        return allowed
    for node, devices in state.accounting.devices_by_node(options[0]).items():
        row = nodes.positions.get(node)
        if row is not None:
            allowed[row] = within(_extra(state, options[0], least, float(devices)))
    return allowed


def _place(
    state: CycleState, gang: Gang, request: PlacementRequest, options: DeviceOptions
) -> Unschedulable | None:
    """Place with these options; ``UNAFFORDABLE`` where what was found costs too much."""
    statement, usage = state.statement, state.quota.usage
    queue, preemptible = usage.queues.positions[gang.queue], gang.is_preemptible(request.members)
    counted = state.request_cost(gang)
    with statement.trial() as trial, statement.devices.narrowed(options.specs):
        reason = place_earliest(state, gang, request.members, allowed=options.allowed)
        if reason is not None:
            return reason
        if check_usage(usage, queue, counted, preemptible=preemptible) is not None:
            return UNAFFORDABLE
        trial.keep()
    return None


def _all_alternatives(own: Mapping[ClaimRef, ResourceClaimSpec]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(
            f"{request.name}/{each.name}"
            for spec in own.values()
            for request in spec.devices.requests
            for each in request.first_available
        )
    )


def _naming_closed(reason: Unschedulable, closed: Sequence[str]) -> Unschedulable:
    """The reason, and the alternatives of requests that are beyond a bound."""
    if not closed or not reason.message:
        return reason
    text = f"{reason.message.rstrip('.')}; alternatives beyond the quota: {', '.join(closed)}."
    return replace(reason, message=text)
