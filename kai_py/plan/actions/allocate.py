"""Allocate: place pending gangs into idle capacity, queue by queue; nothing is evicted.

    while a queue has a gang left:
        take the queue that comes next, and its next gang
        check the queue's bounds for its next request at its highest cost: that of an amount of GPU
            memory on the smallest GPUs, and of the most expensive devices that claims may get;
            if that exceeds a bound, allow only GPUs and devices with which the request does not;
            if it does so until terminating pods have gone, keep quota for it (``awaited_quota``)
        place the request in idle capacity, or else in capacity that is being released
        a gang with pods left to place goes back into its queue, also if an elastic pod was not
            placed: it is skipped, as others may need less, or another node

If a request failed, one that needs at least as much fails as well, as capacity only shrinks, and
gangs that are equivalent get no turn; that changes once a gang is placed at the cost of victims.

Gangs whose search for devices was cut short in an earlier cycle come after all others.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from kai_py.plan.actions.allocate_batch import EquivalentGangs
from kai_py.plan.actions.awaited_quota import AwaitedQuota
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable, for_gang, for_more_pods
from kai_py.plan.plan import Action
from kai_py.plan.search_cache.cache import FailedRequests, SearchFailure, SearchKey
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.device_options import place_within_quota
from kai_py.plan.session.gang_queue import GangQueue
from kai_py.plan.session.later_alternatives import place_with_alternatives, try_placing
from kai_py.plan.session.quota_check import check_quota, check_reserved_quota, nodes_within_quota
from kai_py.plan.session.requests import request_kind
from kai_py.policy.queue_order import in_rotation
from kai_py.snapshot.gangs import Gang


class LastResort(Enum):
    """What came of a gang that fits no idle capacity."""

    PLACED = auto()
    """It was placed at the cost of victims."""
    WAITS = auto()
    """It waits for pods to end, or something may still come of equivalent gangs."""
    NOTHING = auto()
    """Nothing, nor would anything come of equivalent gangs."""


OnUnschedulable = Callable[[Gang], LastResort]
"""Called for a gang that could not be placed."""


def nothing_else(_: Gang) -> LastResort:
    """Leave gangs pending that fit no idle capacity."""
    return LastResort.NOTHING


def to_the_last() -> bool:
    """Give every gang its turn."""
    return False


def allocate(
    state: CycleState,
    gangs: Sequence[Gang],
    on_unschedulable: OnUnschedulable = nothing_else,
    ends: Callable[[], bool] = to_the_last,
) -> None:
    """Run the action for ``gangs``; what stays pending gets its reason in ``state``.

    ``ends``: whether to end before the next turn; gangs that have had none then get no reason.
    """
    solver = _AllocateSolver(state)
    for group in in_rotation(gangs, state.search_budgets.cut_short_before):
        _allocate_in_order(state, group, solver, on_unschedulable, ends)
    for gang in gangs:
        state.stop_skipping(gang)


def _allocate_in_order(
    state: CycleState,
    gangs: Iterable[Gang],
    solver: "_AllocateSolver",
    on_unschedulable: OnUnschedulable,
    ends: Callable[[], bool],
) -> None:
    gang_queue = GangQueue(state, gangs)
    batcher = EquivalentGangs(state, gang_queue)
    while not ends() and (gang := _next_gang(gang_queue, batcher, solver)) is not None:
        with state.turns.of(gang):
            if _allocate_gang(state, gang, solver):
                gang_queue.push(gang)
                continue
            state.stop_skipping(gang)
            if gang.key not in state.unschedulable:
                continue
            last_resort = on_unschedulable(gang)
            if last_resort is LastResort.PLACED:
                solver.capacity_has_grown()
                gang_queue.resume_all()
                if state.next_request(gang) is not None:
                    gang_queue.push(gang)
            elif last_resort is LastResort.NOTHING and solver.is_proven(gang):
                gang_queue.skip_equivalent(gang)
    for gang, failed in gang_queue.skipped():
        request = state.next_request(gang)
        if request is not None:
            reason, placed = state.unschedulable[failed.key], state.statement.placed
            state.mark_unschedulable(gang, for_gang(reason, gang, request.members, placed))


def _next_gang(
    gang_queue: GangQueue, batcher: EquivalentGangs, solver: "_AllocateSolver"
) -> Gang | None:
    """The next gang to try by itself, after batches of equivalent gangs have been placed."""
    while not solver.awaited and batcher.place_batch():
        pass
    return gang_queue.pop()


def _allocate_gang(state: CycleState, gang: Gang, solver: "_AllocateSolver") -> bool:
    """Place the next request of the gang; whether the gang has another one to place."""
    request = state.next_request(gang)
    if request is None:
        return False
    over = check_quota(state.quota, gang, request.members, state.request_cost(gang))
    if over is not None:
        reason = solver.solve_over(gang, request, over)
        if reason is not None:
            solver.keep_quota(gang, request)
    else:
        reserved = check_reserved_quota(state, gang, state.request_cost(gang))
        reserved = reserved or solver.awaited.refuse(gang, request.members)
        reason = reserved or solver.solve(gang, request)
    if reason is None:
        state.mark_placed(gang)
        return request.has_more
    state.mark_unschedulable(gang, reason)
    return state.skip_elastic(gang, request, reason)


def _place_over(
    state: CycleState, gang: Gang, request: PlacementRequest, over: Unschedulable
) -> Unschedulable | None:
    """Place a request whose highest cost exceeds a bound (``over``) where it costs less."""
    if _place_on_larger_gpus(state, gang, request):
        return None
    if check_reserved_quota(state, gang, state.request_cost(gang)) is not None:
        return over
    return place_within_quota(state, gang, request, over)


def _place_on_larger_gpus(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    """Place the pods where an amount of GPU memory costs little enough, if anywhere."""
    allowed = nodes_within_quota(state, gang, request)
    if allowed is None or check_reserved_quota(state, gang, state.request_cost(gang)) is not None:
        return False
    return try_placing(state, gang, request.members, allowed)


class _FailedRequest(NamedTuple):
    """Why a request could not be placed, and how many pods it had."""

    reason: Unschedulable
    size: int


class _AllocateSolver:
    """Places requests; knows for some why they can't be placed without trying."""

    def __init__(self, state: CycleState) -> None:
        self._state = state
        self._searches = state.searches(Action.ALLOCATE)
        self._failed = FailedRequests[_FailedRequest]()
        self.awaited = AwaitedQuota(state)

    def solve(self, gang: Gang, request: PlacementRequest) -> Unschedulable | None:
        """Place the pods, or say why not."""
        shape, size = request_kind(self._state, gang, request), len(request.members)
        failed = None if shape is None else self._failed.find(shape, size)
        if failed is not None:
            reason = for_more_pods(failed.reason, failed.size, size)
        else:
            found = self._place(gang, request, shape)
            if found is None or shape is None:
                return found
            reason = found
            self._failed.add(shape, _FailedRequest(reason, size), size)
        return for_gang(reason, gang, request.members, self._state.statement.placed)

    def keep_quota(self, gang: Gang, request: PlacementRequest) -> None:
        """Keep quota for a request above a bound if it can be placed once pods have gone."""
        if not self.awaited.may_wait(gang, request):
            return
        with self._state.statement.trial():
            fits = self.solve(gang, request) is None
        if fits:
            self.awaited.add(gang)

    def solve_over(
        self, gang: Gang, request: PlacementRequest, over: Unschedulable
    ) -> Unschedulable | None:
        """``solve`` for a request whose highest cost exceeds a bound (``over``).

        Equal requests of a queue fail alike while its usage is the same.
        """
        state, members = self._state, request.members
        shape, size = request_kind(state, gang, request), len(members)
        if shape is None or any(member.shape.shared_claims for member in members):
            return _place_over(state, gang, request, over)
        key = shape, size, gang.queue, gang.is_preemptible(members), over.message
        failed = self._failed.find(key, size)
        if failed is not None:
            return failed.reason
        reason = _place_over(state, gang, request, over)
        if reason is not None and not state.turns.spending.cut_short:
            self._failed.add(key, _FailedRequest(reason, size), size)
        return reason

    def is_proven(self, gang: Gang) -> bool:
        """Whether equivalent gangs would fail like this one, which was tried last."""
        budgets = self._state.search_budgets
        return not (
            self.awaited or gang.key in budgets.cut_short or self._state.turns.spending.cut_short
        )

    def capacity_has_grown(self) -> None:
        """Forget failed requests, which may succeed now."""
        self._failed.clear()

    def _place(
        self, gang: Gang, request: PlacementRequest, shape: Hashable | None
    ) -> Unschedulable | None:
        key = _search_key(gang, request, shape)
        known, steps = self._searches.lookup(key), self._state.placer.search_steps
        if known is not None:
            steps.spend(self._searches.charge(key, known))
            return known.reason
        before = steps.left
        reason = place_with_alternatives(self._state, gang, request.members)
        if reason is None:
            return None
        if self._state.turns.spending.cut_short:
            # Nothing is proven: the next cycle searches on, after all other gangs.
            self._state.search_budgets.cut_short.add(gang.key)
        else:
            used = before - steps.left
            self._searches.store(key, SearchFailure(probes_used=used, reason=reason))
        return reason


def _search_key(gang: Gang, request: PlacementRequest, shape: Hashable | None) -> SearchKey:
    """What decides whether the pods can be placed, and how the reason is worded if they can't."""
    if shape is None:
        return SearchKey((gang.key, request.members[0].pod), gang)
    leaves = tuple(dict.fromkeys(member.subgroup for member in request.members))
    return SearchKey((shape, len(request.members), leaves, gang.settings.gang_affinity))
