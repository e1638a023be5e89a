"""One turn for every gang that waits and may make others leave, in the order of ``gang_order``.

    while a gang is left in the line:
        it asks for its next pods; the action says who could leave for them, and judges
        search for victims (``victims``), within the probes that are left, unless the answer is
        known since the same was asked last (``vain_searches``), or an empty cluster gives no hope
        a gang that found no room spares gangs of the same queue and shape, of at least the same
        size and at most the same priority, the search, until somebody left

A gang has one turn per action. It has none before its preemption delay has passed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kai_py.grouping.gang_settings import GangAffinity
from kai_py.plan.explain.reasons import Unschedulable
from kai_py.plan.gang_queue import GangQueue
from kai_py.plan.placement.fit import by_shape, dominates
from kai_py.plan.placement.next_pods import PlacementRequest, next_request
from kai_py.plan.plan import Action, Stage
from kai_py.plan.quota_check import check_reserved_quota
from kai_py.plan.search_cache import ActionCache, SearchKey, SearchResult
from kai_py.plan.session import CycleState, request_signature
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.search import SearchOutcome, VictimSearch
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.gang_order import in_rotation
from kai_py.policy.limits import check_deserved
from kai_py.policy.min_runtime import preemption_delay
from kai_py.policy.pod_rules import PodRules
from kai_py.snapshot.gangs import Gang

StartSearch = Callable[[Gang, PlacementRequest], tuple[VictimSearch, Iterable[VictimUnit]] | None]
"""The search for an ask and the units to offer it; None where the action can't help."""

PlaceBatch = Callable[[GangQueue, Gang], None]
"""Serves gangs that come after one that was placed, as far as they need no search."""

PreemptorClass = tuple[str, bool, bool, tuple[GangAffinity, ...]]
"""Queue, whether the pods and whether all of it can be taken back, where it would rather be."""

UnschedulableRequests = dict[tuple[PreemptorClass, int], list[tuple[int, int]]]
"""Who asks, and for which shape: sizes and priorities of asks that found no room."""


@dataclass(frozen=True, slots=True)
class VictimStrategy:
    """What an action brings to its search; ``rests``: one that ran out waits for a leaver."""

    action: Action
    pool: VictimPool
    start_search: StartSearch
    place_batch: PlaceBatch | None = None
    backs_off: bool = False


def find_victims(state: CycleState, gangs: Iterable[Gang], strategy: VictimStrategy) -> None:
    """Give every pending gang its turn."""
    able = [gang for gang in gangs if _may_preempt(state, gang)]
    if not able:
        return
    hopeless: UnschedulableRequests = {}
    book = state.action_cache(strategy.action)
    for group in in_rotation(able, state.out_of_budget):
        _find_in_order(state, GangQueue(state, group), strategy, book, hopeless)


def _find_in_order(
    state: CycleState,
    gang_queue: GangQueue,
    strategy: VictimStrategy,
    cache: ActionCache,
    unschedulable: UnschedulableRequests,
) -> None:
    while (gang := gang_queue.pop()) is not None:
        ask = next_request(gang, state.statement)
        if ask is None or _exceeds_deserved(state, gang, ask):
            continue
        if check_reserved_quota(state, gang, state.request_cost(gang)) is not None:
            continue
        asked = _signature(state, gang, ask)
        if asked is not None and _is_unschedulable(asked, unschedulable):
            continue
        question = _search_key(gang, ask, asked)
        answer = _cached_result(state, cache, question, gang)
        if answer is None:
            answer = _backed_off_for_less(state, cache, question)
        if answer is None:
            found = _run_search(state, strategy, gang, ask)
            if isinstance(found, VictimSearch):
                unschedulable.clear()
                _update_queues(state, gang_queue, strategy.pool, gang, found.victims)
                if (
                    strategy.place_batch is not None
                    and len(found.victims) == len(gang.members) == 1
                ):
                    strategy.place_batch(gang_queue, gang)
                continue
            answer = found
            cache.store(question, answer)
        if answer.out_of_budget:
            _report_out_of_budget(state, gang, answer)
        elif asked is not None:
            known = unschedulable.setdefault((asked.preemptor_class, asked.shape), [])
            known.append((asked.size, asked.priority))


def _is_unschedulable(signature: "_RequestSignature", unschedulable: UnschedulableRequests) -> bool:
    """Whether no more, of no lower priority, was asked in vain."""
    known = unschedulable.get((signature.preemptor_class, signature.shape), ())
    return any(signature.size >= size and signature.priority <= most for size, most in known)


def _may_preempt(state: CycleState, gang: Gang) -> bool:
    delay = preemption_delay(
        gang.created, gang.last_evicted, gang.preemption_delay, state.snapshot.now
    )
    return (
        gang.key not in state.searched_in_allocate
        and gang.may_preempt
        and delay is None
        and state.precondition(gang) is None
    )


