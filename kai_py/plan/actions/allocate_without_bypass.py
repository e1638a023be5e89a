"""Allocate without head-of-line bypass: no gang takes what an earlier one needs with victims.

    place every gang that fits idle capacity, in order
    if later gangs have bypassed gangs that did not fit:
        undo all of it and start over in the same order; at its turn a bypassed gang may now also
        consolidate, reclaim and preempt, and the gangs after it get what is left; so may a gang
        that was placed before and now is not, and one ahead of it in its queue

So no pod starts on capacity that a gang ahead of it would reclaim in the next cycle. The first pass
ends once this is certain and no gang is left that could be placed (``first_pass``). In the second
pass at most ``MAX_PREEMPTORS`` gangs may evict; the others evict afterwards, like all gangs that
were not bypassed.

A gang that gets nothing at its turn counts as bypassed if later gangs take

    capacity: a node that may take its pods has less left of a requested resource than at its turn,
              and less than as many of them request as an empty node would hold;
    quota:    its queue, or an ancestor, could be allocated its pods at its turn and no longer can,
              or could not, but has pods that it may preempt.

Without one of these no later gang stands in its way; only the search shows whether victims would
release enough capacity. Gangs of one class, with the same queue and pods, are checked once, for the
first ``MAX_GANG_CLASSES`` classes. O(nodes x resources) per class.
"""

from collections.abc import Callable, Container, Sequence
from itertools import islice

import numpy as np
from msgspec import Struct

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.actions.allocate import LastResort, allocate
from kai_py.plan.actions.first_pass import FirstPass
from kai_py.plan.actions.turnover import Turnover
from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.assignment import Assignment
from kai_py.plan.victims.order import VictimPool
from kai_py.policy.fit import replicas_that_fit
from kai_py.policy.queue_limits import check_limits
from kai_py.policy.queue_usage import QueueUsage, QuotaBound, copy_usage
from kai_py.policy.reclaim_rules import Reclaimer, check_reclaimer
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats

MAX_GANG_CLASSES = 16

GangClass = tuple[str, bool, str, tuple[tuple[int, int], ...]]
"""Queue, whether preemptible, the gang where it has a tree of its own, pods by shape."""


def gang_class(gang: Gang, request: PlacementRequest) -> GangClass:
    """What gangs that need the same capacity have in common."""
    own = gang.key if has_topology_constraint(gang.tree) else ""
    if len(request.members) == 1:
        pods: tuple[tuple[int, int], ...] = ((request.members[0].shape.number, 1),)
    else:
        groups = by_shape(request.members)
        pods = tuple((group[0].shape.number, len(group)) for group in groups)
    return gang.queue, gang.is_preemptible(request.members), own, pods


class _FailedAttempt(Struct, frozen=True):
    """A gang that got nothing once ``placed`` pods had been placed.

    ``future_idle``, ``usage``: copies of the state at that moment.
    """

    gang: Gang
    request: PlacementRequest
    placed: int
    future_idle: Floats
    usage: QueueUsage


class BypassTracker:
    """Finds the gangs that get nothing while later ones take what they need."""

    def __init__(self, state: CycleState) -> None:
        """Start with no failed attempt."""
        self._state = state
        self._attempts: dict[GangClass, _FailedAttempt] = {}
        self._remaining: tuple[int, Floats, QueueUsage] | None = None

    def record(self, gang: Gang) -> None:
        """Record that the gang gets nothing at its turn."""
        request = self._state.next_request(gang)
        if request is not None and len(self._attempts) < MAX_GANG_CLASSES:
            known = gang_class(gang, request)
            if known not in self._attempts:
                self._attempts[known] = _FailedAttempt(gang, request, *self._remaining_now())

    def bypassed(self) -> set[GangClass]:
        """The classes of which a gang was bypassed, and those ahead of them in their queues."""
        found = set[GangClass]()
        for each, attempt in self._attempts.items():
            with self._state.turns.of(attempt.gang):
                if self._was_bypassed(attempt):
                    found.add(each)
        return found | self._ahead_of(found)

    def _ahead_of(self, bypassed: set[GangClass]) -> set[GangClass]:
        """The classes whose turn came before in the same queue: they may evict first."""
        found, queues = set[GangClass](), set[str]()
        for each, attempt in reversed(self._attempts.items()):
            if each in bypassed:
                queues.add(attempt.gang.queue)
            elif attempt.gang.queue in queues:
                found.add(each)
        return found

    def _remaining_now(self) -> tuple[int, Floats, QueueUsage]:
        placed = len(self._state.statement.placed)
        if self._remaining is None or self._remaining[0] != placed:
            usage = copy_usage(self._state.quota.usage)
            self._remaining = placed, self._state.statement.future_idle.copy(), usage
        return self._remaining

    def _was_bypassed(self, attempt: _FailedAttempt) -> bool:
        placed_since = list(self._state.statement.placed.values())[attempt.placed :]
        if not placed_since:
            return False
        groups = by_shape(attempt.request.members)
        lost = any(self._lost_capacity(attempt, group, placed_since) for group in groups)
        return lost or self._lost_quota(attempt)

    def _lost_capacity(
        self, attempt: _FailedAttempt, group: list[Member], placed_since: list[Assignment]
    ) -> bool:
        """Whether nodes have less left for pods of one shape, and too little for them."""
        state, shape = self._state, group[0].shape
        nodes, statement = state.snapshot.nodes, state.statement
        mask = state.admitting(shape)
        if shape.needs_devices:
            return any(each.member.shape.needs_devices and mask[each.row] for each in placed_since)
        requested = statement.request_vector(shape)
        gpu_row = state.snapshot.resources.positions.get(GPU_RESOURCE)
        if shape.gpu_share is not None and gpu_row is not None:
            if any(each.gpus and mask[each.row] for each in placed_since):
                return True
            requested = requested.copy()
            requested[gpu_row] = shape.gpu_share.devices
        whole = nodes.allocatable
        empty = replicas_that_fit(shape, state.snapshot.resources, whole, mask, whole)
        enough = requested[:, None] * np.minimum(empty, len(group))
        taken = attempt.future_idle > statement.future_idle
        return bool(
            (taken & (statement.future_idle < enough) & (requested > 0)[:, None])[:, mask].any()
        )

    def _lost_quota(self, attempt: _FailedAttempt) -> bool:
        """Whether the queue could hold the gang at its turn, or reclaim, and no longer can.

        A queue that was too full already can hold it if the gang may preempt others of the queue.
        """
        quota, gang = self._state.quota, attempt.gang
        queue, cost = quota.queues.positions[gang.queue], quota.cost_of(attempt.request.members)
        ancestors = quota.queues.ancestors(queue)
        counted, then = (
            usage.counted(QuotaBound.MAX, ancestors) for usage in (quota.usage, attempt.usage)
        )
        if not (counted > then).any():
            return False
        preemptible = gang.is_preemptible(attempt.request.members)
        reclaimer = Reclaimer(queue, cost, preemptible)

        def refusals(usage: QueueUsage) -> tuple[bool, bool]:
            over = check_limits(usage, queue, cost, preemptible=preemptible)
            return over is not None, check_reclaimer(usage, reclaimer, quota.rules) is not None

        before, now = refusals(attempt.usage), refusals(quota.usage)
        if any(late and not early for early, late in zip(before, now, strict=True)):
            return True
        lowest = self._state.lowest_evictable_priority(queue)
        return now[0] and gang.may_preempt and lowest is not None and lowest < gang.priority


