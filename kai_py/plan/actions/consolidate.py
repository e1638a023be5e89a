"""Consolidate: relocate running gangs so that a pending gang fits; no pod is lost.

    for each pending preemptible gang that was not placed, in the order of the gangs:
        candidates: running preemptible gangs of any queue, the node that is cheapest to free first
        victims: the fewest candidates that make the request fit; every one of them must fit
                 elsewhere, if need be where one further pod is relocated too

Pods that started within ``eviction.settlingTime`` stay where they are.

A relocation is a restart. The cost of a node is the number of pods to evict before one more pod of
the gang fits there. Relocating frees nothing in sum, so without enough idle resources in sum there
is no search. Where GPU pods are spread on purpose nothing is relocated: packing would undo it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from msgspec import structs

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.placement.fit import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.action import find_victims
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats

MAX_HELPERS = 8
"""Pods that may be relocated for one refused victim."""

FRACTION_TOLERANCE = 1e-6
"""Sums of parts of GPUs are off by less than this."""


def consolidate(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending.

    ``pool``: the candidates, where they were collected already.
    """
    if state.placer.shapes.gpu_strategy is FillStrategy.SPREAD:
        return
    waiting = list(gangs)
    if _could_help_any(state, waiting):
        find_victims(state, waiting, pool or VictimPool(state), Consolidation)


def _could_help_any(state: CycleState, gangs: Iterable[Gang]) -> bool:
    """Whether the sum of what is idle suffices for any of the gangs."""
    requests = (state.next_request(gang) for gang in gangs if gang.preemptible)
    kinds = {tuple(m.shape.number for m in each.members): each for each in requests if each}
    idle = _total_future_idle(state)
    return any(_is_enough(state, idle, request) for request in kinds.values())


class Consolidation(VictimStrategy):
    """Victims of any queue, all of which must be relocated."""

    action = Action.CONSOLIDATE
    backs_off = True

    @property
    def max_pods(self) -> int:
        """As configured."""
        return self.state.max_relocated_pods

    def candidates(self) -> Iterator[VictimUnit] | None:
        """Every unit once, by the cost of the cheapest of its nodes; None where it can't help."""
        idle = _total_future_idle(self.state)
        if not self.gang.preemptible or not _is_enough(self.state, idle, self.request):
            return None
        return _by_node_cost(self.state, self.pool, self.request)

    def may_evict(self, units: Sequence[VictimUnit]) -> VictimUnit | None:
        """None may be lost."""
        return units[0] if units else None

    def reason(self, unit: VictimUnit) -> str:
        """The workload that gets the capacity."""
        owner, queue = self.gang.owner, self.gang.queue
        return (
            f"relocated to free capacity for workload {owner.namespace}/{owner.name} in queue "
            f"{queue}: both it and {unit.gang.owner.name} fit"
        )

    def helpers(self, rejected: VictimUnit) -> Iterator[VictimUnit]:
        """A few single pods on partly idle nodes that ``rejected`` would fit on without them."""
        if len(rejected.members) > 1:
            return iter(())
        state, moving, nodes = self.state, rejected.members[0], self.state.snapshot.nodes
        needed = _min_request(state, moving)
        partly_idle = (state.statement.future_idle > 0)[needed > 0].all(axis=0)
        mask = state.placer.shapes.fits.static_fits.of(moving.shape, nodes).mask
        possible = partly_idle & mask

        def helps(unit: VictimUnit) -> bool:
            row = nodes.positions.get(unit.members[0].node)
            if len(unit.members) > 1 or row is None or not possible[row]:
                return False
            idle = state.statement.future_idle[:, row]
            return bool((idle + _min_request(state, unit.members[0]) >= needed).all())

        units = (unit for queue in self.pool.queues() for unit in self.pool.units(queue))
        settled = filter(state.eviction_limits.has_settled, filter(helps, units))
        helping = (structs.replace(unit, leaves_below_min=()) for unit in settled)
        return islice(helping, MAX_HELPERS)


def _total_future_idle(state: CycleState) -> Floats:
    """(resources,) idle on all nodes together once terminating pods have gone."""
    free: Floats = np.maximum(state.statement.future_idle, 0.0).sum(axis=1)
    gpu = state.snapshot.resources.positions.get(GPU_RESOURCE)
    if gpu is not None:
        _, parts = state.statement.gpu_parts.shared.all_free_fractions(Capacity.FUTURE_IDLE)
        free[gpu] += np.maximum(parts, 0.0).sum()
    return free


