"""The configured placement strategy in a cycle: its score, and what it has seen of the nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kai_py.plan.room import Room
from kai_py.plan.scored import ScoredNodes
from kai_py.plan.statement import Statement
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.rooms import Score
from kai_py.policy.score.strategies import (
    PlacementStrategy,
    frequent_shapes,
    score_of,
    target_workload,
)
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Scoring:
    """Scored nodes of one statement, made when they are asked for."""

    strategy: PlacementStrategy
    score: Score
    kinds: Ints | None = None
    """(nodes,) all that the score asks of a node beside its room; None: more than that."""
    _made: dict[Room, ScoredNodes] = field(default_factory=dict)

    @classmethod
    def of(cls, strategy: PlacementStrategy, snapshot: Snapshot, statics: StaticFits) -> "Scoring":
        """For the pods of a snapshot: those that run and wait are taken for those to come."""
        return cls.of_shapes(strategy, frequent_shapes(snapshot), snapshot, statics)

    @classmethod
    def of_shapes(
        cls,
        strategy: PlacementStrategy,
        counted: Sequence[tuple[Shape, int]],
        snapshot: Snapshot,
        statics: StaticFits,
    ) -> "Scoring":
        """For pods to come of these shapes, so many of each."""
        workload = target_workload(counted, snapshot, statics)
        by_lot = strategy is PlacementStrategy.RANDOM
        return cls(strategy, score_of(strategy, workload), None if by_lot else workload.kind)

    def nodes(self, statement: Statement, room: Room) -> ScoredNodes:
        """The nodes as the statement has them; always to be asked with the same statement."""
        made = self._made.get(room)
        if made is None:
            classes = self.strategy is PlacementStrategy.CLUSTERING
            made = ScoredNodes(statement, self.score, room, sees_classes=classes, kinds=self.kinds)
            self._made[room] = made
        return made


def shares_gpus(snapshot: Snapshot) -> bool:
    """Whether a pod has a part of a GPU, or waits for one."""
    waiting = (snapshot.gangs[key] for key in snapshot.pending)
    return snapshot.gpu_sharing.rows.size > 0 or any(
        member.shape.gpu_share is not None for gang in waiting for member in gang.pending
    )