MAX_PREEMPTORS = 16

VictimAction = Callable[[CycleState, Sequence[Gang], VictimPool], None]
"""An action that evicts pods for the gangs given."""


def allocate_without_bypass(
    state: CycleState,
    gangs: Sequence[Gang],
    turnover: Turnover | None,
    victim_actions: Sequence[VictimAction],
) -> None:
    """Run the action for ``gangs``; ``victim_actions`` are tried one after the other.

    Without ``turnover`` no gang waits for pods to end.
    """
    reasons = dict(state.unschedulable)

    tracker = BypassTracker(state)

    def is_undone() -> bool:
        return bool(victim_actions and tracker.bypassed() and state.evictable)

    first_pass = FirstPass(state, gangs, is_undone)

    def wait_or_record(gang: Gang) -> LastResort:
        if turnover is not None and turnover.try_wait(gang):
            return LastResort.WAITS
        tracker.record(gang)
        first_pass.record(gang)
        return _nothing_for(gang, turnover)

    with state.statement.trial() as trial:
        allocate(state, gangs, wait_or_record, first_pass.ends)
        if not is_undone() or state.turns.over:
            trial.keep()
            return
        bypassed = tracker.bypassed()
        placed = {each.gang.key for each in state.statement.placed.values()}
    state.start_over(reasons)
    if turnover is not None:
        turnover.start_over()
    searching = _SearchingGangs(state, bypassed, placed, victim_actions)

    def wait_or_find_victims(gang: Gang) -> LastResort:
        if turnover is not None and turnover.try_wait(gang):
            return LastResort.WAITS
        if searching.find_victims(gang):
            return LastResort.PLACED
        if gang.key in state.search_budgets.out_of_probes_before:
            return LastResort.WAITS
        return _nothing_for(gang, turnover)

    allocate(state, gangs, wait_or_find_victims)


def _nothing_for(gang: Gang, turnover: Turnover | None) -> LastResort:
    """Nothing came of the gang; equivalent gangs may still wait for pods to end."""
    may_wait = turnover is not None and turnover.may_wait(gang)
    return LastResort.WAITS if may_wait else LastResort.NOTHING


class _SearchingGangs:
    """Lets gangs that were bypassed, and those that lose their place to them, search for victims.

    Each at its turn: later gangs would start on what it could evict them from in the next cycle.
    """

    def __init__(
        self,
        state: CycleState,
        gang_classes: set[GangClass],
        placed_before: Container[str],
        victim_actions: Sequence[VictimAction],
    ) -> None:
        """``placed_before``: the keys of the gangs that were placed in the first pass."""
        self._state, self._gang_classes, self._victim_actions = state, gang_classes, victim_actions
        self._placed_before = placed_before
        self._placed_count = self._seen = 0
        self._pool: VictimPool | None = None

    def find_victims(self, gang: Gang) -> bool:
        """Whether the gang, which fits no idle capacity, was placed at the cost of victims."""
        state, request = self._state, self._state.next_request(gang)
        if request is None or self._placed_count >= MAX_PREEMPTORS:
            return False
        known = gang_class(gang, request)
        may_search = known in self._gang_classes or gang.key in self._placed_before
        if not may_search or gang.key in state.search_budgets.out_of_probes_before:
            return False
        for action in self._victim_actions:
            action(state, [gang], self._victim_pool())
            if request.members[0].pod.uid in state.statement.placed:
                self._placed_count += 1
                return True
        self._gang_classes.discard(known)
        state.search_budgets.searches_ended.add(gang.key)
        return False

    def _victim_pool(self) -> VictimPool:
        """The candidates; those of queues whose running gangs have got more pods are new."""
        if self._pool is None:
            self._pool = VictimPool(self._state)
        statement, positions = self._state.statement, self._state.quota.queues.positions
        for each in islice(statement.placed.values(), self._seen, None):
            if each.gang.bound and each.member.pod.uid not in statement.evicted:
                self._pool.invalidate(positions[each.gang.queue])
        self._seen = len(statement.placed)
        return self._pool