def _exceeds_deserved(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    """Non-preemptible pods above what the queue deserves: nobody's leaving changes that."""
    if gang.is_preemptible(request.members):
        return False
    quota = state.quota
    cost = quota.cost_of(request.members)
    queue = quota.queues.positions[gang.queue]
    return check_deserved(quota.usage, queue, cost) is not None


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


class _RequestSignature(NamedTuple):
    """What decides how a search for pods of one shape ends."""

    preemptor_class: PreemptorClass
    shape: int
    priority: int
    size: int


def _signature(
    state: CycleState, gang: Gang, request: PlacementRequest
) -> _RequestSignature | None:
    """What decides how the search for ``gang`` ends; None where more does than can be compared."""
    shape = request_signature(state, gang, request)
    if shape is None:
        return None
    who = gang.queue, gang.is_preemptible(request.members), gang.preemptible, gang.gang_affinity
    return _RequestSignature(who, shape, gang.priority, len(request.members))


def _search_key(
    gang: Gang, request: PlacementRequest, signature: _RequestSignature | None
) -> SearchKey:
    return (
        SearchKey(gang.key, gang)
        if signature is None
        else SearchKey(signature, pod=request.members[0])
    )


def _backed_off_for_less(
    state: CycleState, cache: ActionCache, key: SearchKey
) -> SearchResult | None:
    """A search that rests though as many pods, or fewer, ask for no more."""
    asked, pod = key.signature, key.pod
    if not isinstance(asked, _RequestSignature) or pod is None:
        return None
    for known, answer in cache.backed_off().items():
        less = known.signature
        if not isinstance(less, _RequestSignature) or known.pod is None:
            continue
        if less.preemptor_class != asked.preemptor_class or less.size > asked.size:
            continue
        fits = state.placer.shapes.fits
        if dominates(state.statement, fits, pod.shape, known.pod.shape):
            cache.store(key, answer)
            return answer
    return None


def _cached_result(
    state: CycleState, cache: ActionCache, key: SearchKey, gang: Gang
) -> SearchResult | None:
    """The answer that is known, its price paid."""
    answer = cache.lookup(key, _probe_budget(state))
    if answer is not None:
        state.probes -= cache.charge(key, answer)
        state.eviction_limits.protected_by.update(answer.protected_by)
        if not answer.backs_off:
            _record_search(state, gang, answer)
    return answer


def _run_search(
    state: CycleState, strategy: VictimStrategy, gang: Gang, request: PlacementRequest
) -> VictimSearch | SearchResult:
    """The search that placed the gang, or how it ended."""
    made = None if _never_fits(state, request) else strategy.start_search(gang, request)
    if made is None:
        return SearchResult()
    (search, offered), budget = made, _probe_budget(state)
    search.probes = budget
    with state.eviction_limits.recording() as withheld:
        outcome = search.run(offered)
    used = budget - search.probes
    state.probes -= used
    ran_out = outcome is SearchOutcome.OUT_OF_BUDGET
    rests = ran_out and strategy.backs_off and budget == state.probes_per_gang
    left = state.statement.future_idle.copy() if rests else None
    answer = SearchResult(budget, used, ran_out, withheld, future_idle=left)
    _record_search(state, gang, answer)
    return search if outcome is SearchOutcome.PLACED else answer


def _record_search(state: CycleState, gang: Gang, result: SearchResult) -> None:
    """Who ran out comes after all others in the next cycle."""
    if result.budget:
        state.searched[gang.key] = result.out_of_budget or state.searched.get(gang.key, False)


def _probe_budget(state: CycleState) -> int:
    return min(state.probes, state.probes_per_gang)


def _report_out_of_budget(state: CycleState, gang: Gang, result: SearchResult) -> None:
    """Nothing is proven, and the gang is told so."""
    tried = f"no victims were found within {result.budget} trial placements"
    again = "once somebody has left or a node has come" if result.backs_off else "in the next cycle"
    state.mark_unschedulable(
        gang, Unschedulable(Stage.SEARCH_BUDGET, f"{tried}; the search starts again {again}.")
    )


def _update_queues(
    state: CycleState,
    gang_queue: GangQueue,
    pool: VictimPool,
    gang: Gang,
    victims: Sequence[VictimUnit],
) -> None:
    """What the queues hold has changed, and which units there are."""
    state.mark_placed(gang)
    for queue in dict.fromkeys(state.quota.queues.positions[unit.gang.queue] for unit in victims):
        gang_queue.update(queue)
    if gang.bound:
        pool.invalidate(state.quota.queues.positions[gang.queue])
