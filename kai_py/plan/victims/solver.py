"""Solve one request of a preemptor: what is known already about its search, else the search.

a request that needs no less than one that failed before, since anything was placed, fails too
the result is that of an equal search, if it still holds (``search_cache``)
a search that backs off is not repeated, nor one for as many pods that request at least as much
else search, within the probe budget, unless even an empty cluster gives no hope
"""

from typing import NamedTuple

from kai_py.grouping.gang_settings import GangAffinity
from kai_py.plan.placement.fit import by_shape, dominates
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.search_cache import SearchKey, SearchResult
from kai_py.plan.session import CycleState, request_signature
from kai_py.plan.victims.search import SearchOutcome, VictimSearch, VictimStrategy
from kai_py.policy.pod_rules import PodRules
from kai_py.snapshot.gangs import Gang

PreemptorClass = tuple[str, bool, bool, tuple[GangAffinity, ...]]
"""Queue, whether the pods and whether the whole gang is preemptible, gang affinity."""


class RequestSignature(NamedTuple):
    """What decides how a search for pods of one shape ends."""

    preemptor_class: PreemptorClass
    shape: int
    priority: int
    size: int


class VictimSolver:
    """Solves the requests of one action, in the order in which it is given them."""

    def __init__(self, state: CycleState, strategy_class: type[VictimStrategy]) -> None:
        self._state = state
        self._backs_off = strategy_class.backs_off
        self._cache = state.action_cache(strategy_class.action)
        self._failed: dict[tuple[PreemptorClass, int], list[RequestSignature]] = {}

    def solve(self, strategy: VictimStrategy) -> VictimSearch | SearchResult:
        """The search that placed the request, or how it failed."""
        gang, request = strategy.gang, strategy.request
        signature = _signature(self._state, gang, request)
        if signature is not None and self._needs_no_less(signature):
            return SearchResult()
        key = _search_key(gang, request, signature)
        result = self._cached_result(key, gang) or self._backed_off_for_less(key)
        if result is None:
            found = self._search(strategy)
            if isinstance(found, VictimSearch):
                self._failed.clear()
                return found
            result = found
            self._cache.store(key, result)
        if signature is not None and not result.out_of_budget:
            known = self._failed.setdefault((signature.preemptor_class, signature.shape), [])
            known.append(signature)
        return result

    def _needs_no_less(self, signature: RequestSignature) -> bool:
        """Whether a request for no more pods, of no lower priority, failed."""
        known = self._failed.get((signature.preemptor_class, signature.shape), ())
        return any(
            signature.size >= failed.size and signature.priority <= failed.priority
            for failed in known
        )

    def _cached_result(self, key: SearchKey, gang: Gang) -> SearchResult | None:
        """The result that is known, its probes charged."""
        state = self._state
        result = self._cache.lookup(key, self._probe_budget())
        if result is not None:
            state.probes -= self._cache.charge(key, result)
            state.eviction_limits.protected_by.update(result.protected_by)
            if not result.backs_off:
                _record_search(state, gang, result)
        return result

    def _backed_off_for_less(self, key: SearchKey) -> SearchResult | None:
        """A search that backs off for as many pods, or fewer, that request no more."""
        signature, pod = key.signature, key.pod
        if not isinstance(signature, RequestSignature) or pod is None:
            return None
        for known, result in self._cache.backed_off().items():
            less = known.signature
            if not isinstance(less, RequestSignature) or known.pod is None:
                continue
            if less.preemptor_class != signature.preemptor_class or less.size > signature.size:
                continue
            fits = self._state.placer.shapes.fits
            if dominates(self._state.statement, fits, pod.shape, known.pod.shape):
                self._cache.store(key, result)
                return result
        return None

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
        used = budget - search.probes
        state.probes -= used
        out_of_budget = outcome is SearchOutcome.OUT_OF_BUDGET
        backs_off = out_of_budget and self._backs_off and budget == state.probes_per_gang
        idle = state.statement.future_idle.copy() if backs_off else None
        result = SearchResult(budget, used, out_of_budget, protected_by, future_idle=idle)
        _record_search(state, strategy.gang, result)
        return search if outcome is SearchOutcome.PLACED else result

    def _probe_budget(self) -> int:
        return min(self._state.probes, self._state.probes_per_gang)


def _signature(state: CycleState, gang: Gang, request: PlacementRequest) -> RequestSignature | None:
    """What decides how the search for ``gang`` ends; None where more does than can be compared."""
    shape = request_signature(state, gang, request)
    if shape is None:
        return None
    preemptible = gang.is_preemptible(request.members)
    preemptor_class = gang.queue, preemptible, gang.preemptible, gang.gang_affinity
    return RequestSignature(preemptor_class, shape, gang.priority, len(request.members))


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
            empty = PodRules(snapshot.nodes, (), snapshot.namespaces)
            if len(group) > empty.max_on_separate_domains(shape, mask):
                return True
    return False


def _record_search(state: CycleState, gang: Gang, result: SearchResult) -> None:
    """A gang whose search ran out of probes comes after all others in the next cycle."""
    if result.budget:
        state.searched[gang.key] = result.out_of_budget or state.searched.get(gang.key, False)
