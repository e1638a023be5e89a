"""Device options: requests that stay within the bounds of their queues only with some devices.

A claim is charged with the most that it may get: the most expensive alternative of
``firstAvailable``; for *all* devices, those of the node that has most; for a request that several
kinds of devices satisfy, the most expensive kind. If that exceeds a bound, but the least that it
may get does not, the bounds restrict the choice of devices:

1. An alternative that exceeds a bound even if all other requests get their cheapest one is closed,
   and so are nodes on which *all* devices would be too many.
   So are kinds of devices of which a single one would be too many for a request that several
   kinds satisfy.
2. If the devices that are found then exceed a bound together, the alternatives of the requests are
   fixed one after the other: for the first request its first alternative that leaves enough to the
   others, and so on. This finds the first combination, in the order of the requests, that nodes
   and bounds allow.
3. After ``MAX_TRIALS`` trial placements every request gets its cheapest alternatives only, and the
   cheapest kinds of devices.

The devices found are charged at their own cost, which must be within the bounds. Claims with the
same spec get the same alternatives. O(alternatives), apart from placing.

``cheapest_claims`` is for searches for victims: the request with its cheapest alternatives alone.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.resource import DeviceRequest, DeviceSubRequest, ResourceClaimSpec
from kai_py.api.references import ClaimRef
from kai_py.api.texts import first_of
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.excluded_kinds import exclude_kinds, excluding, order_of_costs
from kai_py.plan.session.later_alternatives import (
    own_claims,
    place_with_alternatives,
)
from kai_py.plan.session.quota_check import check_quota
from kai_py.policy.queue_limits import check_limits, check_usage
from kai_py.policy.queue_usage import QueueUsage
from kai_py.snapshot.accounting import DeviceRequestSpec
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats

Choice = tuple[int, int]
"""A request of a claim: the ``id`` of the claim's spec, and the position of the request in it."""
Taken = Mapping[Choice, DeviceSubRequest]
"""By request, the alternative that is fixed."""

MAX_TRIALS = 16
UNAFFORDABLE = Unschedulable(Stage.QUEUE_MAX, "")
"""The devices that were found cost more than the bounds allow."""


class DeviceOptions(Struct, frozen=True):
    """The choices of devices that are within the bounds.

    ``specs``: the narrowed claim specs, by the ``id`` of the original spec; ``allowed``: (nodes,)
    bool, None for all. ``closed``: names of the alternatives that exceed a bound.
    """

    specs: Mapping[int, ResourceClaimSpec] = msgspec.field(default_factory=dict)
    allowed: Bools | None = None
    closed: tuple[str, ...] = ()

    def next_choice(self) -> tuple[Choice, Sequence[DeviceSubRequest]] | None:
        """The first request that has several alternatives left, and these; None if none has."""
        for key, spec in self.specs.items():
            for position, each in enumerate(spec.devices.requests):
                if len(each.first_available) > 1:
                    return (key, position), each.first_available
        return None


