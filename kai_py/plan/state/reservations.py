"""Nodes reserved for gangs that have waited too long, and the backfilling of those nodes.

A reserved node accepts only its gang and pods that end before the gang can start:

    now + expected runtime <= start

if they start now. None waits there for others to end, and none is evicted there for them: what they
leave is what the reservation is for.

``start`` is when the last running pod that is in the way is expected to have ended; where the
runtime of one is unknown, the node accepts no other pods. Gangs of the same queue with a higher
priority, ageing included, still go first. This is EASY backfilling (Lifka 1995) with one
reservation per queue. O(reservations) per placement.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from kai_py.api.references import PodRef
from kai_py.policy.ageing import QueueAgeing
from kai_py.policy.runtime_history import ExpectedEnds
from kai_py.policy.spares import Spares
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.snapshot import Snapshot


class Reservation(Struct, frozen=True):
    """``rows``: nodes reserved for ``gang``. ``start``: seconds since the epoch; inf if unknown.

    ``cost``: (quota resources,) what its pods will cost their queue.
    """

    gang: Gang
    rows: tuple[int, ...]
    start: float
    cost: Floats


@dataclass
class Reservations:
    """The reservations of a cycle; no two share a node. ``ageing`` has the priorities, and now.

    ``spares``: nodes that queues keep for repairs.
    ``ended``: gangs that have none any more, each with a pod whose end is unknown.
    """

    ageing: QueueAgeing = field(default_factory=QueueAgeing)
    runtimes: ExpectedEnds = field(default_factory=ExpectedEnds)
    active: list[Reservation] = field(default_factory=list)
    spares: Spares = field(default_factory=Spares)
    ended: list[tuple[Gang, PodRef]] = field(default_factory=list)

    def rows_closed_to(self, gang: Gang, *, starts_now: bool = True) -> tuple[int, ...]:
        """Rows of the nodes that are reserved against ``gang``; more if others must end first."""
        if not self.active:
            return ()
        runtime = self.runtimes.runtime_of(gang) if starts_now else None
        ends = math.inf if runtime is None else self.ageing.now + runtime
        return tuple(
            row
            for each in self.active
            if self._applies_to(each, gang) and (math.isinf(each.start) or ends > each.start)
            for row in each.rows
        )

    @property
    def close_nodes(self) -> bool:
        """Whether any node is closed to some gangs."""
        return bool(self.active) or self.spares.exist

    def is_for(self, gang: Gang) -> bool:
        """Whether nodes are reserved for ``gang`` itself."""
        return any(each.gang.key == gang.key for each in self.active)

    def ahead_of(self, gang: Gang) -> Reservation | None:
        """The reservation of another gang of the same queue, which also has quota reserved."""
        same_queue = (each for each in self.active if each.gang.queue == gang.queue)
        return next((each for each in same_queue if self._applies_to(each, gang)), None)

    def _applies_to(self, reservation: Reservation, gang: Gang) -> bool:
        """Whether ``gang`` has to respect the reservation."""
        same_queue = gang.queue == reservation.gang.queue
        first = same_queue and self.ageing.priority(gang) > self.ageing.priority(reservation.gang)
        return gang.key != reservation.gang.key and not first


def refusing_rows(snapshot: Snapshot, gang: Gang) -> tuple[int, ...]:
    """Rows of the nodes whose kubelets refused pods of ``gang``, which are left out for it."""
    if not gang.refusals:
        return ()
    positions = snapshot.nodes.positions
    return tuple(positions[each.node] for each in gang.refusals if each.node in positions)


def exclude_rows(rows: tuple[int, ...], allowed: Bools | None, nodes: int) -> Bools:
    """(nodes,) ``allowed`` (None: all) without ``rows``."""
    left = np.ones(nodes, dtype=np.bool_) if allowed is None else allowed.copy()
    left[list(rows)] = False
    return left
