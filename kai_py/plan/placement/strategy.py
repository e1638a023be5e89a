"""The placement strategy of a cycle: its score, and what it has seen of the nodes.

The target workload is made when the first pod is scored: many cycles score none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from kai_py.plan.placement.fit import lasting_preference
from kai_py.plan.placement.score_nodes import ScoredFit, ScoredNodes
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.strategies import (
    PlacementStrategy,
    frequent_shapes,
    score_of,
    target_workload,
)
from kai_py.policy.score.workload import TargetWorkload
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Scoring:
    """Scored nodes of one statement, made when they are asked for.

    ``by_default``: nobody named the strategy, so that it decides only where it packs better:
    gangs with whole GPUs keep to few nodes, and pods without devices to nodes without them.
    """

    strategy: PlacementStrategy
    workload: Callable[[], TargetWorkload]
    by_default: bool = False
    _made: dict[Room, ScoredNodes] = field(default_factory=dict)
    _fits: dict[tuple[int, Room], ScoredFit] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        strategy: PlacementStrategy,
        snapshot: Snapshot,
        statics: StaticFits,
        *,
        by_default: bool = False,
    ) -> "Scoring":
        """For the pods of a snapshot: those that run and wait are taken for those to come."""

        def workload() -> TargetWorkload:
            return target_workload(frequent_shapes(snapshot), snapshot, statics)

        return cls(strategy, workload, by_default)

    @classmethod
    def of_shapes(
        cls,
        strategy: PlacementStrategy,
        counted: Sequence[tuple[Shape, int]],
        snapshot: Snapshot,
        statics: StaticFits,
    ) -> "Scoring":
        """For pods to come of these shapes, so many of each."""
        return cls(strategy, partial(target_workload, counted, snapshot, statics))

    @property
    def foresees(self) -> bool:
        """Whether room alone tells the score of the next pods of a shape."""
        return self.strategy not in (PlacementStrategy.RANDOM, PlacementStrategy.CLUSTERING)

    def nodes(self, statement: Statement, room: Room) -> ScoredNodes:
        """The nodes as the statement has them; always to be asked with the same statement."""
        made = self._made.get(room)
        if made is None:
            by_lot = self.strategy is PlacementStrategy.RANDOM
            made = self._made[room] = ScoredNodes(
                statement,
                score_of(self.strategy, self._target),
                room,
                sees_classes=self.strategy is PlacementStrategy.CLUSTERING,
                kinds=None if by_lot else self._target.kind,
            )
        return made

    def fit(self, statement: Statement, shape: Shape, room: Room, statics: StaticFits) -> ScoredFit:
        """Where single pods of a shape go that room and score decide about."""
        known = self._fits.get((shape.number, room))
        if known is None:
            static = statics.of(shape, statement.snapshot.nodes)
            preference = lasting_preference(statement, shape, static)
            known = ScoredFit(self.nodes(statement, room), shape, static.mask, preference)
            self._fits[shape.number, room] = known
        return known

    @cached_property
    def _target(self) -> TargetWorkload:
        return self.workload()
