"""Pending gangs in the order in which they may act: first by queue, then inside the queue.

The order of queues is that of ``policy.queue_order``, that inside a queue of ``policy.gang_order``.
Every action takes its gangs from such a line; what it decides moves the queues.
"""

import heapq
from collections.abc import Iterable

from kai_py.plan.candidates import elastic_rank
from kai_py.plan.cycle_state import CycleState
from kai_py.policy.gang_order import Rank, gang_rank
from kai_py.policy.queue_line import QueueLine
from kai_py.snapshot.gangs import Gang


class GangLine:
    """Gangs of all queues; gangs whose queue does not exist are left out."""

    def __init__(self, state: CycleState, gangs: Iterable[Gang]) -> None:
        self._state = state
        self._lines: dict[int, list[tuple[Rank, Gang]]] = {}
        for gang in gangs:
            queue = state.quota.queue_of(gang)
            if queue is not None:
                self._lines.setdefault(queue, []).append((self._rank(gang), gang))
        self._order = QueueLine(state.quota.standing, state.quota.rules)
        for queue, line in sorted(self._lines.items()):
            heapq.heapify(line)
            self.update(queue)
        self._taken_from: int | None = None

    def pop(self) -> Gang | None:
        """The next gang; None when all had their turn."""
        if self._taken_from is not None:
            self.update(self._taken_from)
        self._taken_from = self._order.first()
        if self._taken_from is None:
            return None
        return heapq.heappop(self._lines[self._taken_from])[1]

    def push(self, gang: Gang) -> None:
        """The gang that came last has more to ask for."""
        if self._taken_from is not None:
            heapq.heappush(self._lines[self._taken_from], (self._rank(gang), gang))

    def update(self, queue: int) -> None:
        """What the queue holds has changed, or its next gang."""
        line = self._lines.get(queue)
        if line is not None:
            self._order.update(queue, self._state.ask_cost(line[0][1]) if line else None)

    def _rank(self, gang: Gang) -> Rank:
        served = elastic_rank(gang, self._state.statement)
        return gang_rank(gang, served, self._state.snapshot.now, self._state.ageing)
