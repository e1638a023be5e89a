"""Solve one request of a preemptor: from the failures of other searches, else by a search.

    fail if a request that needs no more has failed in this action (``FailedShapes``)
    fail if the strategy knows without a search that there are no victims
    fail if an earlier search with the same inputs failed (``search_cache``)
    fail if such a search spent its probe budget and still backs off (``backoff``)
    else search within the probe budget, unless the request would not fit in an empty cluster

The loop over preemptors (``action``) gets victims or a failure, however that was found.
"""

from collections.abc import Hashable, Iterator
from enum import Enum
from functools import partial
from itertools import chain
from typing import NamedTuple

from kai_py.api.resource_names import BASE_RESOURCES
from kai_py.grouping.gang_settings import GangAffinity
from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.fit import dominates
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.search_cache.cache import SearchFailure, SearchKey
from kai_py.plan.search_cache.failed_shapes import FailedShapes, Shapes
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.device_options import CheapestClaims, cheapest_claims
from kai_py.plan.session.later_alternatives import have_alternatives
from kai_py.plan.session.requests import RequestKind, mixed_kind
from kai_py.plan.session.search_budgets import SearchBudgets
from kai_py.plan.victims.never_fits import never_fits
from kai_py.plan.victims.possible_nodes import possible_nodes
from kai_py.plan.victims.search import SearchOutcome, VictimSearch
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.gangs import Gang


class ClaimVariant(Enum):
    """With which alternatives of its claims a request is searched for."""

    LISTED = "Listed"
    CHEAPEST = "Cheapest"


PreemptorClass = tuple[str, bool, bool, tuple[GangAffinity, ...], ClaimVariant]
"""Queue; whether the requested pods and whether the whole gang are preemptible; gang affinity."""


class RequestSignature(NamedTuple):
    """All that a search for pods of one shape depends on beside the cluster.

    ``size``: number of pods.
    """

    preemptor_class: PreemptorClass
    kind: RequestKind
    size: int
    priority: int


