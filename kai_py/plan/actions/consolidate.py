"""Consolidate: move running gangs together so that a pending gang fits; nobody loses anything.

    for each pending preemptible gang that found no room, in the order of the gangs:
        victims: running preemptible gangs of any queue, the cheapest node to free first
        take the fewest that make the whole gang fit; every one of them must find room elsewhere,
            if need be where one further pod moves away

A move is a restart. The price of a node is the number of pods that must leave it before one more
pod of the gang fits. What is free in sum must suffice, for moving frees nothing: without that there
is no search. Spreading pods on purpose and packing them together exclude each other, so nothing is
moved where GPU pods are spread.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.placement.fit import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.action import VictimStrategy, find_victims
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats

MAX_HELPERS = 8
"""Pods that are asked to move so that another one can."""

FRACTION_TOLERANCE = 1e-6
"""Sums of parts of GPUs are off by less than this."""


def consolidate(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending; ``pool``: of the moment."""
    if state.placer.shapes.gpu_strategy is FillStrategy.SPREAD:
        return
    waiting = list(gangs)
    if not _could_help_any(state, waiting):
        return
    pool = pool or VictimPool(state)
    plea = partial(_start_search, state, pool)
    find_victims(state, waiting, VictimStrategy(Action.CONSOLIDATE, pool, plea, backs_off=True))


def _could_help_any(state: CycleState, gangs: Iterable[Gang]) -> bool:
    """Whether what is free in sum is enough for any gang: without that there are no turns."""
    asks = (state.next_request(gang) for gang in gangs if gang.preemptible)
    kinds = {tuple(member.shape.number for member in ask.members): ask for ask in asks if ask}
    free = _total_future_idle(state)
    return any(_is_enough(state, free, ask) for ask in kinds.values())


def _start_search(
    state: CycleState, pool: VictimPool, gang: Gang, request: PlacementRequest
) -> tuple[VictimSearch, Iterable[VictimUnit]] | None:
    if not gang.preemptible or not _is_enough(state, _total_future_idle(state), request):
        return None
    reason = partial(_eviction_reason, gang)
    search = VictimSearch(
        state,
        gang,
        request,
        Action.CONSOLIDATE,
        reason,
        _first_not_relocated,
        state.max_relocated_pods,
        partial(_helpers, state, pool),
    )
    return search, _candidate_units(state, pool, request)


def _helpers(state: CycleState, pool: VictimPool, rejected: VictimUnit) -> Iterator[VictimUnit]:
    """A few single pods on partly free nodes that have room for a refused one once they left."""
    if len(rejected.members) > 1:
        return iter(())
    moving, nodes = rejected.members[0], state.snapshot.nodes
    wanted = _min_request(state, moving)
    partly_free = (state.statement.future_idle > 0)[wanted > 0].all(axis=0)
    open_rows = partly_free & state.placer.shapes.fits.static_fits.of(moving.shape, nodes).mask

    def helps(unit: VictimUnit) -> bool:
        row = nodes.positions.get(unit.members[0].node)
        if len(unit.members) > 1 or row is None or not open_rows[row]:
            return False
        free = state.statement.future_idle[:, row]
        return bool((free + _min_request(state, unit.members[0]) >= wanted).all())

    units = (unit for queue in pool.queues() for unit in pool.units(queue))
    return islice(
        (replace(unit, leaves_below_min=()) for unit in units if helps(unit)), MAX_HELPERS
    )


def _total_future_idle(state: CycleState) -> Floats:
    """(resources,) the room that is free on all nodes together."""
    free: Floats = np.maximum(state.statement.future_idle, 0.0).sum(axis=1)
    card = state.snapshot.resources.positions.get(GPU_RESOURCE)
    if card is not None:
        _, parts = state.statement.shared_gpus.all_free_fractions(Capacity.FUTURE_IDLE)
        free[card] += np.maximum(parts, 0.0).sum()
    return free


def _is_enough(state: CycleState, free: Floats, request: PlacementRequest) -> bool:
    """Whether as much as the ask is ``free`` (resources,)."""
    asked = sum((_min_request(state, member) for member in request.members), np.zeros(len(free)))
    return bool((free + FRACTION_TOLERANCE >= asked).all())


