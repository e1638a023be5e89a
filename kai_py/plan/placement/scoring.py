"""The scores of a cycle: those configured, and the nodes scored by them.

The target workload is computed when the first pod is scored, as many cycles score none.
"""

from collections.abc import Callable, Mapping
from functools import cached_property

from msgspec import Struct, field

from kai_py.plan.extensions import Extensions
from kai_py.plan.placement.preferences import rank_nodes, static_preferences
from kai_py.plan.placement.score_nodes import ScoredFit, ScoredNodes
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import StaticFits
from kai_py.policy.score.fragmentation import Stranding
from kai_py.policy.score.node_capacity import Score
from kai_py.policy.score.registry import OnScoreFailure, WeightedScore, combined_score
from kai_py.policy.score.workload import TargetWorkload, frequent_shapes, target_workload
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot


class Scoring(Struct, frozen=True, dict=True):
    """Scored nodes of one statement, computed when they are first needed.

    ``by_default``: no score is configured, so ``scores`` decide only where they pack better: gangs
    with whole GPUs still go to few nodes, and pods without devices to nodes without devices.
    """

    scores: tuple[WeightedScore, ...]
    workload: Callable[[], TargetWorkload]
    by_default: bool = False
    on_failure: OnScoreFailure | None = None
    _scored_nodes: dict[Capacity, ScoredNodes] = field(default_factory=dict)
    _fits: dict[tuple[int, Capacity], ScoredFit] = field(default_factory=dict)

    @classmethod
    def for_snapshot(
        cls,
        scores: tuple[WeightedScore, ...],
        snapshot: Snapshot,
        static_fits: StaticFits,
        *,
        by_default: bool = False,
        on_failure: OnScoreFailure | None = None,
    ) -> "Scoring":
        """For the pods of a snapshot; its running and pending pods stand for those to come."""

        def workload() -> TargetWorkload:
            return target_workload(frequent_shapes(snapshot), snapshot, static_fits)

        return cls(scores, workload, by_default, on_failure)

    @cached_property
    def score(self) -> Score:
        """All scores as one."""
        return combined_score(self.scores, self._target_workload, self.on_failure)

    def nodes(self, statement: Statement, capacity: Capacity) -> ScoredNodes:
        """The scored nodes; to be called with the same statement throughout a cycle."""
        made = self._scored_nodes.get(capacity)
        if made is None:
            kinds = self._target_workload.node_kind
            made = ScoredNodes(statement, self.score, capacity, kinds)
            self._scored_nodes[capacity] = made
        return made

    def fit(
        self, statement: Statement, shape: Shape, capacity: Capacity, static_fits: StaticFits
    ) -> ScoredFit:
        """The fit of single pods of a shape, if only resources and scores decide."""
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


def scoring_of(
    snapshot: Snapshot,
    pending_shapes: Mapping[int, Shape],
    configured: tuple[WeightedScore, ...],
    default: tuple[WeightedScore, ...],
    *,
    static_fits: StaticFits,
    stranding: Stranding,
    extensions: Extensions,
) -> Scoring | None:
    """The scoring with the configured scores, else with the default if that packs better than none.

    None: nodes are not scored. ``pending_shapes``: of all pending pods, by number.
    """
    if not snapshot.pending:
        return None
    scores = extensions.able(configured)
    if scores:
        return Scoring.for_snapshot(scores, snapshot, static_fits, on_failure=extensions.fail_score)
    if not default:
        return None
    if not stranding.is_possible(pending_shapes, snapshot, static_fits):
        return None
    return Scoring.for_snapshot(default, snapshot, static_fits, by_default=True)
