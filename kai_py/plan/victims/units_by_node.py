"""Which nodes are cheapest to free for one more pod, by the candidates that run on them.

The cost of a node is the number of pods to evict before one more pod of a shape fits there, and
what these lose. The candidates of a node leave in a fixed order, so what they release is laid out
once, by node and position; the cost of all nodes is then computed at once, position by position:
O(pods), as a few array operations for each pod on the fullest node. After evictions only their
nodes are laid out again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from msgspec import Struct, structs

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.eviction_cost import EvictionCosts
from kai_py.plan.victims.relocate import RecreatedShapes, may_relocate
from kai_py.plan.victims.replica_steps import units_by_row
from kai_py.plan.victims.units import VictimUnit, is_evicted
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Floats, Ints

FRACTION_TOLERANCE = 1e-6
"""Sums of parts of GPUs are off by less than this."""


def min_request(state: CycleState, member: Member) -> Floats:
    """(resources,) the least that a pod takes; a shared GPU counts as its fraction.

    Resources that some nodes serve by claim are left out.
    """
    resources, share = state.snapshot.resources, member.shape.gpu_share
    reported = member.shape.reported_requests
    known = {n: a for n, a in reported.items() if n in resources.positions}
    taken = resources.vector(known)
    gpu = resources.positions.get(GPU_RESOURCE)
    if share is not None and gpu is not None and member.shape.extended.share is None:
        taken[gpu] += share.fraction * share.devices
    return taken


class _Released(Struct, frozen=True, eq=False):
    """What the pods at one position release, on the first n nodes: those that had as many pods.

    ``resources``: (resources, n); ``gpus``: (n,) of claims; ``lost``: (n,) the work that is lost.
    """

    resources: Floats
    gpus: Floats
    lost: Floats


class UnitsByNode:
    """The candidates of each node in the order in which they would leave it.

    Low priority first, elastic pods before minMember sets, what loses least, then the youngest. All
    of them come back, so no unit brings a leaf below minMember for the pods that stay.
    """

    def __init__(
        self,
        state: CycleState,
        units: Iterable[VictimUnit],
        costs: EvictionCosts,
        changes: int = 0,
    ) -> None:
        """Lay out those of ``units`` that may be relocated.

        What they release does not change within a cycle. ``changes``: those of their pool, in all.
        """
        self.recreated = RecreatedShapes()
        self._state, self._costs, self._changes = state, costs, changes
        self._evicted = list(state.statement.evicted)
        self._requests: dict[int, Floats] = {}
        limits = state.eviction_limits
        with limits.recording() as protected_by:
            movable = [unit for unit in units if may_relocate(state, unit)]
        self._protected_by = dict(protected_by)
        ranked = sorted([(_rank(unit, costs), unit) for unit in movable], key=lambda each: each[0])
        places = {rank: place for place, rank in enumerate(dict.fromkeys(r for r, _ in ranked))}
        self._place: dict[VictimUnit, int] = {
            structs.replace(unit, leaves_below_min=(), is_partial=False): places[rank]
            for rank, unit in ranked
        }
        by_row = units_by_row(state, self._place)
        pods = {row: self._pods_on(row, on_node) for row, on_node in by_row.items()}
        rows = sorted(pods, key=lambda row: -len(pods[row]))
        self._rows: Ints = np.array(rows, dtype=np.int64)
        self._position = {row: position for position, row in enumerate(rows)}
        self._units = [by_row[row] for row in rows]
        self._first: Ints = np.array([self._place[each[0]] for each in self._units], dtype=np.int64)
        self._counts: Ints = np.array([len(pods[row]) for row in rows], dtype=np.int64)
        most = len(pods[rows[0]]) if rows else 0
        self._released = [
            self._released_by([pods[row][i] for row in rows if len(pods[row]) > i])
            for i in range(most)
        ]

    def remove_evicted(self, changes: int) -> bool:
        """Remove the units of pods that were evicted since; False if all must be laid out again.

        That is so if units have changed, or evictions may protect others.
        """
        limits, evicted = self._state.eviction_limits, self._state.statement.evicted
        added = [evicted[uid] for uid in islice(evicted, len(self._evicted), None)]
        is_later = self._evicted == list(islice(evicted, len(self._evicted)))
        if changes != self._changes or not is_later or any(map(limits.counts, added)):
            return False
        limits.protected_by.update(self._protected_by)
        self._evicted.extend(each.member.pod.uid for each in added)
        self._remove([each.member for each in added])
        return True

    def in_order(self, member: Member, mask: Bools) -> Iterator[VictimUnit]:
        """Every unit once, by the cost for ``member`` of the cheapest node in ``mask`` it is on.

        ``mask``: (nodes,).
        """
        chosen = np.flatnonzero(mask[self._rows] & (self._counts > 0))
        pods, lost = self._costs_of(member, chosen)
        order = np.lexsort((self._rows[chosen], self._first[chosen], lost, pods))
        offered = set[VictimUnit]()
        for position in chosen[order].tolist():
            for unit in self._units[position]:
                if unit not in offered:
                    offered.add(unit)
                    yield unit

    def _costs_of(self, member: Member, chosen: Ints) -> tuple[Floats, Floats]:
        """(chosen,) pods to evict, infinite where all are too few, and what they lose."""
        pods, lost = np.full(len(chosen), np.inf), np.zeros(len(chosen))
        lacking = self._lacking(member, self._rows[chosen])
        devices = np.full(len(chosen), member.charged_gpus if member.shape.needs_devices else 0.0)
        waiting = np.arange(len(chosen))
        for position in range(len(self._released) + 1):
            enough = (lacking[:, waiting] <= FRACTION_TOLERANCE).all(axis=0)
            enough &= devices[waiting] <= 0
            pods[waiting[enough]] = position
            waiting = waiting[~enough & (self._counts[chosen[waiting]] > position)]
            if not len(waiting):
                break
            released, at = self._released[position], chosen[waiting]
            lacking[:, waiting] -= released.resources[:, at]
            devices[waiting] -= released.gpus[at]
            lost[waiting] += released.lost[at]
        lost[np.isinf(pods)] = 0.0
        return pods, lost

    def _lacking(self, member: Member, rows: Ints) -> Floats:
        """(resources, rows) what is missing on nodes for one pod more than fit already."""
        state, request = self._state, min_request(self._state, member)
        free, requested = state.statement.future_idle[:, rows], request > 0
        lacking = np.zeros_like(free)
        if requested.any():
            least = request[requested, None]
            fitting = np.floor((free[requested] + FRACTION_TOLERANCE) / least).min(axis=0)
            lacking[requested] = least * (np.maximum(fitting, 0.0) + 1.0) - free[requested]
        gpu = state.snapshot.resources.positions.get(GPU_RESOURCE)
        if gpu is not None and state.snapshot.gpu_sharing.rows.size:
            shared = state.statement.gpu_parts.shared
            of_parts, parts = shared.all_free_fractions(Capacity.FUTURE_IDLE)
            free_parts = np.bincount(of_parts, parts, minlength=len(state.snapshot.nodes))
            lacking[gpu] -= free_parts[rows]
        return lacking

    def _released_by(self, pods: Sequence["_Pod"]) -> _Released:
        """What pods on different nodes release, each in a column of its own."""
        for member, _ in pods:
            if member.shape.number not in self._requests:
                self._requests[member.shape.number] = min_request(self._state, member)
        requests, lost_work = self._requests, self._costs.lost_work
        return _Released(
            np.array([requests[member.shape.number] for member, _ in pods]).T,
            np.array([member.claimed_gpus for member, _ in pods], dtype=np.float64),
            np.array([lost_work(unit) / len(unit.members) for _, unit in pods]),
        )

    def _remove(self, evicted: Iterable[Member]) -> None:
        """Remove the units of these pods, which this cycle has evicted."""
        rows = set[int]()
        positions = self._state.snapshot.nodes.positions
        for member in evicted:
            row = positions.get(member.node)
            for unit in self._units[self._position[row]] if row in self._position else ():
                if is_evicted(unit, self._state.statement.evicted):
                    rows.update(positions[each.node] for each in unit.members)
                    self._place.pop(unit, None)
        for row in sorted(rows):
            self._lay_out_again(row, self._position[row])

    def _lay_out_again(self, row: int, position: int) -> None:
        """Lay out what is left of the units on a node."""
        units = self._units[position] = [u for u in self._units[position] if u in self._place]
        pods = self._pods_on(row, units)
        self._counts[position] = len(pods)
        if units:
            self._first[position] = self._place[units[0]]
        for depth, pod in enumerate(pods):
            released, whole = self._released_by([pod]), self._released[depth]
            whole.resources[:, position] = released.resources[:, 0]
            whole.gpus[position], whole.lost[position] = released.gpus[0], released.lost[0]

    def _pods_on(self, row: int, units: Iterable[VictimUnit]) -> list["_Pod"]:
        """The pods of the units on the node ``row``, in order, each with its unit."""
        node = self._state.snapshot.nodes.names[row]
        return [(pod, unit) for unit in units for pod in unit.members if pod.node == node]


_Pod = tuple[Member, VictimUnit]


def _rank(unit: VictimUnit, costs: EvictionCosts) -> tuple[int, bool, float, float]:
    gang = unit.gang
    return gang.priority, not unit.is_elastic, costs.lost_work(unit), -gang.created
