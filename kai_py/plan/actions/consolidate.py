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
from kai_py.api.gpu_share import CARD
from kai_py.plan.placement.fit import by_shape
from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Room
from kai_py.plan.victims.action import Seeking, seek_room
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.search import VictimSearch
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats

MOST_HELPERS = 8
"""Pods that are asked to move so that another one can."""

FRACTION_NOISE = 1e-6
"""Sums of parts of GPUs are off by less than this."""


def consolidate(state: CycleState, gangs: Iterable[Gang], pool: VictimPool | None = None) -> None:
    """Run the action for those of ``gangs`` that are still pending; ``pool``: of the moment."""
    if state.placer.shapes.gpu_strategy is FillStrategy.SPREAD:
        return
    waiting = list(gangs)
    if not _may_help_anybody(state, waiting):
        return
    pool = pool or VictimPool(state)
    plea = partial(_plea, state, pool)
    seek_room(state, waiting, Seeking(Action.CONSOLIDATE, pool, plea, rests=True))


def _may_help_anybody(state: CycleState, gangs: Iterable[Gang]) -> bool:
    """Whether what is free in sum is enough for any gang: without that there are no turns."""
    asks = (state.ask(gang) for gang in gangs if gang.preemptible)
    kinds = {tuple(member.shape.number for member in ask.members): ask for ask in asks if ask}
    free = _free_in_sum(state)
    return any(_suffices(state, free, ask) for ask in kinds.values())


def _plea(
    state: CycleState, pool: VictimPool, gang: Gang, ask: Ask
) -> tuple[VictimSearch, Iterable[VictimUnit]] | None:
    if not gang.preemptible or not _suffices(state, _free_in_sum(state), ask):
        return None
    reason = partial(_reason, gang)
    search = VictimSearch(
        state,
        gang,
        ask,
        Action.CONSOLIDATE,
        reason,
        _first_lost,
        state.most_moved,
        partial(_helpers, state, pool),
    )
    return search, _units(state, pool, ask)


def _helpers(state: CycleState, pool: VictimPool, refused: VictimUnit) -> Iterator[VictimUnit]:
    """A few single pods on partly free nodes that have room for a refused one once they left."""
    if len(refused.members) > 1:
        return iter(())
    moving, nodes = refused.members[0], state.snapshot.nodes
    wanted = _least(state, moving)
    partly_free = (state.statement.later > 0)[wanted > 0].all(axis=0)
    open_rows = partly_free & state.placer.shapes.fits.statics.of(moving.shape, nodes).mask

    def helps(unit: VictimUnit) -> bool:
        row = nodes.positions.get(unit.members[0].node)
        if len(unit.members) > 1 or row is None or not open_rows[row]:
            return False
        free = state.statement.later[:, row]
        return bool((free + _least(state, unit.members[0]) >= wanted).all())

    units = (unit for queue in pool.queues() for unit in pool.units(queue))
    return islice((replace(unit, empties=()) for unit in units if helps(unit)), MOST_HELPERS)


def _free_in_sum(state: CycleState) -> Floats:
    """(resources,) the room that is free on all nodes together."""
    free: Floats = np.maximum(state.statement.later, 0.0).sum(axis=1)
    card = state.snapshot.resources.positions.get(CARD)
    if card is not None:
        _, parts = state.statement.shared.all_parts(Room.LATER)
        free[card] += np.maximum(parts, 0.0).sum()
    return free


def _suffices(state: CycleState, free: Floats, ask: Ask) -> bool:
    """Whether as much as the ask is ``free`` (resources,)."""
    asked = sum((_least(state, member) for member in ask.members), np.zeros(len(free)))
    return bool((free + FRACTION_NOISE >= asked).all())


def _least(state: CycleState, member: Member) -> Floats:
    """(resources,) the least that a pod takes; a part of a GPU counts as its portion.

    What some nodes serve by claim may take nothing of a resource.
    """
    resources, share = state.snapshot.resources, member.shape.gpu_share
    reported = member.shape.reported_requests
    known = {n: a for n, a in reported.items() if n in resources.positions}
    taken = resources.vector(known)
    card = resources.positions.get(CARD)
    if share is not None and card is not None:
        taken[card] += share.portion * share.devices
    return taken


def _units(state: CycleState, pool: VictimPool, ask: Ask) -> Iterator[VictimUnit]:
    """Every unit once, by the price of the cheapest node it is on.

    Whoever leaves comes back, so no unit empties a leaf for those that stay.
    """
    hardest = by_shape(ask.members)[0][0]
    mask = state.placer.shapes.fits.statics.of(hardest.shape, state.snapshot.nodes).mask
    on_row: dict[int, list[VictimUnit]] = {}
    for queue in pool.queues():
        for unit in pool.units(queue):
            for row in _rows(state, unit):
                if mask[row]:
                    on_row.setdefault(row, []).append(unit)
    for units in on_row.values():
        units.sort(key=_rank)
    price = {row: _price(state, hardest, row, units) for row, units in on_row.items()}
    offered: set[int] = set()
    for row in sorted(on_row, key=lambda row: (price[row], _rank(on_row[row][0]), row)):
        for unit in on_row[row]:
            if id(unit) not in offered:
                offered.add(id(unit))
                yield replace(unit, empties=())


def _rank(unit: VictimUnit) -> tuple[int, bool, float]:
    """Low priority first, surplus before cores, then the youngest."""
    return unit.gang.priority, not unit.is_surplus, -unit.gang.created


def _rows(state: CycleState, unit: VictimUnit) -> Iterable[int]:
    positions = state.snapshot.nodes.positions
    rows = (positions.get(member.node) for member in unit.members)
    return dict.fromkeys(row for row in rows if row is not None)


def _price(state: CycleState, member: Member, row: int, units: Sequence[VictimUnit]) -> float:
    """Pods that must leave before one more pod like ``member`` fits on the node."""
    node, statement = state.snapshot.nodes.names[row], state.statement
    card = state.snapshot.resources.positions.get(CARD)
    lacking = _one_more(_least(state, member), statement.later[:, row])
    if card is not None and state.snapshot.gpu_sharing.rows.size:
        lacking[card] -= statement.shared.parts(row, Room.LATER).sum()
    devices = member.charge.get(GPU, 0.0) if member.shape.needs_devices else 0.0
    pods = 0
    for unit in units:
        if (lacking <= FRACTION_NOISE).all() and devices <= 0:
            return pods
        pods += len(unit.members)
        for leaving in unit.members:
            if leaving.node == node:
                lacking = lacking - _least(state, leaving)
                devices -= leaving.charge.get(GPU, 0.0) if leaving.claims else 0.0
    return pods if (lacking <= FRACTION_NOISE).all() and devices <= 0 else float("inf")


def _one_more(least: Floats, free: Floats) -> Floats:
    """(resources,) what is missing for one pod more than fit in what is free already."""
    asked = least > 0
    fitting = np.floor((free[asked] + FRACTION_NOISE) / least[asked]).min(initial=np.inf)
    lacking: Floats = least * (max(fitting, 0.0) + 1.0) - free if np.isfinite(fitting) else -free
    return lacking


def _first_lost(lost: Sequence[VictimUnit]) -> VictimUnit | None:
    """Nobody may be lost."""
    return lost[0] if lost else None


def _reason(winner: Gang, unit: VictimUnit) -> str:
    owner, queue = winner.owner, winner.queue
    return (
        f"moved to make room for workload {owner.namespace}/{owner.name} in queue {queue}: "
        f"there is room for both it and {unit.gang.owner.name}"
    )
