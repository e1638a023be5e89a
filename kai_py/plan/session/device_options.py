"""Requests of which only some choices of devices are within the bounds of their queues.

A claim is charged with the most that it may get: the alternative of ``firstAvailable`` that costs
most, for *all* devices those of the largest node, of several kinds the largest. Where that exceeds
a bound, but the least that it may get does not, the bounds decide as nodes do:

1. alternatives that exceed a bound, were all others as cheap as they can be, are closed, and so
   are nodes on which *all* devices are too many;
2. if what the devices found cost together exceeds a bound, the requests get their alternatives one
   after the other: the first its first one that leaves enough to the others, and so on. That is the
   first combination, in the order of the requests, that nodes and bounds allow;
3. after ``MAX_TRIALS`` attempts to place, every request keeps the alternatives that cost least.

What was found is charged by what it is, and must be within the bounds. Claims with the same spec
get the same alternatives. O(alternatives) beside placing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec.structs import replace as with_fields

from kai_py.api.records.resource import DeviceRequest, DeviceSubRequest, ResourceClaimSpec
from kai_py.api.references import ClaimRef
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.session.requests import place_earliest
from kai_py.policy.queue_usage import QueueUsage, check_limits, check_usage
from kai_py.snapshot.accounting import GPU, DeviceRequestSpec
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats

Choice = tuple[int, int]
"""A request: the id of the spec of its claims, and its position there."""
Taken = Mapping[Choice, DeviceSubRequest]

MAX_TRIALS = 16
UNAFFORDABLE = Unschedulable(Stage.QUEUE_MAX, "")
"""What was found costs more than the bounds allow."""


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What of a request's devices is within the bounds.

    ``specs``: narrowed specs by the id of the claims' own; ``allowed``: (nodes,) bool, None for
    all. ``closed``: the alternatives that are not.
    """

    specs: Mapping[int, ResourceClaimSpec] = field(default_factory=dict)
    allowed: Bools | None = None
    closed: tuple[str, ...] = ()

    def next_choice(self) -> tuple[Choice, Sequence[DeviceSubRequest]] | None:
        """The first request with several alternatives, and these."""
        for key, spec in self.specs.items():
            for position, each in enumerate(spec.devices.requests):
                if len(each.first_available) > 1:
                    return (key, position), each.first_available
        return None


@dataclass(frozen=True, slots=True)
class ClaimChoices:
    """What the claims of pods may get, and what that costs their queue.

    ``own``: the claims that are charged to the gang; ``claims``: how many by the id of their spec.
    ``least``: (quota resources,) of each the least that the pods can cost. ``usage``: what the
    queues have allocated beside it.
    """

    state: CycleState
    gang: Gang
    members: Sequence[Member]
    own: Mapping[ClaimRef, ResourceClaimSpec]
    claims: Mapping[int, int]
    least: Floats
    usage: QueueUsage

    @classmethod
    def of(
        cls, state: CycleState, gang: Gang, members: Sequence[Member], usage: QueueUsage
    ) -> "ClaimChoices":
        """The choices of pods of a gang."""
        own = _own_claims(state, members)
        claims = Counter(map(id, own.values()))
        return cls(state, gang, members, own, claims, least_cost(state, members), usage)

    def within(self, taken: Taken) -> DeviceOptions | None:
        """What is within the bounds, each request by itself, beside what was ``taken``.

        None where some request has nothing.
        """
        base = self.least.copy()
        for choice, alternative in taken.items():
            base += self._extra(choice, alternative)
        specs: dict[int, ResourceClaimSpec] = {}
        allowed = np.ones(len(self.state.snapshot.nodes), dtype=np.bool_)
        closed: dict[str, None] = {}
        for key, spec in self._specs.items():
            requests: list[DeviceRequest] = []
            for position, each in enumerate(spec.devices.requests):
                choice = key, position
                kept, others = self._fitting(choice, each, taken, base)
                if each.first_available and not kept:
                    return None
                names = (f"{each.name}/{a.name}" for a in each.first_available if a not in kept)
                closed |= dict.fromkeys(names)
                requests.append(with_fields(each, first_available=kept))
                for row, option, devices in self._nodes_with_all(requests[-1]):
                    allowed[row] &= self._allow(others + self._extra(choice, option, devices))
            devices_spec = with_fields(spec.devices, requests=tuple(requests))
            specs[key] = with_fields(spec, devices=devices_spec)
        return DeviceOptions(specs, None if allowed.all() else allowed, tuple(closed))

    def cheapest(self, options: DeviceOptions) -> DeviceOptions:
        """Of ``options`` the alternatives that cost least, *all* devices on the smallest nodes."""
        specs: dict[int, ResourceClaimSpec] = {}
        allowed = np.ones(len(self.state.snapshot.nodes), dtype=np.bool_)
        for key, spec in options.specs.items():
            requests = tuple(map(self._cheapest, spec.devices.requests))
            specs[key] = with_fields(spec, devices=with_fields(spec.devices, requests=requests))
            for each in requests:
                nodes = self._nodes_with_all(each)
                least = min((devices for _, _, devices in nodes), default=0.0)
                for row, _, devices in nodes:
                    allowed[row] &= devices == least
        return replace(options, specs=specs, allowed=None if allowed.all() else allowed)

    @property
    def _specs(self) -> dict[int, ResourceClaimSpec]:
        return {id(spec): spec for spec in self.own.values()}

    def _fitting(
        self, choice: Choice, request: DeviceRequest, taken: Taken, base: Floats
    ) -> tuple[tuple[DeviceSubRequest, ...], Floats]:
        """The alternatives of a request that are left, and what all but it cost at least."""
        chosen = taken.get(choice)
        if chosen is not None:
            return (chosen,), base - self._extra(choice, chosen)
        listed = request.first_available
        return tuple(a for a in listed if self._allow(base + self._extra(choice, a))), base

    def _cheapest(self, request: DeviceRequest) -> DeviceRequest:
        costs = [self.state.accounting.least_of_alternative(a) for a in request.first_available]
        least = min(costs, key=lambda cost: (cost.get(GPU, 0.0), sum(cost.values())), default={})
        kept = zip(request.first_available, costs, strict=True)
        return with_fields(request, first_available=tuple(a for a, cost in kept if cost == least))

    def _nodes_with_all(self, request: DeviceRequest) -> list[tuple[int, DeviceRequestSpec, float]]:
        """Rows of nodes, and how many devices *all* are there, where that is the only option."""
        exact = request.exactly
        listed = request.first_available if exact is None else (exact,)
        is_free = exact is not None and exact.admin_access
        if len(listed) != 1 or listed[0].allocation_mode != "All" or is_free:
            return []
        rows = self.state.snapshot.nodes.positions
        by_node = self.state.accounting.devices_by_node(listed[0])
        return [(rows[n], listed[0], float(many)) for n, many in by_node.items() if n in rows]

    def _extra(
        self, choice: Choice, option: DeviceRequestSpec, devices: float | None = None
    ) -> Floats:
        """(quota resources,) how much more than the least an alternative costs, for all claims."""
        key, position = choice
        request, accounting = self._specs[key].devices.requests[position], self.state.accounting
        cost, least = accounting.least_of_alternative(option, devices), accounting.least_of(request)
        more = {name: cost.get(name, 0.0) - least.get(name, 0.0) for name in {**cost, **least}}
        extra: Floats = self.state.quota.cost_vector(more) * self.claims[key]
        return extra

    def _allow(self, cost: Floats) -> bool:
        """Whether the bounds allow the pods at a cost."""
        queue = self.usage.queues.positions[self.gang.queue]
        preemptible = self.gang.is_preemptible(self.members)
        return check_limits(self.usage, queue, cost, preemptible=preemptible) is None


