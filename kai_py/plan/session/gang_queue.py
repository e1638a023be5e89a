"""Pending gangs in the order in which they are placed: between queues, then inside a queue.

Both orders are those of ``policy.queue_order``. Actions take their gangs from a ``GangQueue``. The
order of queues changes with each decision, as it depends on what they have allocated.

Under the native rules a gang that would bring its queue above its fair share comes after the next
gang of its priority that would not. Otherwise that one gang would rank the whole queue behind
queues that have more of their shares. For the same reason a gang that could not start even if
nothing else ran, because of its size or the bounds of its queues, comes after all others of its
queue, whatever its priority.
"""

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import gt
from typing import NamedTuple

import numpy as np

from kai_py.plan.placement.next_pods import PlacementRequest, elastic_rank
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.skipped_gangs import Ranked, SkippedGangs
from kai_py.policy.fairness_rules import ComparedResources
from kai_py.policy.queue_order import GangKey, QueueOrder, gang_key
from kai_py.snapshot.gangs import Gang

MAX_PASSED = 64
"""How many gangs that would exceed their queue's fair share, or never start, are passed at once."""


class GangQueue:
    """The gangs of all queues in order; gangs whose queue does not exist are left out."""

    def __init__(self, state: CycleState, gangs: Iterable[Gang]) -> None:
        self._state = state
        self._gangs: dict[int, list[Ranked]] = {}
        for gang in gangs:
            queue = state.quota.queue_of(gang)
            if queue is None:
                continue
            try:
                rank = self._rank(gang)
            except Exception as error:
                state.turns.fail(gang, error)
            else:
                self._gangs.setdefault(queue, []).append((rank, gang))
        self._next = dict.fromkeys(sorted(self._gangs), 0)
        self._order = QueueOrder(state.quota.usage, state.quota.rules)
        self._lets_pass = state.quota.rules.compared_resources is not ComparedResources.ALL
        self._fair: list[list[float]] = state.quota.usage.fair.T.tolist()
        self._exceeding: dict[int, _Exceeding] = {}
        self._bounds: dict[tuple[int, bool], list[float]] = {}
        self._infeasible: dict[str, bool] = {}
        self._skipped = SkippedGangs(state)
        for queue in self._next:
            self._gangs[queue].sort()
            self.update(queue)
        self._last_queue: int | None = None

    def pop(self) -> Gang | None:
        """Remove and return the next gang; None if none is left, or the cycle is over its limit."""
        while (gang := self._pop()) is not None:
            if self._state.turns.may_plan(gang):
                return gang
        return None

    def _pop(self) -> Gang | None:
        if self._last_queue is not None:
            self.update(self._last_queue)
        self._last_queue = queue = self._first_queue()
        if queue is None:
            return None
        gang = self._gangs[queue][self._next[queue]][1]
        self._next[queue] += 1
        following = self._skipped.next_after(gang)
        if following is not None:
            self._insert(following)
        return gang

    def _first_queue(self) -> int | None:
        if len(self._next) != 1:
            return self._order.first()
        # A single queue needs no order, which would cost more than all else here.
        (queue,) = self._next
        self._skip_first(queue)
        return None if self.has_at_most(queue, 0) else queue

    def push(self, gang: Gang) -> None:
        """Put back the gang that was popped last, as it has more pods to place."""
        self._insert((self._rank(gang), gang))

    def _insert(self, ranked: Ranked) -> None:
        queue = self._state.quota.queues.positions[ranked[1].queue]
        self._exceeding.pop(queue, None)
        insort(self._gangs[queue], ranked, lo=self._next[queue])

    def requeue(self, gangs: Sequence[Gang]) -> None:
        """Put back gangs that were popped and not placed."""
        for gang in gangs:
            self.push(gang)
        for name in dict.fromkeys(gang.queue for gang in gangs):
            self.update(self._state.quota.queues.positions[name])

    def skip_equivalent(self, gang: Gang) -> None:
        """Skip gangs equivalent to ``gang``, which was popped last and failed."""
        self._skipped.add_failed(gang)

    def skipped(self) -> Iterator[tuple[Gang, Gang]]:
        """The gangs that were skipped, each with the equivalent one that failed."""
        return iter(self._skipped)

    def resume_all(self) -> None:
        """Let all gangs that were skipped come again, as capacity has grown."""
        for ranked in self._skipped.resume_all():
            self._insert(ranked)
        self.update_all()

    def resume_first(self) -> None:
        """``resume_all``, one gang of each class after the other."""
        resumed = self._skipped.resume_first()
        for ranked in resumed:
            self._insert(ranked)
        positions = self._state.quota.queues.positions
        for queue in dict.fromkeys(positions[gang.queue] for _, gang in resumed):
            self.update(queue)

    def update(self, queue: int) -> None:
        """Reorder a queue whose usage, or next gang, has changed."""
        waiting = self._gangs.get(queue)
        if waiting is not None and len(self._next) > 1:
            self._skip_first(queue)
            at = self._next[queue]
            if self._lets_pass and at + 1 < len(waiting):
                self._put_infeasible_last(queue, waiting, at)
                self._let_pass(queue, waiting, at)
            request = self._state.request_cost(waiting[at][1]) if at < len(waiting) else None
            self._order.update(queue, request)

    def _skip_first(self, queue: int) -> None:
        """Skip the first gangs, as far as equivalent ones have failed."""
        waiting, at = self._gangs[queue], self._next[queue]
        while at < len(waiting) and self._skipped.skip(waiting[at]):
            at += 1
        self._next[queue] = at

    def _put_infeasible_last(self, queue: int, waiting: list[Ranked], at: int) -> None:
        """Put the first gangs, as far as they can never start, behind all others."""
        for _ in range(MAX_PASSED):
            rank, gang = waiting[at]
            if rank[0] == math.inf:
                return
            known = self._infeasible.get(gang.key)
            if known is None:
                known = self._infeasible[gang.key] = self._is_infeasible(queue, gang)
            if not known:
                return
            del waiting[at]
            insort(waiting, ((math.inf, *rank[1:]), gang), lo=at)
            self._exceeding.pop(queue, None)

    def _is_infeasible(self, queue: int, gang: Gang) -> bool:
        """Whether the gang fits neither empty nodes nor queues of which nothing is allocated."""
        if gang.key in self._state.infeasible_gangs:
            return True
        if gang.preemptible and not (
            gang.semi_preemptible or self._state.quota.queues.has_max[queue]
        ):
            return False
        request = self._state.next_request(gang)
        if request is None or not has_fixed_cost(request):
            return False
        preemptible = gang.is_preemptible(request.members)
        bounds = self._bounds.get((queue, preemptible))
        if bounds is None:
            queues = self._state.quota.queues
            path = queues.ancestors(queue)
            least = queues.max[:, path].min(axis=1)
            if not preemptible:
                least = np.minimum(least, queues.deserved[:, path].min(axis=1))
            bounds = self._bounds[queue, preemptible] = _most(least.tolist(), repeat(0.0))
        return not _stays_within(self._state.request_cost(gang).tolist(), bounds)

    def _let_pass(self, queue: int, waiting: list[Ranked], at: int) -> None:
        """Put the first gang that stays within the fair share before those that do not."""
        allocated: list[float] = self._state.quota.usage.allocated[:, queue].tolist()
        evicted, known = len(self._state.statement.evicted), self._exceeding.get(queue)
        if known is None or known.evicted != evicted or known.allocated != allocated:
            known = _Exceeding(evicted, allocated, _most(self._fair[queue], allocated), at)
        elif known.first == at:
            return
        first, end, last = None, max(at, known.end), min(at + MAX_PASSED, len(waiting))
        priority, request_cost = waiting[at][1].priority, self._state.request_cost
        while end < last and (gang := waiting[end][1]).priority == priority:
            if _stays_within(request_cost(gang).tolist(), known.most):
                waiting.insert(at, waiting.pop(end))
                first, end = at, end + 1
                break
            end += 1
        self._exceeding[queue] = _Exceeding(evicted, allocated, known.most, end, first)

    def update_all(self) -> None:
        """Reorder all queues, as the usage of any may have changed."""
        for queue in self._gangs:
            self.update(queue)

    def peek(self, count: int) -> Iterator[tuple[int, Sequence[Gang]]]:
        """The position of each queue that has any gangs, and its first ``count`` gangs."""
        for queue, at in self._next.items():
            waiting = self._gangs[queue][at : at + count]
            if waiting:
                yield queue, [gang for _, gang in waiting]

    def has_at_most(self, queue: int, count: int) -> bool:
        """Whether the queue has no more than ``count`` gangs left."""
        return self._next[queue] + count >= len(self._gangs[queue])

    def advance(self, counts: Mapping[int, int]) -> None:
        """Remove the first gangs of some queues; ``counts``: how many of each."""
        for queue, count in counts.items():
            self._next[queue] += count
            self.update(queue)

    def _rank(self, gang: Gang) -> GangKey:
        rank = elastic_rank(gang, self._state.statement)
        return gang_key(gang, rank, self._state.ageing.points(gang))


class _Exceeding(NamedTuple):
    """The gangs of a queue before position ``end``: each would bring it above its fair share.

    All but the ``first``, at this position, if that is known to stay within it. This holds while as
    many pods are ``evicted`` and the queue has the same ``allocated``. ``most``: (quota resources,)
    what a gang may cost.
    """

    evicted: int
    allocated: list[float]
    most: list[float]
    end: int
    first: int | None = None


def has_fixed_cost(request: PlacementRequest) -> bool:
    """Whether the pods cost the same on any node and with any devices."""
    return not any(
        m.shape.has_claims or (m.shape.gpu_share is not None and m.shape.gpu_share.memory)
        for m in request.members
    )


def _stays_within(cost: Sequence[float], most: Sequence[float]) -> bool:
    """Whether a gang of this cost requests no more than ``most``; (quota resources,) each."""
    return not any(map(gt, cost, most))


def _most(bounds: Iterable[float], allocated: Iterable[float]) -> list[float]:
    """The most that a gang may request within ``bounds``; where that is nothing, 0."""
    pairs = zip(bounds, allocated, strict=False)
    return [max(0.0, bound - has + 1e-9) for bound, has in pairs]