class VictimSolver:
    """Solves the requests of one action; remembers which failed."""

    def __init__(self, state: CycleState, strategy_class: type[VictimStrategy]) -> None:
        self._state = state
        self._action, self._backs_off = strategy_class.action, strategy_class.backs_off
        self._searches = state.searches(strategy_class.action)
        needs_more = partial(dominates, state.statement, state.placer.shapes.fits)
        self._failed = FailedShapes[SearchFailure](needs_more)
        self._postponed = FailedShapes[float](needs_more)
        self._cheapest: dict[RequestSignature, CheapestClaims | None] = {}

    def solve(
        self, strategy: VictimStrategy, variant: ClaimVariant = ClaimVariant.LISTED
    ) -> tuple[VictimUnit, ...] | SearchFailure:
        """The victims at the cost of which the request was placed, else how the search failed.

        ``variant``: the alternatives to which claims are narrowed meanwhile.
        """
        found = self._solve(strategy, variant)
        if isinstance(found, SearchFailure) and found.too_many_pods:
            self._state.search_budgets.too_many_pods.add(strategy.gang.key)
        return found

    def _solve(
        self, strategy: VictimStrategy, variant: ClaimVariant
    ) -> tuple[VictimUnit, ...] | SearchFailure:
        gang, request = strategy.gang, strategy.request
        signature, shapes = _signature(self._state, gang, request, variant), _shapes_of(request)
        known = self._failure_without_search(strategy, signature, shapes)
        if known is not None:
            return known
        action = self._action, gang.key
        if signature is not None:
            until = self._postponed.find(_waiting_kind(signature, shapes), shapes, signature.size)
            if until is not None:
                self._state.postpone(self._action, gang, until)
                return SearchFailure()
        key = _search_key(gang, request, signature, variant)
        failure = self._cached_failure(key, gang) or self._backed_off_failure(key)
        if failure is None:
            found = self._search(strategy)
            if not isinstance(found, SearchFailure):
                return found
            failure = found
            if action in self._state.postponed:
                # Later the eviction may be worth its cost, so the request has not failed for good.
                if signature is not None:
                    kind, until = _waiting_kind(signature, shapes), self._state.postponed[action]
                    self._postponed.add(kind, shapes, until, signature.size)
                return failure
            if self._state.turns.spending.cut_short:
                self._state.search_budgets.cut_short.add(gang.key)
                return failure
            self._searches.store(key, failure)
        if signature is not None and not failure.out_of_budget:
            kind, size, priority = _failing_kind(signature), signature.size, signature.priority
            self._failed.add(kind, shapes, failure, size, priority)
        return failure

    def _failure_without_search(
        self, strategy: VictimStrategy, signature: RequestSignature | None, shapes: Shapes
    ) -> SearchFailure | None:
        """The failure of a request that needs no more, or of a strategy without victims."""
        if signature is None:
            return None if strategy.may_find_victims() else SearchFailure()
        kind, size, priority = _failing_kind(signature), signature.size, signature.priority
        failed = self._failed.find(kind, shapes, size, priority)
        if failed is not None:
            # The request that failed was charged for its probes, so this one costs none.
            return SearchFailure(too_many_pods=failed.too_many_pods)
        if strategy.may_find_victims():
            return None
        self._failed.add(kind, shapes, SearchFailure(), size, priority)
        return SearchFailure()

    def is_proven(self, strategy: VictimStrategy) -> bool:
        """Whether nothing can be evicted for the gang, tried last, nor for an equivalent one."""
        state, gang, budgets = self._state, strategy.gang, self._state.search_budgets
        return not (
            strategy.request.members[0].pod.uid in state.statement.placed
            or budgets.searched.get(gang.key, False)
            or gang.key in budgets.cut_short
            or gang.key in budgets.too_many_pods
            or (self._action, gang.key) in state.postponed
        )

    def cheapest_claims(self, gang: Gang, request: PlacementRequest) -> CheapestClaims | None:
        """``device_options.cheapest_claims``, found once for equivalent requests."""
        if not have_alternatives(request.members):
            return None
        signature = _signature(self._state, gang, request, ClaimVariant.CHEAPEST)
        if signature is None:
            return cheapest_claims(self._state, gang, request)
        if signature not in self._cheapest:
            self._cheapest[signature] = cheapest_claims(self._state, gang, request)
        return self._cheapest[signature]

    def _cached_failure(self, key: SearchKey, gang: Gang) -> SearchFailure | None:
        """The cached failure, if any; its probes are charged to the cycle."""
        state = self._state
        failure = self._searches.lookup(key, state.search_budgets.probes_of_search)
        if failure is not None:
            state.search_budgets.probes -= self._searches.charge(key, failure)
            state.eviction_limits.protected_by.update(failure.protected_by)
            _record_search(state.search_budgets, gang, failure)
        return failure

    def _backed_off_failure(self, key: SearchKey) -> SearchFailure | None:
        """How a search that backs off failed, for this request or for one that needs no more."""
        backed_off = self._searches.backed_off()
        known = backed_off.get(key)
        if known is not None:
            self._state.eviction_limits.protected_by.update(known.failure.protected_by)
            return known.failure
        for other, search in backed_off.items():
            if self._needs_no_more(other, key):
                backed_off[key] = search
                return search.failure
        return None

    def _needs_no_more(self, other: SearchKey, key: SearchKey) -> bool:
        """Whether ``other`` is for at most as many pods as ``key``, and each requests no more."""
        ours, theirs = key.signature, other.signature
        if not isinstance(ours, RequestSignature) or not isinstance(theirs, RequestSignature):
            return False
        if key.pod is None or other.pod is None or theirs.size > ours.size:
            return False
        if theirs.preemptor_class != ours.preemptor_class:
            return False
        fits = self._state.placer.shapes.fits
        return dominates(self._state.statement, fits, key.pod.shape, other.pod.shape)

    def _search(self, strategy: VictimStrategy) -> tuple[VictimUnit, ...] | SearchFailure:
        """Search within the probe budget, which is charged to the cycle."""
        state = self._state
        if never_fits(state, strategy.gang, strategy.request.members):
            return SearchFailure()
        strategy.possible_nodes = possible_nodes(strategy)
        if not all(nodes.any() for nodes in strategy.possible_nodes.values()):
            return SearchFailure()
        candidates = strategy.candidates()
        if candidates is None:
            return SearchFailure()
        budgets = state.search_budgets
        budget, used = budgets.probes_of_search, 0
        outcome, victims = SearchOutcome.NO_CAPACITY, tuple[VictimUnit, ...]()
        too_many_pods = False
        with state.eviction_limits.recording() as protected_by:
            offered = _offered(strategy, iter(candidates))
            if offered is not None:
                search = VictimSearch(strategy, budget)
                outcome = search.run(offered)
                used, victims = budget - search.trials.probes, search.victims
                too_many_pods = search.trials.all_exceeded_max_pods
        budgets.probes -= used
        out_of_budget = outcome is SearchOutcome.OUT_OF_BUDGET
        backs_off = out_of_budget and self._backs_off and budget == budgets.probes_per_gang
        failure = SearchFailure(
            budget, used, out_of_budget, backs_off, protected_by, too_many_pods=too_many_pods
        )
        _record_search(budgets, strategy.gang, failure)
        if outcome is not SearchOutcome.PLACED:
            return failure
        self._failed.clear()
        self._postponed.clear()
        return victims