def place_within_quota(
    state: CycleState, gang: Gang, request: PlacementRequest, over: Unschedulable
) -> Unschedulable | None:
    """Place a request that exceeds a bound at most, or say why not; ``over``: that it exceeds."""
    choices = ClaimChoices.of(state, gang, request.members, state.quota.usage)
    if not choices.own:
        return over
    still_over = check_quota(state.quota, gang, request.members, choices.least)
    options = choices.within({}) if still_over is None else None
    if options is None:
        return _naming_closed(still_over or over, _all_alternatives(choices.own))
    reason = _place(choices, options)
    if reason is UNAFFORDABLE:
        reason = _Trials(choices).place_first({}, options)
    if reason is UNAFFORDABLE:
        reason = _place(choices, choices.cheapest(options))
    if reason is UNAFFORDABLE:
        reason = over
    return None if reason is None else _naming_closed(reason, options.closed)


def least_cost(state: CycleState, members: Sequence[Member]) -> Floats:
    """(quota resources,) of each the least that pods can cost."""
    cost: Floats = state.quota.cost_of(members).copy()
    for spec in _own_claims(state, members).values():
        cost -= state.quota.cost_vector(state.accounting.claim_spec(spec))
        cost += state.quota.cost_vector(state.accounting.least_of_claim(spec))
    return cost


@dataclass(slots=True)
class _Trials:
    """The search for the first combination of alternatives, depth first."""

    choices: ClaimChoices
    _made: int = 0

    def place_first(self, taken: Taken, options: DeviceOptions) -> Unschedulable | None:
        """Place with the first combination of ``options``; ``UNAFFORDABLE`` if none was found.

        Where nodes do not serve a request by any of several alternatives, none of these is tried.
        """
        found = options.next_choice()
        if found is None:
            return UNAFFORDABLE
        choice, alternatives = found
        for each in alternatives:
            tried = {**taken, choice: each}
            narrowed = self.choices.within(tried)
            if narrowed is None:
                continue
            if self._made == MAX_TRIALS:
                break
            self._made += 1
            reason = _place(self.choices, narrowed, explain=False)
            if reason is UNAFFORDABLE:
                reason = self.place_first(tried, narrowed)
            if reason is None:
                return None
        return UNAFFORDABLE


def _own_claims(
    state: CycleState, members: Sequence[Member]
) -> Mapping[ClaimRef, ResourceClaimSpec]:
    found: dict[ClaimRef, ResourceClaimSpec] = {}
    for member in members:
        found |= state.statement.devices.own_claims(member)
    return found


def _place(
    choices: ClaimChoices, options: DeviceOptions, *, explain: bool = True
) -> Unschedulable | None:
    """Place with these options; ``UNAFFORDABLE`` where what was found costs too much."""
    state, gang, members = choices.state, choices.gang, choices.members
    statement, usage = state.statement, state.quota.usage
    queue, preemptible = usage.queues.positions[gang.queue], gang.is_preemptible(members)
    counted = state.request_cost(gang)
    with statement.trial() as trial, statement.devices.narrowed(options.specs):
        reason = place_earliest(state, gang, members, allowed=options.allowed, explain=explain)
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
