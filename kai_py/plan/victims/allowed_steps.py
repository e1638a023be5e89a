"""Victims that fairness allows together: node by node, what one more replica needs.

The order of candidates ignores where victims run, so the victims on the node that it frees first
may all be of a queue that has little to give. Here a node is skipped as long as freeing it
would take more from a queue than this may lose (``ReclaimAllowance``). A *step* is what has to be
evicted on a node for one more replica: its candidates in their order, without those whose queue may
not lose them, and without those that turn out not to be needed. The step that is complete first, in
the order of candidates, is taken first, and what it takes is no longer allowed to others.

Greedy: O(units) to begin with, O(units of a node) for each node that is looked at again.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.shape_groups import by_shape
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.count import FreedCapacity, FreedResources, ShapeCount
from kai_py.plan.victims.replica_steps import units_by_row
from kai_py.plan.victims.units import VictimUnit, orphaned_units, pods_of, units_by_gang
from kai_py.policy.reclaim_rules import ReclaimAllowance


class _Step(NamedTuple):
    """``last``: the position of the last of its units among the candidates; ``row``: the node."""

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
        return [*orphaned_units(unit, peers), unit]

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
