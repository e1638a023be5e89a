"""Placement of pods of one shape: nodes are picked, and pods placed there, until all are placed.

The way in which nodes are picked depends on what decides where the pods fit (``picks``).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct, field

from kai_py.api.choices import FillStrategy
from kai_py.plan.placement.attempt import Attempt, NodeSet, orders_of, place_in_turn
from kai_py.plan.placement.fit import ShapeFits, only_resources_decide
from kai_py.plan.placement.picks import CountedPicks, Picks, ResourcePicks, ScoredPicks, SinglePicks
from kai_py.plan.placement.preferences import nodes_without_devices, requests_devices
from kai_py.plan.placement.reasons import (
    UNEXPLAINED,
    Unschedulable,
    for_gang,
    insufficient_capacity,
)
from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.placement.score_nodes import ScoredFit
from kai_py.plan.placement.scoring import Scoring
from kai_py.plan.plan import Stage
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.pod_selection import rules_of
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

Parts = Sequence[Sequence[Member]]
"""Pods of a gang, those of one shape in one part."""


class ShapePlacer(Struct, frozen=True):
    """Places pods of one shape at a time, by fill strategies and scores."""

    fits: ShapeFits = field(default_factory=ShapeFits)
    gpu_strategy: FillStrategy = FillStrategy.BINPACK
    cpu_strategy: FillStrategy = FillStrategy.BINPACK
    scoring: Scoring | None = None

    def place(
        self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet
    ) -> Unschedulable | None:
        """Place all of ``members``, pods of one shape; None, or why they can't be placed."""
        reason = _too_many_users(attempt, members) or self._too_large(attempt, members)
        if reason is None:
            picks = self._picks(attempt, members, node_set.of(members[0].shape))
            reason = _place_picked(attempt, members, picks)
        if reason is None:
            return None
        return for_gang(reason, attempt.gang, members, attempt.statement.placed)

    def place_in_first(
        self, attempt: Attempt, parts: Parts, choices: Iterable[Sequence[NodeSet]]
    ) -> Unschedulable | None:
        """Place all parts in the first of the choices, each a node set by part, that holds them.

        Otherwise why they can't be placed in the last one.
        """
        reason: Unschedulable | None = UNEXPLAINED
        for node_sets in choices:
            reason = place_in_turn(
                attempt,
                list(zip(parts, node_sets, strict=True)),
                lambda attempt, part: self.place(attempt, *part),
                orders=orders_of([member for part in parts for member in part]),
            )
            if reason is None:
                return None
        return reason

    def _too_large(self, attempt: Attempt, members: Sequence[Member]) -> Unschedulable | None:
        """Why pods fit nowhere that request more than any node has free; None if they do not."""
        statement, shape, capacity = attempt.statement, members[0].shape, attempt.capacity
        if not self.fits.fits_nowhere(statement, shape, capacity):
            return None
        if not attempt.explain:
            return UNEXPLAINED
        static = self.fits.static_fit(statement, shape, capacity)
        none_fit = np.zeros(len(static.mask), dtype=np.int64)
        return insufficient_capacity(
            statement, shape, static, replicas=none_fit, needed=len(members), found=0
        )

    def _picks(self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet) -> Picks:
        """The way in which nodes for the pods are picked."""
        statement, capacity, shape = attempt.statement, attempt.capacity, members[0].shape
        if self.scoring is not None and not shape.has_claims:
            unscored = self._unscored_nodes(attempt, members, node_set, self.scoring)
            if unscored is None:
                nodes = self.scoring.nodes(statement, capacity)
                if only_resources_decide(statement, shape):
                    return ScoredPicks(self.fits, attempt, shape, node_set, nodes)
                return SinglePicks(self.fits, attempt, shape, node_set, nodes)
            node_set = unscored
        running, strategy = self.fits.running_fit(statement, shape, capacity), self.strategy(shape)
        if running is not None:
            return ResourcePicks(self.fits, attempt, shape, node_set, running, strategy)
        return CountedPicks(self.fits, attempt, members, node_set, strategy)

    def replicas(self, attempt: Attempt, shape: Shape, mask: Bools, count: int) -> Ints:
        """(nodes,) how many pods of ``shape`` fit, devices included; it may stop at ``count``."""
        return self.fits.replicas(attempt.statement, shape, mask, count, attempt.capacity)

    def max_replicas(self, attempt: Attempt, shape: Shape, mask: Bools, count: int) -> Ints:
        """(nodes,) ``replicas``, with those that fit only once other pods of the gang are."""
        if not rules_of(shape):
            return self.replicas(attempt, shape, mask, count)
        statement, capacity = attempt.statement, attempt.capacity
        mask = self.fits.static_fits.of(shape, statement.snapshot.nodes).mask & mask
        for _, passes in statement.pod_rules.rules(capacity).refusals(shape):
            mask &= passes
        return self.fits.capacity(statement, shape, mask, count, capacity).replicas

    def strategy(self, shape: Shape) -> FillStrategy:
        """Whether pods of the shape are packed or spread."""
        if self.gpu_strategy is self.cpu_strategy:
            return self.gpu_strategy
        return self.gpu_strategy if requests_devices(shape) else self.cpu_strategy

    def packed_fit(
        self, statement: Statement, shape: Shape, capacity: Capacity
    ) -> RunningFit | None:
        """The running fit by which single pods of the shape are packed; None if more decides."""
        if self.scoring is not None or self.strategy(shape) is not FillStrategy.BINPACK:
            return None
        return self.fits.running_fit(statement, shape, capacity)

    def single_pod_fit(
        self, statement: Statement, shape: Shape, capacity: Capacity
    ) -> RunningFit | ScoredFit | None:
        """The fit that places single pods of the shape, scored or packed; None if more decides."""
        scoring = self.scoring
        if scoring is None:
            return self.packed_fit(statement, shape, capacity)
        if not only_resources_decide(statement, shape):
            return None
        if scoring.by_default and not requests_devices(shape):
            off = self.fits.running_fit(statement, shape, capacity, avoid_devices=True)
            if off is not None and off.is_feasible():
                return off
        return scoring.fit(statement, shape, capacity, self.fits.static_fits)

    def gang_fit(self, statement: Statement, shape: Shape, capacity: Capacity) -> RunningFit | None:
        """The running fit that places pods of the shape together; None if more decides."""
        scoring = self.scoring
        if scoring is not None and not (scoring.by_default and requests_devices(shape)):
            return None
        return self.fits.running_fit(statement, shape, capacity)

    def _unscored_nodes(
        self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet, scoring: Scoring
    ) -> NodeSet | None:
        """The nodes to use without scores; None where scores decide.

        The default scores decide neither about gangs with whole GPUs, nor about pods without
        devices as long as nodes without devices have capacity for them.
        """
        statement, shape, count = attempt.statement, members[0].shape, len(members)
        if scoring.by_default and requests_devices(shape):
            return node_set if count > 1 and shape.gpu_share is None else None
        if not scoring.by_default or rules_of(shape):
            return None
        static = self.fits.static_fit(statement, shape, attempt.capacity)
        mask = node_set.mask & nodes_without_devices(statement, static)
        all_fit = mask.any() and self.replicas(attempt, shape, mask, count).sum() >= count
        return node_set._replace(mask=mask) if all_fit else None


