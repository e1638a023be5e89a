"""Turnover: gangs that could evict others wait if enough pods are about to end by themselves.

    for a gang that fits nowhere at its turn:
        simulate the ends of the pods that are expected to end within ``patience``, in order
        if the gang fits then: evict and relocate nothing for it; if it may reclaim or preempt,
            reserve the nodes that drain for it until then
    a gang waits at most ``patience`` from when it began to wait, for reclaim from when it was due;
    gangs of a queue that has missed its share wait for two minutes (``policy.served_share``)
    a gang that may reclaim and still waits after ``patience`` has the nodes reserved that it needs
    (beyond what its queue deserves: after four times as long), so that no stream of short pods,
    of which some are always protected, keeps it out

So a queue gets its share at most ``patience`` later, and mostly without evictions. Capacity that
earlier gangs wait for does not count for later ones. Gangs of several shapes, with a topology
constraint, or that serve requests do not wait. Ends are known from declared and from observed
runtimes (``policy.runtime_history``); for other pods no gang waits. O(ends) per gang.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState, PodEnd
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.reservations import Reservation, refusing_rows
from kai_py.plan.victims.count import ShapeCount
from kai_py.plan.victims.freed_capacity import FreedCapacity, FreedResources
from kai_py.plan.victims.timing import MAX_PATIENCE
from kai_py.policy.queue_usage import exceeds_fair_share
from kai_py.policy.reclaim_rules import Reclaimer, check_reclaimer, compared_rows, is_guaranteed
from kai_py.policy.runtime_history import is_service
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.shape import Shape

MAX_WAITING = 64
"""Gangs that wait at a time; further ones evict as if no pod ended."""

UNSERVED_PATIENCE = 120.0
"""Seconds for which gangs wait if their queue has missed its share."""

MAX_ENDS_AWAITED = 512
"""How many of the next ends a gang may wait for."""


class _Awaited(Struct):
    """The capacity of one node that earlier gangs wait for: ``amounts`` (resources,), devices."""

    amounts: Floats
    devices: float = 0.0


class _Patience(NamedTuple):
    """A gang waits at most ``seconds`` from ``since``; ``may_evict``: for pods to evict as well.

    ``reserve_after``: seconds from ``since`` after which nodes are reserved for it.
    """

    since: float
    seconds: float
    may_evict: bool
    reserve_after: float = math.inf


class Turnover:
    """The gangs of a cycle that wait for pods to end."""

    def __init__(self, state: CycleState) -> None:
        """No gang waits yet."""
        self._state, self._patience = state, state.settings.loss_rules.patience
        actions = state.settings.actions
        self._may_reclaim, self._may_preempt = Action.RECLAIM in actions, Action.PREEMPT in actions
        self._freed = FreedResources(state)
        self._awaited: dict[int, _Awaited] = {}
        self._costs: dict[str, Floats] = {}
        self._failed: set[tuple[int, int, float]] = set()
        self._ends: tuple[int, list[PodEnd]] | None = None

    def start_over(self) -> None:
        """Forget which gangs wait, after all placements have been undone."""
        state = self._state
        reservations = state.placer.reservations
        reservations.active = [
            each for each in reservations.active if each.gang.key not in state.waiting
        ]
        state.waiting.clear()
        self._awaited.clear()
        self._costs.clear()
        self._failed.clear()

    def try_wait(self, gang: Gang) -> bool:
        """Whether the gang, which fits nowhere now, waits for pods to end."""
        state, request = self._state, self._state.next_request(gang)
        if request is None or not self.may_wait(gang):
            return False
        shape, count = request.members[0].shape.number, len(request.members)
        patience = self._patience_of(gang, request)
        kind, until = (shape, count, patience.seconds), patience.since + patience.seconds
        over = until <= state.snapshot.now
        if over:
            self._reserve_after_waiting(gang, request, patience)
        if over or kind in self._failed:
            return False
        horizon = state.snapshot.now + patience.seconds
        ends = [end for end in self._ends_soon() if end.at <= horizon]
        found = self._rows_after_ends(gang, request.members, ends)
        if found is None:
            self._failed.add(kind)
            return False
        at, rows = found
        if patience.may_evict:
            self._await(gang, request.members, rows)
            self._reserve_drained(gang, request.members, rows, at)
        # If the pods do not end as expected, the gang does not wait any longer.
        state.waiting[gang.key] = min(until, at) if at > state.snapshot.now else until
        reason = state.unschedulable.get(gang.key)
        if reason is not None:
            why = "because enough of them are expected to end soon."
            note = f"No pod is evicted for it yet, {why}"
            state.mark_unschedulable(gang, reason.with_sentence(note))
        return True

    def _reserve_after_waiting(
        self, gang: Gang, request: PlacementRequest, patience: _Patience
    ) -> None:
        """Let no other gang start where pods are expected to end; this gang may still evict.

        Pods that just started, or that are within their min runtime, are not evicted. In a stream
        of short pods some always are, and the next ones would start on whatever capacity becomes
        free. Only one gang of a queue at a time.
        """
        state = self._state
        if request.is_elastic or state.snapshot.now < patience.since + patience.reserve_after:
            return
        active = state.placer.reservations.active
        kind = request.members[0].shape.number, len(request.members), math.inf
        if kind in self._failed or any(each.gang.queue == gang.queue for each in active):
            return
        found = self._rows_after_ends(gang, request.members, self._ends_until(math.inf))
        if found is None:
            self._failed.add(kind)
            return
        self._await(gang, request.members, found[1])
        self._reserve_drained(gang, request.members, found[1], state.snapshot.now)

    def may_wait(self, gang: Gang) -> bool:
        """Whether the gang, or an equivalent one, might wait, however long it has waited already.

        It must be allowed to evict others, and enough pods must be expected to end soon.
        """
        if not self._patience or len(self._state.waiting) >= MAX_WAITING:
            return False
        request = self._state.next_request(gang)
        if request is None or not gang.may_preempt or is_service(gang):
            return False
        if has_topology_constraint(gang.tree) or not self._ends_soon():
            return False
        shape, count = request.members[0].shape.number, len(request.members)
        return (shape, count, self._patience) not in self._failed

    def reserve_for_largest(self, gangs: Iterable[Gang]) -> None:
        """Reserve nodes for the largest gang that has waited for long, as their pods end.

        It must be within the fair share of its queue, or others would take the nodes back.
        """
        state = self._state
        if not state.settings.loss_rules.reserve_after or state.placer.reservations.active:
            return
        gang = self._largest_waiting(gangs)
        if gang is None:
            return
        with state.turns.of(gang):
            request = state.next_request(gang)
            if request is None or request.is_elastic:
                return
            found = self._rows_after_ends(gang, request.members, self._ends_until(math.inf))
            if found is None or found[0] <= state.snapshot.now:
                return
            at, rows = found
            self._await(gang, request.members, rows)
            self._reserve(gang, rows, at)

    def _largest_waiting(self, gangs: Iterable[Gang]) -> Gang | None:
        """The gang with the largest request of those that waited too long; of equals the oldest."""
        state, quota = self._state, self._state.quota
        total = quota.usage.total
        since = state.snapshot.now - state.settings.loss_rules.reserve_after
        found: tuple[tuple[float, float, str], Gang] | None = None
        for gang in gangs:
            if gang.waiting_since > since or not gang.preemptible or len(gang.pending) < 2:
                continue
            if state.precondition(gang) is not None or has_topology_constraint(gang.tree):
                continue
            cost, queue = state.request_cost(gang), quota.queues.positions[gang.queue]
            if exceeds_fair_share(quota.usage, queue, cost):
                continue
            parts = np.divide(cost, total, out=np.zeros_like(cost), where=total > 0)
            rank = (-float(parts.max(initial=0.0)), gang.waiting_since, gang.key)
            if found is None or rank < found[0]:
                found = rank, gang
        return None if found is None else found[1]

    def _patience_of(self, gang: Gang, request: PlacementRequest) -> _Patience:
        """For how long the gang waits, and whether it may evict.

        A gang that may neither reclaim nor preempt could only have pods relocated for it.
        """
        quota, cost = self._state.quota, self._state.request_cost(gang)
        queue = quota.queues.positions[gang.queue]
        with_waiting = cost + self._costs.get(gang.queue, 0.0)
        reclaimer = Reclaimer(queue, with_waiting, gang.is_preemptible(request.members))
        if self._may_reclaim and check_reclaimer(quota.usage, reclaimer, quota.rules) is None:
            served = self._state.served.is_served(queue, compared_rows(cost, quota.rules))
            since = self._state.due.since(gang, self._state.snapshot.now)
            seconds = self._patience if served else min(self._patience, UNSERVED_PATIENCE)
            guaranteed = is_guaranteed(quota.usage, reclaimer, quota.rules)
            reserve_after = self._patience * (1 if guaranteed else MAX_PATIENCE)
            return _Patience(since, seconds, may_evict=True, reserve_after=reserve_after)
        self._state.due.record_above_share(gang)
        lowest = self._state.lowest_evictable_priority(queue)
        preempts = self._may_preempt and lowest is not None and lowest < gang.priority
        return _Patience(gang.waiting_since, self._patience, preempts)

    def _ends_soon(self) -> list[PodEnd]:
        """Running pods that are expected to end in time, the earliest first."""
        state = self._state
        evicted = len(state.statement.evicted)
        if self._ends is not None and self._ends[0] == evicted:
            return self._ends[1]
        until = state.snapshot.now + self._patience
        self._ends = evicted, self._ends_until(until)[:MAX_ENDS_AWAITED]
        return self._ends[1]

    def _ends_until(self, until: float) -> list[PodEnd]:
        """Pods on nodes that are expected to end by ``until``, the earliest first."""
        rows, evicted = self._state.snapshot.nodes.positions, self._state.statement.evicted
        ends = [
            end
            for end in self._state.pod_ends()
            if end.at <= until and end.member.node in rows and end.member.pod.uid not in evicted
        ]
        ends.sort(key=lambda end: (end.at, rows[end.member.node], end.member.pod.uid))
        return ends

    def _rows_after_ends(
        self, gang: Gang, members: Sequence[Member], ends: Sequence[PodEnd]
    ) -> tuple[float, dict[int, int]] | None:
        """When the pods fit, and how many of them on which node; None if not in time."""
        state, shape = self._state, members[0].shape
        if any(member.shape.number != shape.number for member in members):
            return None
        if state.statement.pod_rules.concern(shape) or shape.gpu_share is not None:
            return None
        count = ShapeCount(state, members)
        closed = set(state.placer.reservations.rows_closed_to(gang, starts_now=False))
        closed |= {
            *state.placer.reservations.spares.closed(gang),
            *refusing_rows(state.snapshot, gang),
        }
        if shape.needs_devices:  # of which any that is released counts as one of the right kind
            everywhere = np.ones(len(state.snapshot.nodes), dtype=np.bool_)
            on_empty = state.statement.devices.replicas_on_empty_nodes(shape, everywhere, 1)
            closed |= set(np.flatnonzero(on_empty == 0).tolist())
        replicas = [0 if row in closed else n for row, n in enumerate(count.initial_replicas())]
        nodes: dict[int, FreedCapacity] = {}
        for row, awaited in self._awaited.items():
            left = state.statement.future_idle[:, row] - awaited.amounts
            nodes[row] = FreedCapacity(left.tolist(), -awaited.devices)
            replicas[row] = 0 if row in closed else count.replicas(row, nodes[row])
        found = {row: n for row, n in enumerate(replicas) if n}
        total, at = sum(found.values()), state.snapshot.now
        for end in ends:
            if total >= len(members):
                break
            row = state.snapshot.nodes.positions[end.member.node]
            if row not in nodes:
                nodes[row] = self._freed.future_idle_of(row)
            self._freed.release(end.member, nodes[row])
            if row in closed:
                continue
            fitting = count.replicas(row, nodes[row])
            if fitting > found.get(row, 0):
                total += fitting - found.get(row, 0)
                found[row], at = fitting, end.at
        if total < len(members):
            return None
        return at, _first(found, len(members))

    def _await(self, gang: Gang, members: Sequence[Member], rows: dict[int, int]) -> None:
        """Withhold from later gangs what the gang waits for: a number of its pods on each row."""
        vector = self._state.statement.request_vector(members[0].shape)
        devices = members[0].claimed_gpus
        for row, replicas in rows.items():
            awaited = self._awaited.setdefault(row, _Awaited(np.zeros(len(vector))))
            awaited.amounts += vector * replicas
            awaited.devices += devices * replicas
        before = self._costs.get(gang.queue, 0.0)
        self._costs[gang.queue] = before + self._state.request_cost(gang)

    def _reserve_drained(
        self, gang: Gang, members: Sequence[Member], rows: Iterable[int], at: float
    ) -> None:
        """Reserve the nodes that drain for the gang and on which other gangs could use capacity."""
        reserved = [row for row in rows if self._has_idle(members[0].shape, row)]
        if reserved:
            self._reserve(gang, reserved, max(at, self._state.snapshot.now))

    def _reserve(self, gang: Gang, rows: Iterable[int], at: float) -> None:
        cost = self._state.request_cost(gang)
        reservation = Reservation(gang, tuple(sorted(rows)), math.ceil(at), cost)
        self._state.placer.reservations.active.append(reservation)

    def _has_idle(self, shape: Shape, row: int) -> bool:
        """Whether pods of other gangs could take capacity on the node that the gang needs."""
        statement = self._state.statement
        gpu = self._state.snapshot.resources.positions.get(GPU_RESOURCE)
        if gpu is None or shape.needs_devices:
            return bool(shape.needs_devices)
        return bool(statement.free(Capacity.FUTURE_IDLE)[gpu, row] >= 1.0)


def _first(found: dict[int, int], needed: int) -> dict[int, int]:
    """The first ``needed`` replicas."""
    taken: dict[int, int] = {}
    for row, replicas in found.items():
        if needed <= 0:
            break
        taken[row] = min(replicas, needed)
        needed -= replicas
    return taken
