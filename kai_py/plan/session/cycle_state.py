"""The state of one cycle that its actions share: statement, queues, placer, budgets, reasons."""

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from kai_py.dra.whole_devices import takes_fixed_number
from kai_py.grouping.admitted import RESIZABLE
from kai_py.plan.placement.gang import Placer
from kai_py.plan.placement.next_pods import (
    PlacementRequest,
    next_request,
    precondition,
    queue_refuses,
)
from kai_py.plan.placement.reasons import UNEXPLAINED, Unschedulable
from kai_py.plan.plan import Action
from kai_py.plan.search_cache.backoff import ActionSearches, SearchBackoff
from kai_py.plan.search_cache.cache import SearchCache
from kai_py.plan.search_cache.inputs import Decisions
from kai_py.plan.session.evictable_pods import EvictablePods
from kai_py.plan.session.running_gangs import RunningGangsReport
from kai_py.plan.session.search_budgets import SearchBudgets
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.spot_choices import NO_SPOT, CycleSpot
from kai_py.plan.session.startups import ReadyRule
from kai_py.plan.session.turns import Turns
from kai_py.plan.state.empty_nodes import EmptyNodes
from kai_py.plan.state.eviction_limits import EvictionLimits
from kai_py.plan.state.queues import Quota
from kai_py.plan.state.statement import Statement
from kai_py.policy.ageing import QueueAgeing
from kai_py.policy.fairness_rules import CountedDemand
from kai_py.policy.min_runtime import preempt_min_runtime, reclaim_min_runtime
from kai_py.policy.queue_limits import check_usage
from kai_py.policy.runtime_history import ExpectedEnds
from kai_py.policy.score.workload import frequent_shapes
from kai_py.policy.served_share import DueTimes, ServedShare
from kai_py.snapshot.accounting import Accounting
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

MAX_ENDS_WEIGHED = 512
"""How many of the next ends count in weighing what a wait costs."""

MAX_FIRST_POSTPONED = 16
MAX_SKIPPED = 16
"""Elastic pods of a gang that may be skipped for others of it."""


class PodEnd(NamedTuple):
    """A running pod that is expected to end ``at``, seconds since the epoch."""

    at: float
    gang: Gang
    member: Member


