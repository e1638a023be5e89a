"""Pending gangs in the order in which they may act: first by queue, then inside the queue.

Both orders are those of ``policy.queue_order``. Every action takes its gangs from such a queue;
what it decides moves the queues.
"""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

from kai_py.plan.placement.next_pods import elastic_rank
from kai_py.plan.session.cycle_state import CycleState
from kai_py.policy.queue_order import GangKey, QueueOrder, gang_key
from kai_py.snapshot.gangs import Gang, PodState


class GangQueue:
    """Gangs of all queues; gangs whose queue does not exist are left out."""

    def __init__(self, state: CycleState, gangs: Iterable[Gang]) -> None:
        self._state = state
        self._gangs: dict[int, list[tuple[GangKey, Gang]]] = {}
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
        for queue in self._next:
            self._gangs[queue].sort()
            self.update(queue)
        self._last_queue: int | None = None

    def pop(self) -> Gang | None:
        """The next gang; None when none is left, or the cycle is over its limit."""
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
        return gang

    def _first_queue(self) -> int | None:
        if len(self._next) != 1:
            return self._order.first()
        # Alone it needs no order, which costs more than all else here.
        (queue,) = self._next
        return None if self.has_at_most(queue, 0) else queue

    def push(self, gang: Gang) -> None:
        """The gang that came last has more pods to place."""
        queue = self._state.quota.queues.positions[gang.queue]
        insort(self._gangs[queue], (self._rank(gang), gang), lo=self._next[queue])

    def requeue(self, gangs: Sequence[Gang]) -> None:
        """Put back gangs that were popped and not planned."""
        for gang in gangs:
            self.push(gang)
        for name in dict.fromkeys(gang.queue for gang in gangs):
            self.update(self._state.quota.queues.positions[name])

    def update(self, queue: int) -> None:
        """The usage of the queue has changed, or its next gang."""
        waiting = self._gangs.get(queue)
        if waiting is not None and len(self._next) > 1:
            at = self._next[queue]
            request = self._state.request_cost(waiting[at][1]) if at < len(waiting) else None
            self._order.update(queue, request)

    def update_all(self) -> None:
        """The usage of any queue may have changed."""
        for queue in self._gangs:
            self.update(queue)

    def peek(self, count: int) -> dict[int, Sequence[Gang]]:
        """The first ``count`` gangs of every queue that has any, by queue."""
        following = (
            (queue, self._gangs[queue][at : at + count]) for queue, at in self._next.items()
        )
        return {queue: [gang for _, gang in waiting] for queue, waiting in following if waiting}

    def has_at_most(self, queue: int, count: int) -> bool:
        """Whether the queue has no more than ``count`` gangs left."""
        return self._next[queue] + count >= len(self._gangs[queue])

    def advance(self, counts: Mapping[int, int]) -> None:
        """Skip the first gangs of some queues, ``counts`` of each."""
        for queue, count in counts.items():
            self._next[queue] += count
            self.update(queue)

    def _rank(self, gang: Gang) -> GangKey:
        served = elastic_rank(gang, self._state.statement)
        return gang_key(gang, served, self._state.ageing.points(gang))


MAX_BATCH_PODS = 16
"""Pods of a gang; larger ones gain nothing."""


def is_equivalent(gang: Gang, other: Gang) -> bool:
    """Whether the gang requests what ``other`` does: pods of one shape, together, anywhere."""
    pods, tree = gang.members, gang.tree
    if (
        not 0 < len(pods) == len(other.members) <= MAX_BATCH_PODS
        or gang.placeholders
        or gang.gang_affinity
        or gang.refusals
    ):
        return False
    if tree.min_members != len(pods) or not tree.is_unconstrained_leaf:
        return False
    shape, charge = other.members[0].shape.number, pods[0].charge
    if charge is not other.members[0].charge and charge != other.members[0].charge:
        return False
    for pod in pods:
        if pod.shape.number != shape or pod.charge is not charge:
            return False
        if pod.state is not PodState.PENDING or pod.waiting_for or pod.relies_on:
            return False
    return gang.is_preemptible(pods)
