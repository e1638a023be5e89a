"""Allocate in turn: what a gang needs together with victims goes to nobody who comes after it.

    place everybody who finds free room, in order
    of the gangs that found none, those that others were given room before (``passed_over``):
        undo it, and once more in the same order: such a gang may at its turn also move others,
        reclaim and preempt; what is left goes to those after it

So no pod starts in room that a gang before it takes back a cycle later. The second pass is only
made where somebody was passed over, and ``MOST_SERVED`` gangs may make others leave in it; the rest
have their turns afterwards, like everybody who was not passed over.

Who was passed over: found no room, and then others took some of what it needs with victims?

Of a gang that gets nothing, what is left at its turn is remembered. Those who come after it take

    room, where on a node that may take its pods less is left than at its turn of a resource that
    they ask for, and less than as many of them ask for as an empty node would hold;
    bounds, where its queue, or one above it, could hold it at its turn and can't any more.

That is necessary for standing in its way, not sufficient: whether victims make room for it is for
the search to say. Gangs of a kind, alike in queue and pods, are looked at once, the first of
``MOST_KINDS`` kinds. O(nodes x resources) per kind.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.actions.allocate import allocate
from kai_py.plan.placement.fit import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session import CycleState
from kai_py.plan.state.statement import Assignment
from kai_py.plan.victims.order import VictimPool
from kai_py.policy.fit import replicas_that_fit
from kai_py.policy.limits import check_limits
from kai_py.policy.queue_usage import QueueUsage, copy_usage
from kai_py.policy.reclaim_rules import Reclaimer, may_reclaim
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats

MAX_GANG_CLASSES = 16

GangClass = tuple[str, bool, str, tuple[tuple[int, int], ...]]
"""Queue, whether preemptible, the gang where it has a tree of its own, pods by shape."""


def gang_class(gang: Gang, request: PlacementRequest) -> GangClass:
    """What gangs have in common that need the same room."""
    own = gang.key if has_topology_constraint(gang.tree) else ""
    if len(request.members) == 1:
        pods: tuple[tuple[int, int], ...] = ((request.members[0].shape.number, 1),)
    else:
        groups = by_shape(request.members)
        pods = tuple((group[0].shape.number, len(group)) for group in groups)
    return gang.queue, gang.is_preemptible(request.members), own, pods


@dataclass(frozen=True, slots=True)
class _FailedAttempt:
    """A gang got nothing when ``placed`` pods had been placed and so much was left."""

    gang: Gang
    request: PlacementRequest
    placed: int
    future_idle: Floats
    usage: QueueUsage


class BypassTracker:
    """Remembers who gets nothing while others do."""

    def __init__(self, state: CycleState) -> None:
        """Nobody had a turn yet."""
        self._state = state
        self._attempts: dict[GangClass, _FailedAttempt] = {}
        self._remaining: tuple[int, Floats, QueueUsage] | None = None

    def record(self, gang: Gang) -> bool:
        """The gang gets nothing at its turn; False, for that stays so."""
        ask = self._state.next_request(gang)
        if ask is not None and len(self._attempts) < MAX_GANG_CLASSES:
            kind = gang_class(gang, ask)
            if kind not in self._attempts:
                self._attempts[kind] = _FailedAttempt(gang, ask, *self._remaining_now())
        return False

    def bypassed(self) -> set[GangClass]:
        """The kinds of which somebody was passed over."""
        return {kind for kind, turn in self._attempts.items() if self._was_bypassed(turn)}

    def _remaining_now(self) -> tuple[int, Floats, QueueUsage]:
        placed = len(self._state.statement.placed)
        if self._remaining is None or self._remaining[0] != placed:
            standing = copy_usage(self._state.quota.usage)
            self._remaining = placed, self._state.statement.future_idle.copy(), standing
        return self._remaining

    def _was_bypassed(self, attempt: _FailedAttempt) -> bool:
        came = list(self._state.statement.placed.values())[attempt.placed :]
        if not came:
            return False
        groups = by_shape(attempt.request.members)
        room = any(self._lost_capacity(attempt, group, came) for group in groups)
        return room or self._lost_quota(attempt)

    def _lost_capacity(
        self, attempt: _FailedAttempt, group: list[Member], placed_since: list[Assignment]
    ) -> bool:
        """Whether nodes have less for pods of one shape, and that is little."""
        state, shape = self._state, group[0].shape
        nodes, statement = state.snapshot.nodes, state.statement
        mask = state.placer.shapes.fits.static_fits.of(shape, nodes).mask
        if shape.needs_devices:
            return any(each.member.shape.needs_devices and mask[each.row] for each in placed_since)
        asked = statement.request_vector(shape)
        card = state.snapshot.resources.positions.get(GPU_RESOURCE)
        if shape.gpu_share is not None and card is not None:
            if any(each.gpus and mask[each.row] for each in placed_since):
                return True
            asked = asked.copy()
            asked[card] = shape.gpu_share.devices
        whole = nodes.allocatable
        empty = replicas_that_fit(shape, state.snapshot.resources, whole, mask, whole)
        enough = asked[:, None] * np.minimum(empty, len(group))
        taken = attempt.future_idle > statement.future_idle
        return bool(
            (taken & (statement.future_idle < enough) & (asked > 0)[:, None])[:, mask].any()
        )

    def _lost_quota(self, attempt: _FailedAttempt) -> bool:
        """Whether the queue could hold the gang at its turn, or take room back for it."""
        quota, gang = self._state.quota, attempt.gang
        queue, cost = quota.queues.positions[gang.queue], quota.cost_of(attempt.request.members)
        line = quota.queues.ancestors(queue)
        if not (quota.usage.allocated[:, line] > attempt.usage.allocated[:, line]).any():
            return False
        preemptible = gang.is_preemptible(attempt.request.members)
        reclaimer = Reclaimer(queue, cost, preemptible)

        def is_refused(usage: QueueUsage) -> tuple[bool, bool]:
            over = check_limits(usage, queue, cost, preemptible=preemptible)
            return over is not None, may_reclaim(usage, reclaimer, quota.rules) is not None

        before, now = is_refused(attempt.usage), is_refused(quota.usage)
        return any(late and not early for early, late in zip(before, now, strict=True))


MAX_PREEMPTORS = 16

VictimAction = Callable[[CycleState, Sequence[Gang], VictimPool], None]
"""An action that makes others leave."""


def allocate_without_bypass(
    state: CycleState, gangs: Iterable[Gang], victim_actions: Sequence[VictimAction]
) -> None:
    """Run the action for ``gangs``; ``seekers`` are tried one after the other."""
    everybody, obstacles = list(gangs), dict(state.unschedulable)
    with state.statement.trial() as trial:
        passed_over = BypassTracker(state)
        allocate(state, everybody, passed_over.record)
        kinds = passed_over.bypassed() if victim_actions else set()
        if not kinds or not state.evictable:
            trial.keep()
            return
    state.start_over(obstacles)
    allocate(state, everybody, _BypassedGangs(state, kinds, victim_actions).find_victims)


class _BypassedGangs:
    """Makes room for gangs of some kinds when they come."""

    def __init__(
        self,
        state: CycleState,
        gang_classes: set[GangClass],
        victim_actions: Sequence[VictimAction],
    ) -> None:
        """Nobody came yet."""
        self._state, self._gang_classes, self._victim_actions = state, gang_classes, victim_actions
        self._placed_count = 0
        self._pool: tuple[int, VictimPool] | None = None

    def find_victims(self, gang: Gang) -> bool:
        """Whether the gang, which finds no free room, got room from others."""
        state, ask = self._state, self._state.next_request(gang)
        if ask is None or self._placed_count >= MAX_PREEMPTORS or gang.key in state.out_of_budget:
            return False
        kind = gang_class(gang, ask)
        if kind not in self._gang_classes:
            return False
        for seek in self._victim_actions:
            seek(state, [gang], self._victim_pool())
            if ask.members[0].pod.uid in state.statement.placed:
                self._placed_count += 1
                return True
        self._gang_classes.discard(kind)
        state.searched_in_allocate.add(gang.key)
        return False

    def _victim_pool(self) -> VictimPool:
        """Who could leave, built anew whenever anybody was placed."""
        placed = len(self._state.statement.placed)
        if self._pool is None or self._pool[0] != placed:
            self._pool = placed, VictimPool(self._state)
        return self._pool[1]