@dataclass(frozen=True, slots=True)
class ClaimChoices:
    """What the claims of ``members`` may get, and what that costs their queue.

    ``own``: the claims that are charged to the gang; ``specs``: their specs, by ``id``, and
    ``claims``: how many have each. ``least``: (quota resources,) the least that the pods can cost.
    ``usage``: of the queues, without these pods.
    """

    state: CycleState
    gang: Gang
    members: Sequence[Member]
    own: Mapping[ClaimRef, ResourceClaimSpec]
    specs: Mapping[int, ResourceClaimSpec]
    claims: Mapping[int, int]
    least: Floats
    usage: QueueUsage
    _known: dict[bytes, bool] = field(default_factory=dict, compare=False)
    """Answers of ``_allow`` by cost: most alternatives cost the same."""

    @classmethod
    def of(
        cls, state: CycleState, gang: Gang, members: Sequence[Member], usage: QueueUsage
    ) -> "ClaimChoices":
        """The choices of pods of a gang."""
        own = own_claims(state, members)
        specs = {id(spec): spec for spec in own.values()}
        claims = Counter(map(id, own.values()))
        return cls(state, gang, members, own, specs, claims, least_cost(state, members), usage)

    def within(self, taken: Taken) -> DeviceOptions | None:
        """The options of each request if all others get the least, or what is fixed by ``taken``.

        None if a request has no option left.
        """
        base = self.least.copy()
        for choice, alternative in taken.items():
            base += self._extra(choice, alternative)
        specs: dict[int, ResourceClaimSpec] = {}
        allowed = np.ones(len(self.state.snapshot.nodes), dtype=np.bool_)
        closed: dict[str, None] = {}
        for key, spec in self.specs.items():
            requests: list[DeviceRequest] = []
            for position, each in enumerate(spec.devices.requests):
                choice = key, position
                kept, others = self._fitting(choice, each, taken, base)
                if each.first_available and not kept:
                    return None
                names = (f"{each.name}/{a.name}" for a in each.first_available if a not in kept)
                closed |= dict.fromkeys(names)
                requests.append(replace(each, first_available=kept))
                requests[-1] = self._without_kinds(choice, requests[-1], others)
                for row, option, devices in self._nodes_with_all(requests[-1]):
                    allowed[row] &= self._allow(others + self._extra(choice, option, devices))
            devices_spec = replace(spec.devices, requests=tuple(requests))
            specs[key] = replace(spec, devices=devices_spec)
        return DeviceOptions(specs, None if allowed.all() else allowed, tuple(closed))

    def cheapest(self, options: DeviceOptions) -> DeviceOptions:
        """``options`` with only the cheapest alternatives, *all* devices of the smallest nodes."""
        specs: dict[int, ResourceClaimSpec] = {}
        allowed = np.ones(len(self.state.snapshot.nodes), dtype=np.bool_)
        for key, spec in options.specs.items():
            requests = tuple(map(self._cheapest, spec.devices.requests))
            specs[key] = replace(spec, devices=replace(spec.devices, requests=requests))
            for each in requests:
                nodes = self._nodes_with_all(each)
                least = min((devices for _, _, devices in nodes), default=0.0)
                for row, _, devices in nodes:
                    allowed[row] &= devices == least
        return replace(options, specs=specs, allowed=None if allowed.all() else allowed)

    def _fitting(
        self, choice: Choice, request: DeviceRequest, taken: Taken, base: Floats
    ) -> tuple[tuple[DeviceSubRequest, ...], Floats]:
        """The alternatives of a request that are left, and the least cost of all others."""
        chosen = taken.get(choice)
        if chosen is not None:
            return (chosen,), base - self._extra(choice, chosen)
        listed = request.first_available
        return tuple(a for a in listed if self._allow(base + self._extra(choice, a))), base

    def _without_kinds(
        self, choice: Choice, request: DeviceRequest, others: Floats
    ) -> DeviceRequest:
        """The request without the kinds of devices of which a single one exceeds a bound.

        ``others``: (quota resources,) the least cost of everything else.
        """

        def exceeding(option: DeviceRequestSpec) -> Iterator[str]:
            base = others + self._extra(choice, option)
            accounting, vector = self.state.accounting, self.state.quota.cost_vector
            costs = accounting.costs_by_kind(option)
            least = vector(accounting.least_of_alternative(option, 1.0))
            for kinds, cost in costs:
                if not self._allow(base + vector(cost) - least):
                    yield from kinds

        return excluding(request, exceeding)

    def _cheapest(self, request: DeviceRequest) -> DeviceRequest:
        accounting = self.state.accounting
        costs = [accounting.least_of_alternative(a) for a in request.first_available]
        least = min(costs, key=order_of_costs, default={})
        kept = zip(request.first_available, costs, strict=True)
        request = replace(request, first_available=tuple(a for a, c in kept if c == least))

        def costlier(option: DeviceRequestSpec) -> Iterator[str]:
            costs = accounting.costs_by_kind(option)
            least = min((cost for _, cost in costs), key=order_of_costs, default={})
            return (kind for kinds, cost in costs if cost != least for kind in kinds)

        return excluding(request, costlier)

    def _nodes_with_all(self, request: DeviceRequest) -> list[tuple[int, DeviceRequestSpec, float]]:
        """If *all* devices are the only option: rows, the request, and how many each node has."""
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
        """(quota resources,) by how much an alternative exceeds the least cost, for all claims."""
        key, position = choice
        request, accounting = self.specs[key].devices.requests[position], self.state.accounting
        cost, least = accounting.least_of_alternative(option, devices), accounting.least_of(request)
        more = {name: cost.get(name, 0.0) - least.get(name, 0.0) for name in {**cost, **least}}
        extra: Floats = self.state.quota.cost_vector(more) * self.claims[key]
        return extra

    def _allow(self, cost: Floats) -> bool:
        """Whether the bounds allow the pods at ``cost`` (quota resources,)."""
        known = self._known.get(key := cost.tobytes())
        if known is not None:
            return known
        queue = self.usage.queues.positions[self.gang.queue]
        preemptible = self.gang.is_preemptible(self.members)
        allowed = check_limits(self.usage, queue, cost, preemptible=preemptible) is None
        self._known[key] = allowed
        return allowed


