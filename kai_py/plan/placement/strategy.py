"""The placement strategy of a cycle: its score, and what it has seen of the nodes.

The target workload is made when the first pod is scored: many cycles score none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from kai_py.plan.placement.preferences import rank_nodes, static_preferences
from kai_py.plan.placement.score_nodes import ScoredFit, ScoredNodes
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.strategies import (
    ScoreStrategy,
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

    strategy: ScoreStrategy
    workload: Callable[[], TargetWorkload]
    by_default: bool = False
    _scored_nodes: dict[Capacity, ScoredNodes] = field(default_factory=dict)
    _fits: dict[tuple[int, Capacity], ScoredFit] = field(default_factory=dict)

    @classmethod
    def for_snapshot(
        cls,
        strategy: ScoreStrategy,
        snapshot: Snapshot,
        static_fits: StaticFits,
        *,
        by_default: bool = False,
    ) -> "Scoring":
        """For the pods of a snapshot: those that run and wait are taken for those to come."""

        def workload() -> TargetWorkload:
            return target_workload(frequent_shapes(snapshot), snapshot, static_fits)

        return cls(strategy, workload, by_default)

    @classmethod
    def for_shapes(
        cls,
        strategy: ScoreStrategy,
        counted: Sequence[tuple[Shape, int]],
        snapshot: Snapshot,
        static_fits: StaticFits,
    ) -> "Scoring":
        """For pods to come of these shapes, so many of each."""
        return cls(strategy, partial(target_workload, counted, snapshot, static_fits))

    @property
    def depends_on_capacity_only(self) -> bool:
        """Whether room alone tells the score of the next pods of a shape."""
        return self.strategy not in (ScoreStrategy.RANDOM, ScoreStrategy.CLUSTERING)

    def nodes(self, statement: Statement, capacity: Capacity) -> ScoredNodes:
        """The nodes as the statement has them; always to be asked with the same statement."""
        made = self._scored_nodes.get(capacity)
        if made is None:
            by_lot = self.strategy is ScoreStrategy.RANDOM
            made = self._scored_nodes[capacity] = ScoredNodes(
                statement,
                score_of(self.strategy, self._target_workload),
                capacity,
                uses_gpu_classes=self.strategy is ScoreStrategy.CLUSTERING,
                node_kinds=None if by_lot else self._target_workload.node_kind,
            )
        return made

    def fit(
        self, statement: Statement, shape: Shape, capacity: Capacity, static_fits: StaticFits
    ) -> ScoredFit:
        """Where single pods of a shape go that room and score decide about."""
        known = self._fits.get((shape.number, capacity))
        if known is None:
            static = static_fits.of(shape, statement.snapshot.nodes)
            ranks = rank_nodes(static_preferences(statement, shape, static), len(static.mask))
            known = ScoredFit(self.nodes(statement, capacity), shape, static.mask, ranks)
            self._fits[shape.number, capacity] = known
        return known

    @cached_property
    def _target_workload(self) -> TargetWorkload:
        return self.workload()
