"""Allocate: place pending gangs into free room, queue by queue, without disturbing anybody.

    while a queue has a gang left:
        take the queue that comes next, and its next gang
        check the queue's bounds for the pods the gang asks for, an amount of GPU memory at its
            price on the smallest GPUs; where that is too much, on the larger ones
        place them into room that is free now, or else into room that is being freed
        a gang with pods left to place goes back into its queue's line

A gang that finds no room spares every later gang of the same shape and at least the same size the
search, for room only shrinks, until one that was refused got room from others. Until
somebody does, what was tried in the last cycle is not tried again where nothing has changed since
(``vain_searches``).
"""

from collections.abc import Callable, Iterable

from kai_py.plan.actions.allocate_batch import EquivalentGangs
from kai_py.plan.explain.reasons import Unschedulable, for_gang
from kai_py.plan.gang_queue import GangQueue
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.quota_check import check_quota, check_reserved_quota, nodes_within_quota
from kai_py.plan.search_cache import ActionCache, SearchKey, SearchResult
from kai_py.plan.session import CycleState, place_earliest, request_signature
from kai_py.snapshot.gangs import Gang

UnschedulableShapes = dict[int, tuple[int, Unschedulable]]
"""Shape to the smallest ask that found no room, and why."""

OnUnschedulable = Callable[[Gang], bool]
"""Told of a gang that gets nothing; whether it got room from others."""


def allocate(
    state: CycleState, gangs: Iterable[Gang], on_unschedulable: OnUnschedulable | None = None
) -> None:
    """Run the action for ``gangs``; whatever stays pending gets its obstacle in ``state``."""
    line = GangQueue(state, [gang for gang in gangs if _is_ready(state, gang)])
    alike = EquivalentGangs(state, line)
    hopeless, book = UnschedulableShapes(), state.action_cache(Action.ALLOCATE)
    while (gang := _next_gang(line, alike)) is not None:
        if _allocate_gang(state, gang, hopeless, book):
            line.push(gang)
        elif (
            on_unschedulable is not None
            and gang.key in state.unschedulable
            and on_unschedulable(gang)
        ):
            hopeless.clear()
            line.update_all()
            if state.next_request(gang) is not None:
                line.push(gang)


def _next_gang(gang_queue: GangQueue, batcher: EquivalentGangs) -> Gang | None:
    """The next gang to be tried by itself; those that are placed many at a time come first."""
    while batcher.place_batch():
        pass
    return gang_queue.pop()


def _is_ready(state: CycleState, gang: Gang) -> bool:
    obstacle = state.precondition(gang)
    if obstacle is not None:
        state.mark_unschedulable(gang, obstacle)
    return obstacle is None


def _allocate_gang(
    state: CycleState, gang: Gang, unschedulable: UnschedulableShapes, cache: ActionCache
) -> bool:
    """Place what the gang asks for next; whether it should be asked again in this cycle."""
    ask = state.next_request(gang)
    if ask is None:
        return False
    over = check_quota(state.quota, gang, ask.members, state.request_cost(gang))
    if over is not None:
        obstacle = None if _place_on_larger_gpus(state, gang, ask) else over
    else:
        kept = check_reserved_quota(state, gang, state.request_cost(gang))
        obstacle = kept or _place(state, gang, ask, unschedulable, cache)
    if obstacle is None:
        state.mark_placed(gang)
        return ask.has_more
    state.mark_unschedulable(gang, obstacle)
    return False


def _place_on_larger_gpus(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    """Place the pods where an amount of GPU memory costs little enough, if anywhere."""
    allowed = nodes_within_quota(state, gang, request)
    if allowed is None or check_reserved_quota(state, gang, state.request_cost(gang)) is not None:
        return False
    return place_earliest(state, gang, request.members, allowed=allowed, explain=False) is None


def _place(
    state: CycleState,
    gang: Gang,
    request: PlacementRequest,
    unschedulable: UnschedulableShapes,
    cache: ActionCache,
) -> Unschedulable | None:
    """Place the pods, or say why not."""
    shape, size, placed = (
        request_signature(state, gang, request),
        len(request.members),
        state.statement.placed,
    )
    known = None if shape is None else unschedulable.get(shape)
    if known is not None and size >= known[0]:
        return for_gang(known[1], gang, request.members, placed)
    question = _search_key(gang, request, shape)
    answer = cache.lookup(question)
    obstacle = place_earliest(state, gang, request.members) if answer is None else answer.reason
    if obstacle is None:
        return None
    if answer is None:
        cache.store(question, SearchResult(reason=obstacle))
    if shape is None:
        return obstacle
    unschedulable[shape] = (size, obstacle)
    return for_gang(obstacle, gang, request.members, placed)


def _search_key(gang: Gang, request: PlacementRequest, shape: int | None) -> SearchKey:
    """What decides over room, and how its lack is told."""
    if shape is None:
        return SearchKey(gang.key, gang)
    leaves = tuple(dict.fromkeys(member.subgroup for member in request.members))
    return SearchKey((shape, len(request.members), leaves, gang.gang_affinity))