def place_within_quota(
    state: CycleState, gang: Gang, request: PlacementRequest, over: Unschedulable
) -> Unschedulable | None:
    """Place a request whose highest cost exceeds a bound (``over``); None, or why not."""
    usage = state.quota.usage_beside(gang, request.members)
    choices = ClaimChoices.of(state, gang, request.members, usage)
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
    if reason is None:
        return None
    if reason is not over and exclude_kinds(options.specs.values()):
        reason = reason.with_clause(over.summary.partition(". ")[0])
    return _naming_closed(reason, options.closed)


def least_cost(state: CycleState, members: Sequence[Member]) -> Floats:
    """(quota resources,) the least that pods can cost, with the cheapest devices."""
    cost: Floats = state.quota.cost_of(members).copy()
    for spec in own_claims(state, members).values():
        cost -= state.quota.cost_vector(state.accounting.claim_spec(spec))
        cost += state.quota.cost_vector(state.accounting.least_of_claim(spec))
    return cost


class CheapestClaims(Struct, frozen=True):
    """A request with only the cheapest alternatives of its claims.

    ``specs``: the narrowed claim specs, by the ``id`` of the original spec; ``cost``: (quota
    resources,) what the request costs with them.
    """

    specs: Mapping[int, ResourceClaimSpec]
    cost: Floats


def cheapest_claims(
    state: CycleState, gang: Gang, request: PlacementRequest
) -> CheapestClaims | None:
    """The request, whose claims have alternatives, with the cheapest; None if that costs no less.

    Alternatives that would exceed a bound even if the queues were empty are left out. Claims whose
    cost would still depend on the devices found are not changed.
    """
    accounting, quota = state.accounting, state.quota
    nothing = np.zeros_like(quota.usage.allocated)
    usage = dataclasses.replace(quota.usage, allocated=nothing, non_preemptible=nothing).with_owed(
        nothing, nothing
    )
    choices = ClaimChoices.of(state, gang, request.members, usage)
    options = choices.within({})
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


class _Trials(Struct):
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


def _place(
    choices: ClaimChoices, options: DeviceOptions, *, explain: bool = True
) -> Unschedulable | None:
    """Place with these options; None, or why not: ``UNAFFORDABLE`` if only the cost is too high."""
    state, gang, members = choices.state, choices.gang, choices.members
    statement, usage = state.statement, state.quota.usage
    queue, preemptible = usage.queues.positions[gang.queue], gang.is_preemptible(members)
    counted = state.request_cost(gang)
    with statement.trial() as trial, statement.devices.narrowed(options.specs):
        reason = place_with_alternatives(
            state, gang, members, allowed=options.allowed, explain=explain
        )
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
    """``reason`` with the alternatives of requests that exceed a bound."""
    if not closed or not reason.message:
        return reason
    named = first_of(closed)
    return reason.with_clause(f"alternatives beyond the quota: {named}")