def _is_enough(state: CycleState, free: Floats, request: PlacementRequest) -> bool:
    """Whether ``free`` (resources,) is as much as the request."""
    needed = sum((_min_request(state, member) for member in request.members), np.zeros(len(free)))
    return bool((free + FRACTION_TOLERANCE >= needed).all())


def _min_request(state: CycleState, member: Member) -> Floats:
    """(resources,) the least that a pod takes; a shared GPU counts as its fraction.

    Resources that some nodes serve by claim count nothing.
    """
    resources, share = state.snapshot.resources, member.shape.gpu_share
    reported = member.shape.reported_requests
    known = {n: a for n, a in reported.items() if n in resources.positions}
    taken = resources.vector(known)
    gpu = resources.positions.get(GPU_RESOURCE)
    if share is not None and gpu is not None and member.shape.extended.share is None:
        taken[gpu] += share.fraction * share.devices
    return taken


def _by_node_cost(
    state: CycleState, pool: VictimPool, request: PlacementRequest
) -> Iterator[VictimUnit]:
    """Every unit once, by the cost of the cheapest node it is on.

    All victims come back, so no unit brings a leaf below minMember for the pods that stay.
    """
    hardest = by_shape(request.members)[0][0]
    mask = state.placer.shapes.fits.static_fits.of(hardest.shape, state.snapshot.nodes).mask
    on_row: dict[int, list[VictimUnit]] = {}
    for queue in pool.queues():
        for unit in filter(state.eviction_limits.has_settled, pool.units(queue)):
            for row in _rows_of(state, unit):
                if mask[row]:
                    on_row.setdefault(row, []).append(unit)
    for units in on_row.values():
        units.sort(key=_victim_order)
    cost = {row: _pods_to_evict(state, hardest, row, units) for row, units in on_row.items()}
    offered: set[int] = set()
    for row in sorted(on_row, key=lambda row: (cost[row], _victim_order(on_row[row][0]), row)):
        for unit in on_row[row]:
            if id(unit) not in offered:
                offered.add(id(unit))
                yield structs.replace(unit, leaves_below_min=())


def _victim_order(unit: VictimUnit) -> tuple[int, bool, float]:
    """Low priority first, elastic before minMember sets, then the youngest."""
    return unit.gang.priority, not unit.is_elastic, -unit.gang.created


def _rows_of(state: CycleState, unit: VictimUnit) -> Iterable[int]:
    positions = state.snapshot.nodes.positions
    rows = (positions.get(member.node) for member in unit.members)
    return dict.fromkeys(row for row in rows if row is not None)


def _pods_to_evict(
    state: CycleState, member: Member, row: int, units: Sequence[VictimUnit]
) -> float:
    """Pods to evict before one more pod like ``member`` fits on the node.

    Those of their gangs on other nodes stay where they are.
    """
    node, statement = state.snapshot.nodes.names[row], state.statement
    gpu = state.snapshot.resources.positions.get(GPU_RESOURCE)
    lacking = _missing_for_one(_min_request(state, member), statement.future_idle[:, row])
    if gpu is not None and state.snapshot.gpu_sharing.rows.size:
        lacking[gpu] -= statement.gpu_parts.shared.free_fractions(row, Capacity.FUTURE_IDLE).sum()
    devices = member.charge.get(GPU, 0.0) if member.shape.needs_devices else 0.0
    pods = 0
    for victim in (each for unit in units for each in unit.members if each.node == node):
        if (lacking <= FRACTION_TOLERANCE).all() and devices <= 0:
            return pods
        pods += 1
        lacking = lacking - _min_request(state, victim)
        devices -= victim.charge.get(GPU, 0.0) if victim.claims else 0.0
    return pods if (lacking <= FRACTION_TOLERANCE).all() and devices <= 0 else float("inf")


def _missing_for_one(min_request: Floats, free: Floats) -> Floats:
    """(resources,) what is missing for one pod more than fit already."""
    requested = min_request > 0
    fitting = np.floor((free[requested] + FRACTION_TOLERANCE) / min_request[requested]).min(
        initial=np.inf
    )
    lacking: Floats = (
        min_request * (max(fitting, 0.0) + 1.0) - free if np.isfinite(fitting) else -free
    )
    return lacking
