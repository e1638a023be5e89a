"""Solve one request of a preemptor: what is known of its search already, else the search.

    a request that needs no less than one that failed fails too (``FailedRequests``)
    the result is that of a search with equal inputs, if there was one (``search_cache``)
    a search that backs off is not repeated (``backoff``)
    else search, within the probe budget, unless the request would not fit an empty cluster

The loop over preemptors (``action``) is given the result and does not see which it was.
"""

from collections.abc import Hashable
from typing import NamedTuple

from kai_py.grouping.gang_settings import GangAffinity
from kai_py.plan.placement.fit import by_shape, dominates
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.search_cache.cache import FailedRequests, SearchKey, SearchResult
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.requests import ActionSearches, request_kind
from kai_py.plan.victims.search import SearchOutcome, VictimSearch
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.policy.pod_rules import max_on_separate_domains
from kai_py.snapshot.gangs import Gang

PreemptorClass = tuple[str, bool, bool, tuple[GangAffinity, ...]]
"""Queue, whether the pods and whether the whole gang is preemptible, gang affinity."""


class RequestSignature(NamedTuple):
    """What decides how a search for pods of one shape ends: preemptor and shape, size, priority."""

    kind: tuple[PreemptorClass, Hashable]
    size: int
    priority: int


class VictimSolver:
    """Solves the requests of one action, in the order in which it is given them."""

    def __init__(self, state: CycleState, strategy_class: type[VictimStrategy]) -> None:
        self._state = state
        self._action, self._backs_off = strategy_class.action, strategy_class.backs_off
        self._searches = ActionSearches(state, strategy_class.action)
        self._failed = FailedRequests[SearchResult]()
        self._postponed: dict[RequestSignature, float] = {}

    def solve(self, strategy: VictimStrategy) -> VictimSearch | SearchResult:
        """The search that placed the request, or how it failed."""
        gang, request = strategy.gang, strategy.request
        signature = _signature(self._state, gang, request)
        if signature is not None and self._failed.find(*signature):
            # Probes were charged for the request that failed, so this one costs none.
            return SearchResult()
        action = self._action, gang.key
        if signature is not None and signature in self._postponed:
            self._state.postponed[action] = self._postponed[signature]
            return SearchResult()
        key = _search_key(gang, request, signature)
        result = self._cached_result(key, gang) or self._backed_off_result(key)
        if result is None:
            found = self._search(strategy)
            if isinstance(found, VictimSearch):
                self._failed.clear()
                self._postponed.clear()
                return found
            result = found
            if action in self._state.postponed:
                # It may be worth it in time, so nothing is proven.
                if signature is not None:
                    self._postponed[signature] = self._state.postponed[action]
                return result
            if self._state.turns.spending.cut_short:
                self._state.cut.add(gang.key)
                return result
            self._searches.store(key, result)
        if signature is not None and not result.out_of_budget:
            self._failed.add(signature.kind, result, signature.size, signature.priority)
        return result

    def solve_without_cache(self, strategy: VictimStrategy) -> VictimSearch | SearchResult:
        """As ``solve``, for a request of which more decides than can be compared."""
        found = self._search(strategy)
        if isinstance(found, VictimSearch):
            self._failed.clear()
            self._postponed.clear()
        return found

    def _cached_result(self, key: SearchKey, gang: Gang) -> SearchResult | None:
        """The result that is known, its probes charged."""
        state = self._state
        result = self._searches.lookup(key, self._probe_budget())
        if result is not None:
            state.probes -= self._searches.charge(key, result)
            state.eviction_limits.protected_by.update(result.protected_by)
            _record_search(state, gang, result)
        return result

    def _backed_off_result(self, key: SearchKey) -> SearchResult | None:
        """The result of a search that backs off, for the request or for one that needs no more."""
        backed_off = self._searches.backed_off()
        known = backed_off.get(key)
        if known is not None:
            self._state.eviction_limits.protected_by.update(known.result.protected_by)
            return known.result
        for other, search in backed_off.items():
            if self._needs_no_more(other, key):
                backed_off[key] = search
                return search.result
        return None

    def _needs_no_more(self, other: SearchKey, key: SearchKey) -> bool:
        """Whether ``other`` is for as many pods, or fewer, that request no more."""
        ours, theirs = key.signature, other.signature
        if not isinstance(ours, RequestSignature) or not isinstance(theirs, RequestSignature):
            return False
        if key.pod is None or other.pod is None or theirs.size > ours.size:
            return False
        if theirs.kind[0] != ours.kind[0]:
            return False
        fits = self._state.placer.shapes.fits
        return dominates(self._state.statement, fits, key.pod.shape, other.pod.shape)

    def _search(self, strategy: VictimStrategy) -> VictimSearch | SearchResult:
        """The search that placed the request, or how it ended."""
        state = self._state
        if _never_fits(state, strategy.request):
            return SearchResult()
        candidates = strategy.candidates()
        if candidates is None:
            return SearchResult()
        budget = self._probe_budget()
        search = VictimSearch(strategy, budget)
        with state.eviction_limits.recording() as protected_by:
            outcome = search.run(candidates)
        used = search.probes_used
        state.probes -= used
        out_of_budget = outcome is SearchOutcome.OUT_OF_BUDGET
        backs_off = out_of_budget and self._backs_off and budget == state.probes_per_gang
        result = SearchResult(budget, used, out_of_budget, backs_off, protected_by)
        _record_search(state, strategy.gang, result)
        return search if outcome is SearchOutcome.PLACED else result

    def _probe_budget(self) -> int:
        return min(self._state.probes, self._state.probes_per_gang)


def _signature(state: CycleState, gang: Gang, request: PlacementRequest) -> RequestSignature | None:
    """What decides how the search for ``gang`` ends; None where more does than can be compared."""
    shape = request_kind(state, gang, request)
    if shape is None:
        return None
    preemptible = gang.is_preemptible(request.members)
    preemptor_class = gang.queue, preemptible, gang.preemptible, gang.gang_affinity
    return RequestSignature((preemptor_class, shape), len(request.members), gang.priority)


def _search_key(
    gang: Gang, request: PlacementRequest, signature: RequestSignature | None
) -> SearchKey:
    if signature is None:
        return SearchKey(gang.key, gang)
    return SearchKey(signature, pod=request.members[0])


def _never_fits(state: CycleState, request: PlacementRequest) -> bool:
    """No node has the devices of a claim, or its pods need more domains than there are."""
    devices, snapshot = state.statement.devices, state.snapshot
    for group in by_shape(request.members):
        shape = group[0].shape
        if shape.needs_devices and not devices.fits_empty_cluster(shape):
            return True
        if shape.pod_anti_affinity:
            mask = state.placer.shapes.fits.static_fits.of(shape, snapshot.nodes).mask
            most = max_on_separate_domains(shape, mask, snapshot.nodes, snapshot.namespaces)
            if len(group) > most:
                return True
    return False


def _record_search(state: CycleState, gang: Gang, result: SearchResult) -> None:
    """A gang whose search ran out of probes comes after all others in the next cycle."""
    if result.budget:
        state.searched[gang.key] = result.out_of_budget or state.searched.get(gang.key, False)
