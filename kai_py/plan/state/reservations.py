"""Which nodes are kept for gangs that have waited too long, and who may use them meanwhile?

A node that is kept takes nobody but its holder and pods that end before the holder can start:

    now + expected runtime <= start

``start`` is when the last pod that is in the way is expected to have ended; where one of them does
not say how long it runs nobody can tell, and the node takes nobody else. Inside the holder's queue
a higher priority, with what waiting counts, still goes first. This is backfilling as in
EASY (Lifka 1995), with one reservation per queue. O(reservations) per placement.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from kai_py.policy.ageing import QueueAgeing
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools, Floats


@dataclass(frozen=True, slots=True)
class Reservation:
    """``rows``: nodes kept for ``gang``. ``start``: seconds since the epoch; inf if nobody can say.

    ``cost``: (quota resources,) what its pods will cost their queue.
    """

    gang: Gang
    rows: tuple[int, ...]
    start: float
    cost: Floats


@dataclass
class Reservations:
    """The reservations of a cycle; none share a node. ``ageing``: what waiting counts, and now."""

    ageing: QueueAgeing = field(default_factory=QueueAgeing)
    active: list[Reservation] = field(default_factory=list)

    def rows_closed_to(self, gang: Gang) -> tuple[int, ...]:
        """Rows of the nodes that are kept from ``gang``."""
        if not self.active:
            return ()
        runtime = gang.expected_runtime
        ends = math.inf if runtime is None else self.ageing.now + runtime
        return tuple(
            row
            for each in self.active
            if self._applies_to(each, gang) and (math.isinf(each.start) or ends > each.start)
            for row in each.rows
        )

    def ahead_of(self, gang: Gang) -> Reservation | None:
        """What another gang of the same queue holds: its part of the queue is kept for it, too."""
        ours = (each for each in self.active if each.gang.queue == gang.queue)
        return next((each for each in ours if self._applies_to(each, gang)), None)

    def _applies_to(self, reservation: Reservation, gang: Gang) -> bool:
        """Whether ``gang`` has to respect it."""
        same_queue = gang.queue == reservation.gang.queue
        first = same_queue and self.ageing.priority(gang) > self.ageing.priority(reservation.gang)
        return gang.key != reservation.gang.key and not first


def exclude_rows(rows: tuple[int, ...], allowed: Bools | None, nodes: int) -> Bools:
    """(nodes,) ``allowed`` (None: all) without ``rows``."""
    left = np.ones(nodes, dtype=np.bool_) if allowed is None else allowed.copy()
    left[list(rows)] = False
    return left