@dataclass
class CycleState:
    """Mutable for the length of one cycle; actions decide only through ``statement``."""

    snapshot: Snapshot
    settings: CycleSettings
    quota: Quota
    statement: Statement
    placer: Placer
    turns: Turns
    """The turns of the gangs, so that a failure in one affects no other."""
    search_budgets: SearchBudgets
    eviction_limits: EvictionLimits
    accounting: Accounting
    empty_nodes: EmptyNodes
    ageing: QueueAgeing = field(default_factory=QueueAgeing)
    expected_ends: ExpectedEnds = field(default_factory=ExpectedEnds)
    served: ServedShare = field(default_factory=ServedShare)
    """How much of their fair shares queues have received over time."""
    due: DueTimes = field(default_factory=DueTimes)
    """Since when pending gangs are due what they request."""
    search_cache: SearchCache = field(default_factory=SearchCache)
    backoff: SearchBackoff = field(default_factory=SearchBackoff)
    spot: CycleSpot = NO_SPOT
    """Use of spot nodes."""
    ready_rules: Mapping[str, ReadyRule] = field(default_factory=dict)
    """By queue, how long gangs may take to get ready; empty where no queue sets it."""
    infeasible_gangs: Collection[str] = frozenset()
    """Keys of gangs that do not fit even on empty nodes."""

    report: RunningGangsReport = field(default_factory=RunningGangsReport)
    """Running gangs on failing nodes, and those that are not ready."""
    unschedulable: dict[str, Unschedulable] = field(default_factory=dict)
    """Gang key to what stops it."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Keys of gangs that evict nothing yet because pods are about to end, and until when."""
    postponed: dict[tuple[Action, str], float] = field(default_factory=dict)
    """By action and gang key: its victims would lose too much now; when that may change."""
    first_postponed: dict[str, list[tuple[Gang, float]]] = field(default_factory=dict)
    """By queue, the first ``MAX_FIRST_POSTPONED`` of these that preempt or reclaim."""

    parts_of_cluster: dict[int, tuple[Floats, float]] = field(default_factory=dict)
    """Cache of ``part_of_cluster`` by the id of a cost, which the entry keeps alive."""
    lost_work_of_pods: dict[int, float] = field(default_factory=dict)
    """Cache of what pods lose if they are evicted now, by the id of a member of the snapshot."""
    freed_by_shape: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """Cache of ``FreedResources``, by the number of a shape."""
    freed_devices_by_shape: dict[int, Mapping[str, int]] = field(default_factory=dict)
    """The same of devices, by their kinds."""
    _requests: dict[str, tuple[int, PlacementRequest | None, Floats]] = field(default_factory=dict)
    _skipped: dict[str, tuple[Unschedulable, list[Member]]] = field(default_factory=dict)
    _preconditions: dict[str, Unschedulable | None] = field(default_factory=dict)
    _queue_refusals: dict[tuple[str, str], Unschedulable | None] = field(default_factory=dict)
    _charged: dict[str, Floats] = field(default_factory=dict)
    _reclaim_min_runtimes: dict[int, list[float]] = field(default_factory=dict)
    _lowest_priorities: dict[int, int | None] = field(default_factory=dict)

    @property
    def is_unfinished(self) -> bool:
        """Whether a search, or the cycle, ended before all was known."""
        failed = self.turns.failed or self.turns.extensions.failed
        return self.search_budgets.ran_out or self.turns.over or bool(failed)

    @property
    def frees_capacity(self) -> bool:
        """Whether capacity is being released, so that waiting for it can make sense."""
        snapshot = self.snapshot
        released = bool(snapshot.releasable_claims) or not all(snapshot.group_claim_users.values())
        return released or snapshot.has_releasing or bool(self.statement.evicted)

    @cached_property
    def future_idle_totals(self) -> Sequence[float]:
        """(resources,) future idle on all nodes together when this was first asked for."""
        totals: list[float] = self.statement.future_idle.sum(axis=1).tolist()
        return totals

    @cached_property
    def evictable(self) -> Mapping[int, Sequence[Gang]]:
        """Preemptible gangs that ran when the cycle began, by queue."""
        found: dict[int, list[Gang]] = {}
        positions = self.quota.queues.positions
        for gang in self.snapshot.gangs.values():
            if not gang.bound or not (gang.preemptible or gang.outgrown):
                continue
            queue = positions.get(gang.queue)
            if queue is None:
                continue
            victim = _as_victim(gang, self.quota, queue) if gang.outgrown else gang
            if victim.preemptible:
                found.setdefault(queue, []).append(victim)
        return found

    @cached_property
    def evictable_pods(self) -> EvictablePods:
        """The pods of ``evictable``."""
        gangs = chain.from_iterable(self.evictable.values())
        return EvictablePods(gangs, self.statement.limits, self.snapshot.namespaces)

    @cached_property
    def keeps_devices(self) -> bool:
        """Whether each pod of ``evictable`` takes as many devices wherever it is placed."""
        shapes = self._evictable_shapes
        return not any(shape.extended.requests for shape in shapes) and all(
            takes_fixed_number(use.spec) for shape in shapes for use in shape.claims
        )

    @cached_property
    def admits_evictable(self) -> Bools:
        """(nodes,) whether the node admits any pod of ``evictable``, whatever is idle there."""
        return self.admits_any(self._evictable_shapes)

    def admitting(self, shape: Shape) -> Bools:
        """(nodes,) whether the node admits pods of ``shape``, whatever is idle there; read-only."""
        return self.placer.shapes.fits.static_fits.of(shape, self.snapshot.nodes).mask

    def admits_any(self, shapes: Iterable[Shape]) -> Bools:
        """(nodes,) whether the node admits pods of any of ``shapes``, whatever is idle there."""
        distinct = {id(mask): mask for mask in map(self.admitting, shapes)}.values()
        return reduce(np.logical_or, distinct, np.zeros(len(self.snapshot.nodes), bool))

    @cached_property
    def _evictable_shapes(self) -> Collection[Shape]:
        gangs = (gang for of_queue in self.evictable.values() for gang in of_queue)
        return {each.shape.number: each.shape for gang in gangs for each in gang.bound}.values()

    def lowest_evictable_priority(self, queue: int) -> int | None:
        """The lowest priority of a queue's gangs in ``evictable``; None if it has none there."""
        if queue not in self._lowest_priorities:
            gangs = self.evictable.get(queue, ())
            self._lowest_priorities[queue] = min((gang.priority for gang in gangs), default=None)
        return self._lowest_priorities[queue]

    @cached_property
    def next_ends(self) -> Sequence[PodEnd]:
        """The first ``MAX_ENDS_WEIGHED`` ends expected of pods of known queues, in order."""
        now, positions = self.snapshot.now, self.quota.queues.positions
        found = (
            end._replace(at=max(end.at, now))
            for end in self.pod_ends()
            if end.gang.queue in positions
        )
        return nsmallest(MAX_ENDS_WEIGHED, found, key=lambda end: (end.at, end.member.pod.uid))

    def pod_ends(self) -> Iterator[PodEnd]:
        """The ends that are expected of pods that ran when the cycle began, in no order."""
        ends = self.expected_ends
        for gang in ends.known_of(self.snapshot.gangs.values()):
            for member, at in ends.ends_of(gang):
                if math.isfinite(at):
                    yield PodEnd(at, gang, member)

    @cached_property
    def preempt_min_runtime(self) -> list[float]:
        """By queue, for how long its gangs are safe from preemption, in seconds."""
        times: list[float] = preempt_min_runtime(self.quota.queues, self.quota.rules).tolist()
        return times

    def reclaim_min_runtimes(self, reclaimer: int) -> list[float]:
        """By queue, for how long its gangs are safe from the queue ``reclaimer``, in seconds."""
        known = self._reclaim_min_runtimes.get(reclaimer)
        if known is None:
            found = reclaim_min_runtime(self.quota.queues, reclaimer, self.quota.rules)
            known = self._reclaim_min_runtimes[reclaimer] = found.tolist()
        return known

    @cached_property
    def score_inputs(self) -> Hashable:
        """What scores depend on beside nodes: the frequent shapes, expected of pods to come."""
        scoring = self.placer.shapes.scoring
        if scoring is None:
            return None
        counted = ((shape.number, count) for shape, count in frequent_shapes(self.snapshot))
        return (scoring.scores, scoring.by_default, *counted)

    def mark_unschedulable(self, gang: Gang, reason: Unschedulable) -> None:
        """Record what stops ``gang``."""
        self.unschedulable[gang.key] = reason

    def start_over(self, reasons: Mapping[str, Unschedulable]) -> None:
        """What was placed was undone: ``reasons`` are again all that is known."""
        self._skipped.clear()
        self.unschedulable = dict(reasons)
        self._requests.clear()

    def mark_placed(self, gang: Gang) -> None:
        """Pods of ``gang`` were placed: nothing stops it, and its next request is another one."""
        self.unschedulable.pop(gang.key, None)
        self._requests.pop(gang.key, None)

    def precondition(self, gang: Gang) -> Unschedulable | None:
        """What must happen before the gang can be placed at all."""
        if gang.key not in self._preconditions:
            try:
                found = precondition(gang, self.queue_refuses)
            except Exception as error:
                self.turns.fail(gang, error)
                return UNEXPLAINED
            self._preconditions[gang.key] = found
        return self._preconditions[gang.key]

    def queue_refuses(self, queue: str, namespace: str) -> Unschedulable | None:
        """Why a queue, by name, takes no gangs of a namespace; computed once."""
        key = queue, namespace
        if key not in self._queue_refusals:
            found = queue_refuses(queue, namespace, self.quota.queues, self.snapshot.namespaces)
            self._queue_refusals[key] = found
        return self._queue_refusals[key]

    def refuse(self, gang: Gang, reason: Unschedulable) -> None:
        """Set a precondition that does not hold in this cycle."""
        self._preconditions[gang.key] = reason

    def next_request(self, gang: Gang) -> PlacementRequest | None:
        """The pods to place next; None when none is left."""
        return self._cached_request(gang)[1]

    def postpone(self, action: Action, gang: Gang, until: float) -> None:
        """Let the victims found for ``gang`` stay, and the gang wait until ``until``."""
        self.postponed[action, gang.key] = until
        first = self.first_postponed.setdefault(gang.queue, [])
        if action is not Action.CONSOLIDATE and len(first) < MAX_FIRST_POSTPONED:
            first.append((gang, until))

    def skip_elastic(self, gang: Gang, request: PlacementRequest, reason: Unschedulable) -> bool:
        """Whether other elastic pods of ``gang`` are requested now, as this request failed."""
        if not request.is_elastic:
            return False
        _, skipped = self._skipped.setdefault(gang.key, (reason, []))
        if len(skipped) >= MAX_SKIPPED:
            return False
        skipped += request.members
        self._requests.pop(gang.key, None)
        return self.next_request(gang) is not None

    def stop_skipping(self, gang: Gang) -> None:
        """Request the first pods of ``gang`` again; what stops these is its reason."""
        if gang.key in self._skipped:
            self.unschedulable[gang.key] = self._skipped.pop(gang.key)[0]
            self._requests.pop(gang.key, None)

    def can_never_run(self, shape: Shape) -> bool:
        """Whether no node, even if it is empty, holds a pod of ``shape`` by its resources.

        False where the rules do not tell such requests apart.
        """
        rules = self.quota.rules
        if rules.counted_demand is CountedDemand.ALL:
            return False
        return not self.empty_nodes.hold(self.snapshot, shape, 1)

    def request_cost(self, gang: Gang) -> Floats:
        """(quota resources,) the cost of the next request of ``gang``."""
        charged = self._charged.get(gang.key)
        return self._cached_request(gang)[2] if charged is None else charged

    def charged_cost(self, gang: Gang, members: Sequence[Member]) -> Floats:
        """(quota resources,) as ``request_cost``, of ``members`` that were requested before."""
        charged = self._charged.get(gang.key)
        return self.quota.cost_of(members) if charged is None else charged

    @contextmanager
    def charging(self, gang: Gang, cost: Floats) -> Iterator[None]:
        """Charge the next request of ``gang`` with ``cost`` (quota resources,) for a while."""
        self._charged[gang.key] = cost
        try:
            yield
        finally:
            del self._charged[gang.key]

    def _cached_request(self, gang: Gang) -> tuple[int, PlacementRequest | None, Floats]:
        evicted = len(self.statement.evicted)
        known = self._requests.get(gang.key)
        if known is not None and known[0] == evicted:
            return known
        try:
            _, skipped = self._skipped.get(gang.key, (None, ()))
            request = next_request(gang, self.statement, self.can_never_run, skipped)
            members = request.members if request is not None else gang.pending[:1]
            found = evicted, request, self.quota.cost_of(members)
        except Exception as error:
            self.turns.fail(gang, error)
            return evicted, None, self.quota.cost_of(())
        # What a pod that shares a claim is charged with depends on what else was placed.
        if not gang.shares_claims:
            self._requests[gang.key] = found
        return found

    def searches(self, action: Action) -> ActionSearches:
        """What ``action`` knows of its searches when it begins."""
        decided = partial(self.decisions, by_share=action is Action.RECLAIM)
        return ActionSearches(action, self.statement, decided, self.search_cache, self.backoff)

    def decisions(self, *, by_share: bool) -> Decisions | None:
        """The inputs of a search that the cycle has changed; None where they can't be compared.

        ``by_share``: whether shares of queues decide.
        """
        if self.placer.reservations.active:
            return None
        quota, statement = self.quota, self.statement
        usage = quota.usage
        return Decisions(
            placed=tuple((uid, each.row, each.capacity) for uid, each in statement.placed.items()),
            evicted=tuple(statement.evicted),
            usage=tuple(
                each.tobytes()
                for each in (
                    usage.allocated,
                    usage.non_preemptible,
                    usage.owed,
                    usage.owed_non_preemptible,
                    quota.leaving,
                )
            ),
            shares=(usage.fair.tobytes(), usage.total.tobytes()) if by_share else (),
            past_evictions=self.eviction_limits.snapshot(),
            scores=self.score_inputs,
        )


ANY_AMOUNT: Mapping[str, float] = dict.fromkeys(RESIZABLE, 1.0)


def _as_victim(gang: Gang, quota: Quota, queue: int) -> Gang:
    """A gang with protected pods that were resized above what they were admitted with.

    A non-preemptible pod is admitted only within what its queue deserves, so that no queue keeps
    what others are entitled to. A resize in place asks no scheduler. So the gang is protected only
    while the non-preemptible pods of its queue, whose position is ``queue``, stay within that.
    """
    over = check_usage(quota.usage, queue, quota.cost_vector(ANY_AMOUNT), preemptible=False)
    return gang if over is None else replace(gang, preemptible=True, semi_preemptible=False)
