"""In which order units are offered as victims: cheapest first, and room where it is needed.

Within a queue surplus goes before cores, low priority before high, the youngest first. Between
queues the one that holds most of what it may hold gives first, one unit at a time, so that queues
end level.

Room helps only where a whole pod fits into it. Units are therefore bundled per node: the first
units of the order that together make room for one more pod there. Bundles that cost the fewest pods
go first; what belongs to no bundle comes last, for it may still be needed for the queue's bounds.

O(units x pods per unit) in plain Python, with one sort.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kai_py.plan.cycle_state import CycleState
from kai_py.plan.place import by_shape
from kai_py.plan.victims import VictimUnit
from kai_py.snapshot.accounting import GPU, total
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Floats


def cheapest_first(units: Sequence[VictimUnit]) -> list[VictimUnit]:
    """The order within one queue."""
    return sorted(units, key=lambda u: (u.core, u.gang.priority, -u.gang.created, u.gang.key))


def most_saturated_first(state: CycleState, units: Sequence[VictimUnit]) -> list[VictimUnit]:
    """The order between queues: ``units`` are ordered within each queue already."""
    standing = state.quota.standing
    left = {q: standing.allocated[:, q].copy() for q in range(len(standing.queues))}
    bound = np.where(np.isinf(standing.allocatable), standing.total[:, None], standing.allocatable)
    keys: list[float] = []
    for unit in units:
        queue = state.quota.queue_of(unit.gang)
        if queue is None:
            keys.append(np.inf)
            continue
        cost = cost_of(state, unit)
        held, may_hold, counts = left[queue], bound[:, queue], cost > 0
        ratio = np.divide(held, may_hold, out=held * 1e3, where=may_hold > 0)
        keys.append(float(ratio[counts].max(initial=0.0)))
        held -= cost
    order = sorted(range(len(units)), key=lambda i: (-keys[i], i))
    return [units[i] for i in order]


def cost_of(state: CycleState, unit: VictimUnit) -> Floats:
    """(quota resources,) what a unit gives back to its queue."""
    return state.quota.cost(total(member.charge for member in unit.members))


def bundled_by_node(
    state: CycleState, asked: Sequence[Member], units: Sequence[VictimUnit]
) -> list[VictimUnit]:
    """``units`` reordered so that prefixes make room for whole pods of the hardest shape."""
    hardest = by_shape(asked)[0][0]
    need = _Need.of(state, hardest)
    touching: dict[int, list[int]] = {}
    for position, unit in enumerate(units):
        for node in dict.fromkeys(member.node for member in unit.members):
            row = state.snapshot.nodes.positions.get(node)
            if row is not None and need.mask[row]:
                touching.setdefault(row, []).append(position)
    bundles = [
        bundle
        for row, positions in sorted(touching.items())
        for bundle in _bundles(state, need, row, [(p, units[p]) for p in positions])
    ]
    bundles.sort(key=lambda b: (sum(len(units[p].members) for p in b), b[-1], b))
    flat = [position for bundle in bundles for position in bundle]
    order = dict.fromkeys((*flat, *range(len(units))))
    return [units[position] for position in order]


@dataclass(frozen=True, slots=True)
class _Need:
    """What one more pod needs of a node; devices count as GPUs, wherever they come from."""

    request: Floats
    mirrored: Bools
    """(resources,) what counts only where a device plugin reports it."""
    gpus: float
    mask: Bools

    @classmethod
    def of(cls, state: CycleState, member: Member) -> "_Need":
        static = state.placer.statics.of(member.shape, state.snapshot.nodes)
        claims = member.charge.get(GPU, 0.0) if member.shape.needs_devices else 0.0
        names = state.snapshot.resources.names
        mirrored = np.array([name in member.shape.mirrored for name in names], dtype=np.bool_)
        return cls(state.statement.vector(member.shape), mirrored, claims, static.mask)

    def on(self, allocatable: Floats) -> Floats:
        """(resources,) what one pod takes of a node with ``allocatable``."""
        return np.where(self.mirrored & (allocatable <= 0), 0.0, self.request)


def _bundles(
    state: CycleState, need: _Need, row: int, offered: Sequence[tuple[int, VictimUnit]]
) -> list[list[int]]:
    """Groups of units, in order, each of which makes room for one more pod on the node."""
    node = state.snapshot.nodes.names[row]
    free = state.statement.later[:, row].copy()
    request = need.on(state.snapshot.nodes.allocatable[:, row])
    gpus = 0.0
    bundles: list[list[int]] = []
    current: list[int] = []
    for position, unit in offered:
        for member in unit.members:
            if member.node == node:
                free += state.statement.vector(member.shape)
                gpus += member.charge.get(GPU, 0.0) if member.claims else 0.0
        current.append(position)
        if bool((free >= request)[request > 0].all()) and gpus >= need.gpus:
            bundles.append(current)
            current = []
            free -= request
            gpus -= need.gpus
    return bundles
