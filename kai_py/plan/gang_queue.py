"""Pending gangs in the order in which they may act: first by queue, then inside the queue.

The order of queues is that of ``policy.queue_order``, that inside a queue of ``policy.gang_order``.
Every action takes its gangs from such a line; what it decides moves the queues.
"""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

from kai_py.plan.placement.next_pods import elastic_rank
from kai_py.plan.session import CycleState
from kai_py.policy.gang_order import Rank, gang_rank
from kai_py.policy.queue_order import QueueLine
from kai_py.snapshot.gangs import Gang, PodState


class GangLine:
    """Gangs of all queues; gangs whose queue does not exist are left out."""

    def __init__(self, state: CycleState, gangs: Iterable[Gang]) -> None:
        self._state = state
        self._lines: dict[int, list[tuple[Rank, Gang]]] = {}
        for gang in gangs:
            queue = state.quota.queue_of(gang)
            if queue is not None:
                self._lines.setdefault(queue, []).append((self._rank(gang), gang))
        self._next = dict.fromkeys(sorted(self._lines), 0)
        self._order = QueueLine(state.quota.standing, state.quota.rules)
        for queue in self._next:
            self._lines[queue].sort()
            self.update(queue)
        self._taken_from: int | None = None

    def pop(self) -> Gang | None:
        """The next gang; None when all had their turn."""
        if self._taken_from is not None:
            self.update(self._taken_from)
        self._taken_from = queue = self._order.first()
        if queue is None:
            return None
        gang = self._lines[queue][self._next[queue]][1]
        self._next[queue] += 1
        return gang

    def push(self, gang: Gang) -> None:
        """The gang that came last has more to ask for."""
        queue = self._state.quota.queues.positions[gang.queue]
        insort(self._lines[queue], (self._rank(gang), gang), lo=self._next[queue])

    def put_back(self, gangs: Sequence[Gang]) -> None:
        """Gangs that came have not had their turns after all."""
        for gang in gangs:
            self.push(gang)
        for name in dict.fromkeys(gang.queue for gang in gangs):
            self.update(self._state.quota.queues.positions[name])

    def update(self, queue: int) -> None:
        """What the queue holds has changed, or its next gang."""
        line = self._lines.get(queue)
        if line is not None:
            at = self._next[queue]
            request = self._state.ask_cost(line[at][1]) if at < len(line) else None
            self._order.update(queue, request)

    def update_all(self) -> None:
        """What any queue holds may have changed."""
        for queue in self._lines:
            self.update(queue)

    def heads(self, count: int) -> dict[int, Sequence[Gang]]:
        """The first ``count`` gangs of every queue that has any, by queue."""
        lines = ((queue, self._lines[queue][at : at + count]) for queue, at in self._next.items())
        return {queue: [gang for _, gang in line] for queue, line in lines if line}

    def ends_with(self, queue: int, count: int) -> bool:
        """Whether the queue has no more than ``count`` gangs left."""
        return self._next[queue] + count >= len(self._lines[queue])

    def skip(self, counts: Mapping[int, int]) -> None:
        """The first gangs of some queues had their turns, so many of each."""
        for queue, count in counts.items():
            self._next[queue] += count
            self.update(queue)

    def _rank(self, gang: Gang) -> Rank:
        served = elastic_rank(gang, self._state.statement)
        return gang_rank(gang, served, self._state.ageing.gained(gang))


MOST_PODS = 16
"""Pods of a gang; larger ones gain nothing."""


def is_alike(gang: Gang, other: Gang) -> bool:
    """Whether the gang asks for what ``other`` does: pods of one kind, together, anywhere."""
    pods, tree = gang.members, gang.tree
    if not 0 < len(pods) == len(other.members) <= MOST_PODS or gang.awaited or gang.near:
        return False
    if tree.min_members != len(pods) or not tree.is_unconstrained_leaf:
        return False
    shape, charge = other.members[0].shape.number, pods[0].charge
    if charge is not other.members[0].charge and charge != other.members[0].charge:
        return False
    for pod in pods:
        if pod.shape.number != shape or pod.charge is not charge:
            return False
        if pod.state is not PodState.PENDING or pod.waiting:
            return False
    return gang.can_give_back(pods)