def _signature(
    state: CycleState, gang: Gang, request: PlacementRequest, variant: ClaimVariant
) -> RequestSignature | None:
    """The signature of a request; None if its search depends on more than a signature says."""
    kind = mixed_kind(state, gang, request)
    if kind is None:
        return None
    preemptible = gang.is_preemptible(request.members)
    affinity = gang.settings.gang_affinity
    preemptor_class = gang.queue, preemptible, gang.preemptible, affinity, variant
    return RequestSignature(preemptor_class, kind, len(request.members), gang.priority)


def _failing_kind(signature: RequestSignature) -> Hashable:
    """What requests must have in common so that one fails if another that needs less does."""
    kind, counts = signature.kind, tuple(count for _, count in signature.kind.others)
    return signature.preemptor_class, kind.closed, kind.closed_later, counts


def _waiting_kind(signature: RequestSignature, shapes: Shapes) -> Hashable:
    """What requests must have in common so that one waits for victims to end if another does.

    Waiting costs them the same: they differ at most in what nodes have much of.
    """
    devices = (
        (
            frozenset(n for n in shape.requests.items() if n[0] not in BASE_RESOURCES),
            shape.gpu_share,
        )
        for shape in shapes
    )
    return _failing_kind(signature), signature.size, signature.priority, tuple(devices)


def _shapes_of(request: PlacementRequest) -> Shapes:
    return tuple(group[0].shape for group in by_shape(request.members))


def _search_key(
    gang: Gang,
    request: PlacementRequest,
    signature: RequestSignature | None,
    variant: ClaimVariant,
) -> SearchKey:
    if signature is None:
        return SearchKey((gang.key, request.members[0].pod, variant), gang)
    return SearchKey(signature, pod=None if signature.kind.others else request.members[0])


def _offered(
    strategy: VictimStrategy, candidates: Iterator[VictimUnit]
) -> Iterator[VictimUnit] | None:
    """The candidates; None if there is none and the request certainly does not fit without."""
    if not strategy.needs_victims:
        return candidates
    first = next(candidates, None)
    return None if first is None else chain((first,), candidates)


def _record_search(budgets: SearchBudgets, gang: Gang, search: SearchFailure) -> None:
    """Note whether the search spent its budget: then the gang comes last in the next cycle."""
    if search.budget:
        budgets.record_search(gang.key, ran_out=search.out_of_budget)
