"""The steps of a node: which units to evict for one more replica, then for the next, and so on.

A replica is one more pod of the largest shape of the request. The steps of a node take elastic pods
first, then the units that release most of the scarcest resource; where lost work counts, those that
lose least for what they release.

Steps also find the victims that fairness allows together. The order of candidates ignores where
victims run, so the victims on the node that it frees first may all be of a queue that has little to
give. Here a node is skipped as long as freeing it would take more from a queue than this may lose
(``ReclaimAllowance``). A step is then what has to be evicted on a node for one more replica: its
candidates in their order, without those whose queue may not lose them, and without those that turn
out not to be needed. The step that is complete first, in the order of candidates, is taken first,
and what it takes is no longer allowed to others. Greedy: O(units) to begin with, O(units of a node)
for each node that is looked at again.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.count import ShapeCount
from kai_py.plan.victims.eviction_cost import EvictionCosts, ReplicaStep, StepsOfNode
from kai_py.plan.victims.freed_capacity import FreedCapacity, FreedNodes, FreedResources
from kai_py.plan.victims.units import VictimUnit, pods_of, units_by_gang, units_evicted_with
from kai_py.policy.reclaim_rules import ReclaimAllowance
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.topology import NO_DOMAIN


class ReplicaSteps:
    """By node, the steps: units to evict for one more replica, then for the next, and so on."""

    def __init__(
        self,
        state: CycleState,
        request: PlacementRequest,
        units: Sequence[VictimUnit],
        costs: EvictionCosts,
    ) -> None:
        """``units``: the candidates. Nothing is computed yet."""
        self._state, self._costs = state, costs
        self._units_by_row = units_by_row(state, units)
        self._steps: dict[int, StepsOfNode] = {}
        self._group = by_shape(request.members)[0]
        self._shape = ShapeCount(state, self._group)
        self._freed = FreedResources(state)
        self._initial_replicas = self._shape.initial_replicas()
        self._units_by_gang = units_by_gang(units)

    @property
    def rows(self) -> Collection[int]:
        """The rows of the nodes that have candidates."""
        return self._units_by_row.keys()

    @property
    def initial(self) -> int:
        """How many replicas fit on all nodes without any eviction."""
        return sum(self._initial_replicas)

    def initial_by(self, domains: Ints) -> list[int]:
        """By domain how many replicas fit without any eviction; ``domains``: (nodes,)."""
        named = domains != NO_DOMAIN
        replicas = np.array(self._initial_replicas)[named]
        return [int(each) for each in np.bincount(domains[named], replicas)]

    def without(self, units: Iterable[VictimUnit]) -> int:
        """How many replicas fit on all nodes once all of ``units`` have left. O(pods + nodes)."""
        nodes = FreedNodes(self._state)
        return self.initial + sum(
            self._shape.replicas(row, nodes.of(row)) - self._initial_replicas[row]
            for row in nodes.release(pods_of(units))
        )

    def of(self, row: int) -> Iterator[ReplicaStep]:
        """The steps of the node ``row``, one after the other; computed once."""
        if row not in self._steps:
            self._steps[row] = self._of_node(row, self._units_by_row[row])
        known, further = self._steps[row]
        for number in count():
            if number == len(known):
                step = next(further, None)
                if step is None:
                    return
                known.append(step)
            yield known[number]

    def _of_node(self, row: int, there: Sequence[VictimUnit]) -> StepsOfNode:
        """The steps that an equal request had before on the node as it is, if any, or new ones."""
        node, by_gang = self._freed.future_idle_of(row), self._units_by_gang
        if not self._shape.is_by_resources or any(len(by_gang[u.gang.key]) > 1 for u in there):
            return [], self._compute(row, node, there)
        key = row, self._group[0].shape.number, len(self._group), *node.free, *there
        steps = self._costs.steps_of_nodes.get(key)
        if steps is None:
            steps = self._costs.steps_of_nodes[key] = [], self._compute(row, node, there)
        return steps

    def _compute(
        self, row: int, node: FreedCapacity, there: Iterable[VictimUnit]
    ) -> Iterator[ReplicaStep]:
        fitting = self._shape.replicas(row, node)
        scarcest = self._shape.scarcest_resource(row, node.free)
        step: dict[VictimUnit, None] = {}
        ranked = [self._ranked(unit, row, scarcest) for unit in there]
        for _, pods, unit in sorted(ranked, key=itemgetter(0)):
            for member in pods:
                self._freed.release(member, node)
            if len(self._units_by_gang[unit.gang.key]) > 1:
                step |= dict.fromkeys(self.evicted_with(unit))
            step[unit] = None
            now = self._shape.replicas(row, node)
            if now > fitting:
                gained, fitting = now - fitting, now
                taken = self._needed(row, list(step), node, now)
                yield ReplicaStep(gained, taken, self._costs.of(taken))
                # Units that are not needed for this step are released for the next one.
                step = dict.fromkeys(unit for unit in step if unit not in taken)

    def _needed(
        self, row: int, step: list[VictimUnit], node: FreedCapacity, replicas: int
    ) -> list[VictimUnit]:
        """``step`` without units that ``replicas`` do not need, most lost work dropped first.

        ``node``: the node ``row`` once all of ``step`` are evicted.
        """
        if not self._costs.by_loss or _are_interchangeable(step):
            return step
        kept = list(step)
        for unit in sorted(step, key=self._costs.lost_work, reverse=True):
            if len(self._units_by_gang[unit.gang.key]) > 1:
                continue
            without = node.copy()
            for member in self._pods_on(unit, row):
                self._freed.release(member, without, -1.0)
            if self._shape.replicas(row, without) >= replicas:
                node = without
                kept.remove(unit)
        return kept

    def _ranked(
        self, unit: VictimUnit, row: int, scarcest: int | None
    ) -> tuple[tuple[bool, float], Sequence[Member], VictimUnit]:
        """The rank of the unit on the node, its pods there, and the unit.

        Elastic pods first, then what releases most of ``scarcest``; where lost work counts, what
        loses least for the amount that it releases.
        """
        pods = self._pods_on(unit, row)
        freed = self._freed_amount(pods, scarcest)
        if not self._costs.by_loss:
            return (not unit.is_elastic, -freed), pods, unit
        lost = self._costs.lost_work(unit) / freed if freed > 0 else math.inf
        return (not unit.is_elastic, lost), pods, unit

    def _pods_on(self, unit: VictimUnit, row: int) -> Sequence[Member]:
        if len(unit.members) == 1:
            return unit.members
        node = self._state.snapshot.nodes.names[row]
        return [member for member in unit.members if member.node == node]

    def _freed_amount(self, pods: Iterable[Member], resource: int | None) -> float:
        """How much of a resource these pods release; of GPUs if it is None."""
        if resource is None:
            return sum([member.charged_gpus for member in pods])
        return sum([self._freed.amount(member, resource) for member in pods])

    def evicted_with(self, unit: VictimUnit) -> list[VictimUnit]:
        """The other candidates that must be evicted with the unit."""
        return units_evicted_with(unit, self._units_by_gang[unit.gang.key])


def units_by_row(state: CycleState, units: Iterable[VictimUnit]) -> dict[int, list[VictimUnit]]:
    """The units by the rows of the nodes that they have pods on, in order."""
    positions = state.snapshot.nodes.positions
    by_node: dict[int, list[VictimUnit]] = {}
    for unit in units:
        nodes = {member.node: None for member in unit.members}
        for node in nodes:
            if node in positions:
                by_node.setdefault(positions[node], []).append(unit)
    return by_node


def _are_interchangeable(units: Sequence[VictimUnit]) -> bool:
    """Whether all units are single pods of one shape without claims, which release the same."""
    shape = units[0].members[0].shape
    alike = [len(unit.members) == 1 and unit.members[0].shape is shape for unit in units]
    return all(alike) and not shape.has_claims


class _Step(NamedTuple):
    """The next step of the node ``row``; steps compare by which is complete first.

    ``last``: the position of the last of its units among the candidates.
    """

    last: int
    row: int
    units: list[VictimUnit]


class AllowedSteps:
    """The units of one request's steps, taken one after the other from an allowance."""

    def __init__(
        self, state: CycleState, units: Sequence[VictimUnit], allowance: ReclaimAllowance
    ) -> None:
        """``units``: the candidates in their order, none of them partial."""
        self._state, self._allowance = state, allowance
        self._position = {unit: position for position, unit in enumerate(units)}
        self._by_row = units_by_row(state, units)
        self._by_gang = units_by_gang(units)
        self._freed = FreedResources(state)
        self._taken = set[VictimUnit]()

    def units(self, request: PlacementRequest) -> Iterator[VictimUnit]:
        """For each shape as many steps as its pods need; then all further ones."""
        groups = by_shape(request.members)
        counts = [ShapeCount(self._state, group) for group in groups]
        for group, shape in zip(groups, counts, strict=True):
            yield from self._steps(shape, len(group) - sum(shape.initial_replicas()))
        for shape in counts:
            yield from self._steps(shape, len(self._position))

    def _steps(self, shape: ShapeCount, count: int) -> Iterator[VictimUnit]:
        """The units of the next ``count`` steps of a shape, as far as there are any."""
        if count <= 0:
            return
        waiting = [step for row in self._by_row if (step := self._next(shape, row)) is not None]
        heapify(waiting)
        while waiting and count > 0:
            before = heappop(waiting)
            step = self._next(shape, before.row)
            if step is None:
                continue
            if step == before:
                for unit in step.units:
                    self._charge(unit, 1.0)
                    self._taken.add(unit)
                yield from step.units
                count -= 1
                step = self._next(shape, before.row)
            if step is not None:
                heappush(waiting, step)

    def _next(self, shape: ShapeCount, row: int) -> _Step | None:
        """The next step of the node ``row``; None if its queues may not lose enough for one."""
        node = self._freed.future_idle_of(row)
        self._release(row, node, [unit for unit in self._by_row[row] if unit in self._taken], 1.0)
        before, step = shape.replicas(row, node), list[VictimUnit]()
        gains = False
        for unit in self._by_row[row]:
            if unit in self._taken or unit in step:
                continue
            together = [each for each in self._evicted_with(unit) if each not in step]
            if self._take_all(together):
                self._release(row, node, together, 1.0)
                step += together
                gains = shape.replicas(row, node) > before
                if gains:
                    break
        for unit in step[-2::-1] if gains else ():
            if len(self._by_gang[unit.gang.key]) == 1:
                self._release(row, node, [unit], -1.0)
                if shape.replicas(row, node) > before:
                    self._charge(unit, -1.0)
                    step.remove(unit)
                else:
                    self._release(row, node, [unit], 1.0)
        for unit in step:
            self._charge(unit, -1.0)
        return _Step(max(map(self._position.__getitem__, step)), row, step) if gains else None

    def _evicted_with(self, unit: VictimUnit) -> list[VictimUnit]:
        """The unit, and before it those that would be below minMember without it."""
        peers = (each for each in self._by_gang[unit.gang.key] if each not in self._taken)
        return [*units_evicted_with(unit, peers), unit]

    def _take_all(self, units: Sequence[VictimUnit]) -> bool:
        """Take all of ``units`` from the allowance, or none; whether they were taken."""
        queues = self._state.quota.queues.positions
        for position, unit in enumerate(units):
            if not self._allowance.allows(queues[unit.gang.queue]):
                for taken in units[:position]:
                    self._charge(taken, -1.0)
                return False
            self._charge(unit, 1.0)
        return True

    def _charge(self, unit: VictimUnit, sign: float) -> None:
        quota = self._state.quota
        queue = quota.queues.positions[unit.gang.queue]
        self._allowance.take(queue, sign * quota.cost_of(unit.members))

    def _release(
        self, row: int, node: FreedCapacity, units: Iterable[VictimUnit], sign: float
    ) -> None:
        """Count the pods of ``units`` on the node ``row`` as gone (or, with -1, as back again)."""
        name = self._state.snapshot.nodes.names[row]
        for member in pods_of(units):
            if member.node == name:
                self._freed.release(member, node, sign)