def _place_picked(
    attempt: Attempt, members: Sequence[Member], picks: Picks
) -> Unschedulable | None:
    """Place pods of one shape as picked; None, or why not all of them can be placed."""
    statement, gang, action, capacity, explain = attempt
    left = list(members)
    while left:
        chosen, complete, fraction = picks.choose(len(left))
        if not complete:
            found = len(members) - len(left) + sum(pods for _, pods in chosen)
            return _shortage(attempt, members, picks, found) if explain else UNEXPLAINED
        if picks.resources_only:
            rows = [row for row, pods in chosen for _ in range(pods)]
            statement.place_resources_only(gang, members, rows, action, capacity)
            return None
        for row, pods in chosen:
            placed = statement.place(
                gang, left[:pods], row, action, capacity=capacity, gpu_fraction=fraction
            )
            del left[:placed]
            if placed < pods:
                picks.close(row)
                break
    return None


def _shortage(
    attempt: Attempt, members: Sequence[Member], picks: Picks, found: int
) -> Unschedulable:
    static, replicas = picks.shortage()
    shape, needed = members[0].shape, len(members)
    return insufficient_capacity(
        attempt.statement, shape, static, replicas=replicas, needed=needed, found=found
    )


def _too_many_users(attempt: Attempt, members: Sequence[Member]) -> Unschedulable | None:
    """The reason if claims would have too many users with these pods; else None."""
    if not members[0].shape.has_claims:
        return None
    crowded = attempt.statement.devices.users.crowded(members, attempt.capacity)
    return Unschedulable(Stage.DEVICES, f"{crowded}.") if crowded else None
