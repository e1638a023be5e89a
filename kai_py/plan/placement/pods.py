"""Placement of pods of one shape: all in one fill, or one by one where each changes the next.

Where capacity alone decides, the fits kept per shape do it (``running_fit``, ``score_nodes``);
otherwise the capacity of every node is counted again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.plan.placement.fit import (
    ShapeFits,
    only_resources_decide,
    slack,
)
from kai_py.plan.placement.preferences import (
    ALTERNATIVES,
    IDLE,
    NO_PREFERENCES,
    NUMA_ZONES,
    Preferences,
    idle_nodes,
    idle_of,
    inside_domain,
    nodes_without_devices,
    rank_nodes,
    requests_devices,
    static_preferences,
)
from kai_py.plan.placement.reasons import (
    UNEXPLAINED,
    Unschedulable,
    for_gang,
    insufficient_capacity,
)
from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.placement.score_nodes import ScoredFit
from kai_py.plan.placement.scoring import Scoring
from kai_py.plan.plan import Action, Stage
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.fill import fill
from kai_py.policy.score.numa_zones import fewer_zones, fill_by_numa_zones, zone_layers
from kai_py.policy.topology import DomainCandidate
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.pod_selection import rules_of
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape


class Attempt(NamedTuple):
    """What stays the same while a gang is placed.

    ``explain``: whether what stops its pods is reported; finding that out costs time.
    """

    statement: Statement
    gang: Gang
    action: Action
    capacity: Capacity
    explain: bool


class NodeSet(NamedTuple):
    """Nodes that may be used, (nodes,) bool, and which of them the gang prefers.

    ``kept``: the domain to which the pods of a shape, by its number, are kept.
    """

    mask: Bools
    preferences: Preferences = NO_PREFERENCES
    kept: Mapping[int, DomainCandidate] = MappingProxyType({})

    def of(self, shape: Shape) -> "NodeSet":
        """Those for pods of ``shape``."""
        domain = self.kept.get(shape.number)
        if domain is None:
            return self
        preferences = inside_domain(self.preferences, domain.domain_rank)
        return NodeSet(self.mask & domain.mask, preferences)


@dataclass(frozen=True, slots=True)
class ShapePlacer:
    """Where shapes fit, and by which strategies and scores their pods go."""

    fits: ShapeFits = field(default_factory=ShapeFits)
    gpu_strategy: FillStrategy = FillStrategy.BINPACK
    cpu_strategy: FillStrategy = FillStrategy.BINPACK
    scoring: Scoring | None = None

    def place(
        self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet
    ) -> Unschedulable | None:
        """Place all of ``members``, pods of one shape, or say what stops them."""
        reason = _too_many_users(attempt, members)
        reason = reason or self._place_shape(attempt, members, node_set.of(members[0].shape))
        if reason is None:
            return None
        return for_gang(reason, attempt.gang, members, attempt.statement.placed)

    def replicas(self, attempt: Attempt, shape: Shape, mask: Bools, count: int) -> Ints:
        """(nodes,) how many pods of ``shape`` fit, devices included, at most ``count`` of those."""
        statement, capacity = attempt.statement, attempt.capacity
        running = self.fits.running_fit(statement, shape, capacity)
        if running is not None:
            running.refresh()
            return np.where(mask, running.replicas, 0)
        mask = self.fits.static_fit(statement, shape, capacity).mask & mask
        return self.fits.capacity(statement, shape, mask, count, capacity).replicas

    def max_replicas(self, attempt: Attempt, shape: Shape, mask: Bools, count: int) -> Ints:
        """``replicas``, and those that fit only once other pods of the gang are placed."""
        if not rules_of(shape):
            return self.replicas(attempt, shape, mask, count)
        statement, capacity = attempt.statement, attempt.capacity
        mask = self.fits.static_fits.of(shape, statement.snapshot.nodes).mask & mask
        for _, passes in statement.pod_rules.rules(capacity).refusals(shape):
            mask &= passes
        return self.fits.capacity(statement, shape, mask, count, capacity).replicas

    def strategy(self, shape: Shape) -> FillStrategy:
        """How pods of the shape share nodes."""
        if self.gpu_strategy is self.cpu_strategy:
            return self.gpu_strategy
        return self.gpu_strategy if requests_devices(shape) else self.cpu_strategy

    def packed_fit(
        self, statement: Statement, shape: Shape, capacity: Capacity
    ) -> RunningFit | None:
        """The fit by which single pods of the shape are packed, if nothing else decides."""
        if self.scoring is not None or self.strategy(shape) is not FillStrategy.BINPACK:
            return None
        return self.fits.running_fit(statement, shape, capacity)

    def single_pod_fit(
        self, statement: Statement, shape: Shape, capacity: Capacity
    ) -> RunningFit | ScoredFit | None:
        """The fit that places single pods of the shape, scored or packed, while one is feasible."""
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
        """The fit that places pods of the shape together, if capacity alone decides."""
        scoring = self.scoring
        if scoring is not None and not (scoring.by_default and requests_devices(shape)):
            return None
        return self.fits.running_fit(statement, shape, capacity)

    def _place_shape(
        self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet
    ) -> Unschedulable | None:
        scoring = self.scoring
        if scoring is None or members[0].shape.has_claims:
            return self._place_together(attempt, members, node_set)
        together = self._unscored_nodes(attempt, members, node_set, scoring)
        if together is None:
            return self._place_scored(attempt, members, node_set, scoring)
        return self._place_together(attempt, members, together)

    def _unscored_nodes(
        self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet, scoring: Scoring
    ) -> NodeSet | None:
        """Where no score is asked: gangs with whole GPUs, and other pods off nodes with devices."""
        statement, shape, count = attempt.statement, members[0].shape, len(members)
        if scoring.by_default and requests_devices(shape):
            return node_set if count > 1 and shape.gpu_share is None else None
        if not scoring.by_default or rules_of(shape):
            return None
        static = self.fits.static_fit(statement, shape, attempt.capacity)
        mask = node_set.mask & nodes_without_devices(statement, static)
        holds = mask.any() and self.replicas(attempt, shape, mask, count).sum() >= count
        return node_set._replace(mask=mask) if holds else None

    def _place_scored(
        self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet, scoring: Scoring
    ) -> Unschedulable | None:
        """One after the other: each changes what the next one's choices are worth."""
        statement, capacity, shape = attempt.statement, attempt.capacity, members[0].shape
        static = self.fits.static_fit(statement, shape, capacity)
        preferences = {**static_preferences(statement, shape, static), **node_set.preferences}
        if only_resources_decide(statement, shape):
            mask, nodes = static.mask & node_set.mask, scoring.nodes(statement, capacity)
            ranks = rank_nodes(preferences, len(mask))
            rows = ScoredFit(nodes, shape, mask, ranks).next_rows(len(members))
            done = len(rows)
            if done == len(members):
                statement.place_resources_only(
                    attempt.gang, members, rows, attempt.action, capacity
                )
        else:
            inside = node_set._replace(preferences=preferences)
            done = self._place_one_by_one(attempt, members, inside, scoring)
        if done == len(members):
            return None
        if not attempt.explain:
            return UNEXPLAINED
        replicas = self.replicas(attempt, shape, node_set.mask, 1)
        return insufficient_capacity(
            statement, shape, static, replicas=replicas, needed=len(members), found=done
        )

    def _place_one_by_one(
        self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet, scoring: Scoring
    ) -> int:
        """How many found a place, each seeing those before it."""
        statement, gang, action, capacity, _ = attempt
        shape, scored = members[0].shape, scoring.nodes(statement, capacity)
        static = self.fits.static_fit(statement, shape, capacity)
        ranks = rank_nodes(node_set.preferences, len(static.mask))
        for done, member in enumerate(members):
            mask, limited = (
                static.mask & node_set.mask,
                statement.limits.replicas(shape, capacity, 1),
            )
            if limited is not None:
                mask &= limited > 0
            by_zones = statement.numa_zones.replicas_by_zones(shape, capacity, 1)
            if by_zones is not None:
                zones = {NUMA_ZONES: fewer_zones(by_zones)}
                ranks = rank_nodes({**node_set.preferences, **zones}, len(mask))
            pick = scored.pick(shape, mask, ranks)
            if pick is None or not statement.place(
                gang, [member], pick.row, action, capacity=capacity, gpu_fraction=pick.gpu_fraction
            ):
                return done
            if rules_of(shape):
                static = self.fits.static_fit(statement, shape, capacity)
        return len(members)

    def _place_resources_only(
        self,
        attempt: Attempt,
        members: Sequence[Member],
        node_set: NodeSet,
        running_fit: RunningFit,
    ) -> Unschedulable | None:
        statement, gang, action, capacity, _ = attempt
        shape, count = members[0].shape, len(members)
        running_fit.refresh()
        replicas = np.where(node_set.mask, running_fit.replicas, 0)
        ranks = running_fit.preference
        if node_set.preferences:
            static = self.fits.static_fit(statement, shape, capacity)
            preferences = {**static_preferences(statement, shape, static), **node_set.preferences}
            if capacity is Capacity.FUTURE_IDLE:
                preferences[IDLE] = idle_of(ranks)
            ranks = rank_nodes(preferences, len(replicas))
        chunks = fill(count, replicas, ranks, running_fit.slack, self.strategy(shape))
        found = sum(pods for _, pods in chunks)
        if found < count:
            if not attempt.explain:
                return UNEXPLAINED
            static = self.fits.static_fit(statement, shape, capacity)
            return insufficient_capacity(
                statement, shape, static, replicas=replicas, needed=count, found=found
            )
        rows = [row for row, pods in chunks for _ in range(pods)]
        statement.place_resources_only(gang, members, rows, action, capacity)
        return None

    def _place_together(
        self, attempt: Attempt, members: Sequence[Member], node_set: NodeSet
    ) -> Unschedulable | None:
        statement, gang, action, capacity, _ = attempt
        shape = members[0].shape
        running = self.fits.running_fit(statement, shape, capacity)
        if running is not None:
            return self._place_resources_only(attempt, members, node_set, running)
        paired = bool(rules_of(shape))
        static = self.fits.static_fit(statement, shape, capacity)
        closed = np.zeros(len(statement.snapshot.nodes), dtype=np.bool_)
        left = list(members)
        while left:
            mask = static.mask & node_set.mask & ~closed
            together = len(left) if shape.shares_claims and len(left) == len(members) else 0
            count = 1 if paired or together else len(left)
            found = self.fits.capacity(
                statement, shape, mask, count, capacity, min_replicas=together
            )
            by_zones = statement.numa_zones.replicas_by_zones(shape, capacity, count)
            preferences = {
                **static_preferences(statement, shape, static),
                **node_set.preferences,
                **idle_nodes(statement, shape, mask, capacity),
            }
            if found.alternatives is not None:
                preferences[ALTERNATIVES] = -found.alternatives.depth
            if by_zones is not None:
                preferences[NUMA_ZONES] = zone_layers(by_zones)
            chunks = fill_by_numa_zones(
                count,
                found.replicas,
                rank_nodes(preferences, len(mask)),
                slack(shape, statement.snapshot.resources, found.free),
                self.strategy(shape),
                replicas_by_zones=by_zones,
                preferred_replicas=found.preferred_replicas,
            )
            if sum(pods for _, pods in chunks) < count:
                if not attempt.explain:
                    return UNEXPLAINED
                done = len(members) - len(left) + sum(pods for _, pods in chunks)
                return insufficient_capacity(
                    statement,
                    shape,
                    static,
                    replicas=found.resource_replicas,
                    needed=len(members),
                    found=done,
                )
            for row, pods in chunks:
                placed = statement.place(gang, left[:pods], row, action, capacity=capacity)
                del left[:placed]
                if placed < pods:
                    closed[row] = True
                    break
            if paired:
                static = self.fits.static_fit(statement, shape, capacity)
        return None


def _too_many_users(attempt: Attempt, members: Sequence[Member]) -> Unschedulable | None:
    """Why the pods can't all use the claims that they share."""
    if not members[0].shape.has_claims:
        return None
    crowded = attempt.statement.devices.crowded_claim(members, attempt.capacity)
    return Unschedulable(Stage.DEVICES, f"{crowded}.") if crowded else None