def _min_request(state: CycleState, member: Member) -> Floats:
    """(resources,) the least that a pod takes; a part of a GPU counts as its portion.

    What some nodes serve by claim may take nothing of a resource.
    """
    resources, share = state.snapshot.resources, member.shape.gpu_share
    reported = member.shape.reported_requests
    known = {n: a for n, a in reported.items() if n in resources.positions}
    taken = resources.vector(known)
    card = resources.positions.get(GPU_RESOURCE)
    if share is not None and card is not None:
        taken[card] += share.fraction * share.devices
    return taken


def _candidate_units(
    state: CycleState, pool: VictimPool, request: PlacementRequest
) -> Iterator[VictimUnit]:
    """Every unit once, by the price of the cheapest node it is on.

    Whoever leaves comes back, so no unit empties a leaf for those that stay.
    """
    hardest = by_shape(request.members)[0][0]
    mask = state.placer.shapes.fits.static_fits.of(hardest.shape, state.snapshot.nodes).mask
    on_row: dict[int, list[VictimUnit]] = {}
    for queue in pool.queues():
        for unit in pool.units(queue):
            for row in _rows_of(state, unit):
                if mask[row]:
                    on_row.setdefault(row, []).append(unit)
    for units in on_row.values():
        units.sort(key=_victim_order)
    price = {row: _pods_to_evict(state, hardest, row, units) for row, units in on_row.items()}
    offered: set[int] = set()
    for row in sorted(on_row, key=lambda row: (price[row], _victim_order(on_row[row][0]), row)):
        for unit in on_row[row]:
            if id(unit) not in offered:
                offered.add(id(unit))
                yield replace(unit, leaves_below_min=())


def _victim_order(unit: VictimUnit) -> tuple[int, bool, float]:
    """Low priority first, surplus before cores, then the youngest."""
    return unit.gang.priority, not unit.is_elastic, -unit.gang.created


def _rows_of(state: CycleState, unit: VictimUnit) -> Iterable[int]:
    positions = state.snapshot.nodes.positions
    rows = (positions.get(member.node) for member in unit.members)
    return dict.fromkeys(row for row in rows if row is not None)


def _pods_to_evict(
    state: CycleState, member: Member, row: int, units: Sequence[VictimUnit]
) -> float:
    """Pods that must leave before one more pod like ``member`` fits on the node."""
    node, statement = state.snapshot.nodes.names[row], state.statement
    card = state.snapshot.resources.positions.get(GPU_RESOURCE)
    lacking = _missing_for_one(_min_request(state, member), statement.future_idle[:, row])
    if card is not None and state.snapshot.gpu_sharing.rows.size:
        lacking[card] -= statement.shared_gpus.free_fractions(row, Capacity.FUTURE_IDLE).sum()
    devices = member.charge.get(GPU, 0.0) if member.shape.needs_devices else 0.0
    pods = 0
    for unit in units:
        if (lacking <= FRACTION_TOLERANCE).all() and devices <= 0:
            return pods
        pods += len(unit.members)
        for leaving in unit.members:
            if leaving.node == node:
                lacking = lacking - _min_request(state, leaving)
                devices -= leaving.charge.get(GPU, 0.0) if leaving.claims else 0.0
    return pods if (lacking <= FRACTION_TOLERANCE).all() and devices <= 0 else float("inf")


def _missing_for_one(min_request: Floats, free: Floats) -> Floats:
    """(resources,) what is missing for one pod more than fit in what is free already."""
    asked = min_request > 0
    fitting = np.floor((free[asked] + FRACTION_TOLERANCE) / min_request[asked]).min(initial=np.inf)
    lacking: Floats = (
        min_request * (max(fitting, 0.0) + 1.0) - free if np.isfinite(fitting) else -free
    )
    return lacking


def _first_not_relocated(lost: Sequence[VictimUnit]) -> VictimUnit | None:
    """Nobody may be lost."""
    return lost[0] if lost else None


def _eviction_reason(preemptor: Gang, unit: VictimUnit) -> str:
    owner, queue = preemptor.owner, preemptor.queue
    return (
        f"moved to make room for workload {owner.namespace}/{owner.name} in queue {queue}: "
        f"there is room for both it and {unit.gang.owner.name}"
    )
