"""Picks: which nodes the next pods of a shape go to, in four ways.

ResourcePicks   only resources decide: all pods in one fill of the running fit
CountedPicks    devices, limits or pod rules decide as well: replicas are counted on every node
ScoredPicks     resources and scores decide: all pods, by scores computed ahead
SinglePicks     scores, limits and pod rules decide: one pod at a time, scored again after each
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.plan.placement.attempt import Attempt, NodeSet
from kai_py.plan.placement.fit import ShapeFits, slack
from kai_py.plan.placement.preferences import (
    ALTERNATIVES,
    IDLE,
    NUMA_ZONES,
    idle_nodes,
    idle_of,
    rank_nodes,
    static_preferences,
)
from kai_py.plan.placement.running_fit import RunningFit
from kai_py.plan.placement.score_nodes import ScoredFit, ScoredNodes
from kai_py.plan.state.capacity import Capacity
from kai_py.policy.fill import fill
from kai_py.policy.fit import StaticFit
from kai_py.policy.numa import fewer_zones, fill_by_numa_zones, zone_layers
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.pod_selection import rules_of
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape


class Selection(NamedTuple):
    """The next nodes: row, and how many pods go there.

    ``complete``: whether nodes were found for all pods that they are for. ``gpu_fraction``: share
    the GPU of which this fraction (0 to 1) is free; None for no GPU in particular.
    """

    picks: Sequence[tuple[int, int]]
    complete: bool
    gpu_fraction: float | None = None


class Picks(Protocol):
    """Picks nodes for the pods of one shape until all are placed."""

    resources_only: ClassVar[bool]
    """Whether pods only take resources of nodes, so that all picks can be placed at once."""

    def choose(self, left: int, /) -> Selection:
        """The next picks for some or all of the ``left`` pods, by the statement as it is now."""

    def close(self, row: int, /) -> None:
        """Pick node ``row`` no longer, as fewer pods could be placed there than were picked."""

    def shortage(self) -> tuple[StaticFit, Ints]:
        """For the unschedulable reason: the static fit, and (nodes,) how many pods fit."""


@dataclass(slots=True)
class _AheadPicks:
    """Picks found ahead, for pods that only take resources of nodes."""

    fits: ShapeFits
    attempt: Attempt
    shape: Shape
    node_set: NodeSet
    resources_only: ClassVar[bool] = True

    def close(self, row: int) -> None:
        """Never needed: all pods that are picked for a node fit there."""

    def _static(self) -> StaticFit:
        return self.fits.static_fit(self.attempt.statement, self.shape, self.attempt.capacity)


@dataclass(slots=True)
class ResourcePicks(_AheadPicks):
    """Picks by the running fit of the shape."""

    running: RunningFit
    strategy: FillStrategy

    def choose(self, left: int) -> Selection:
        """Picks for all pods, in one fill."""
        self.running.refresh()
        chunks = fill(left, self._replicas(), self._ranks(), self.running.slack, self.strategy)
        return Selection(chunks, sum(n for _, n in chunks) == left)

    def shortage(self) -> tuple[StaticFit, Ints]:
        """As in ``Picks``."""
        return self._static(), self._replicas()

    def _replicas(self) -> Ints:
        return np.where(self.node_set.mask, self.running.replicas, 0)

    def _ranks(self) -> Ints:
        ranks = self.running.preference
        if not self.node_set.preferences:
            return ranks
        statement, capacity = self.attempt.statement, self.attempt.capacity
        static = static_preferences(statement, self.shape, self._static())
        preferences = {**static, **self.node_set.preferences}
        if capacity is Capacity.FUTURE_IDLE:
            preferences[IDLE] = idle_of(ranks)
        return rank_nodes(preferences, len(ranks))


class CountedPicks:
    """Picks by the capacity of every node, counted for each choice.

    With rules between pods one pod is picked for at a time, as it changes where the next may go.
    The first pod with a claim that pods share allocates it, which decides where the others may go.
    """

    resources_only: ClassVar[bool] = False

    def __init__(
        self,
        fits: ShapeFits,
        attempt: Attempt,
        members: Sequence[Member],
        node_set: NodeSet,
        strategy: FillStrategy,
    ) -> None:
        """``members``: all pods, of one shape."""
        self._fits, self._attempt, self._node_set = fits, attempt, node_set
        self._shape, self._members, self._strategy = members[0].shape, len(members), strategy
        self._has_rules = bool(rules_of(self._shape))
        self._static = fits.static_fit(attempt.statement, self._shape, attempt.capacity)
        self._closed = np.zeros(len(self._static.mask), dtype=np.bool_)
        self._replicas = np.zeros(len(self._static.mask), dtype=np.int64)

    def choose(self, left: int) -> Selection:
        """Picks of one fill: for all pods, or for one if each changes where the next may go."""
        statement, shape, capacity = self._attempt.statement, self._shape, self._attempt.capacity
        if self._has_rules and left < self._members:
            self._static = self._fits.static_fit(statement, shape, capacity)
        mask = self._static.mask & self._node_set.mask & ~self._closed
        allocates = shape.shares_claims and left == self._members
        count = 1 if self._has_rules or allocates else left
        found = self._fits.capacity(statement, shape, mask, count, capacity)
        by_zones = statement.numa_zones.replicas_by_zones(shape, capacity, count)
        preferences = {
            **static_preferences(statement, shape, self._static),
            **self._node_set.preferences,
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
            self._strategy,
            replicas_by_zones=by_zones,
            preferred_replicas=found.preferred_replicas,
        )
        self._replicas = found.resource_replicas
        return Selection(chunks, sum(n for _, n in chunks) == count)

    def close(self, row: int) -> None:
        """As in ``Picks``."""
        self._closed[row] = True

    def shortage(self) -> tuple[StaticFit, Ints]:
        """As in ``Picks``; the replicas are those by resources."""
        return self._static, self._replicas


@dataclass(slots=True)
class ScoredPicks(_AheadPicks):
    """Picks by scores that are computed ahead, for pods that only take resources of nodes."""

    nodes: ScoredNodes

    def choose(self, left: int) -> Selection:
        """Picks for all pods, one by one."""
        statement, static = self.attempt.statement, self._static()
        mask = static.mask & self.node_set.mask
        static_ones = static_preferences(statement, self.shape, static)
        ranks = rank_nodes({**static_ones, **self.node_set.preferences}, len(mask))
        rows = ScoredFit(self.nodes, self.shape, mask, ranks).next_rows(left)
        return Selection([(row, 1) for row in rows], len(rows) == left)

    def shortage(self) -> tuple[StaticFit, Ints]:
        """As in ``Picks``."""
        statement, capacity = self.attempt.statement, self.attempt.capacity
        replicas = self.fits.replicas(statement, self.shape, self.node_set.mask, 1, capacity)
        return self._static(), replicas


class SinglePicks:
    """Picks by scores, one pod at a time, as each changes the scores for the next."""

    resources_only: ClassVar[bool] = False

    def __init__(
        self,
        fits: ShapeFits,
        attempt: Attempt,
        shape: Shape,
        node_set: NodeSet,
        nodes: ScoredNodes,
    ) -> None:
        """``nodes``: as the statement has them."""
        self._fits, self._attempt, self._shape = fits, attempt, shape
        self._node_set, self._nodes = node_set, nodes
        self._first = self._static = fits.static_fit(attempt.statement, shape, attempt.capacity)
        statement = attempt.statement
        static_ones = static_preferences(statement, shape, self._static)
        self._preferences = {**static_ones, **node_set.preferences}
        self._ranks = rank_nodes(self._preferences, len(self._static.mask))
        self._has_rules = bool(rules_of(shape))
        self._picked = self._refused = False

    def choose(self, _left: int) -> Selection:
        """The best node for one pod."""
        statement, shape, capacity = self._attempt.statement, self._shape, self._attempt.capacity
        if self._has_rules and self._picked:
            self._static = self._fits.static_fit(statement, shape, capacity)
        mask = self._static.mask & self._node_set.mask
        limited = statement.limits.replicas(shape, capacity, 1)
        if limited is not None:
            mask &= limited > 0
        by_zones = statement.numa_zones.replicas_by_zones(shape, capacity, 1)
        if by_zones is not None:
            zones = {NUMA_ZONES: fewer_zones(by_zones)}
            self._ranks = rank_nodes({**self._preferences, **zones}, len(mask))
        best = None if self._refused else self._nodes.pick(shape, mask, self._ranks)
        if best is None:
            return Selection((), complete=False)
        self._picked = True
        return Selection([(best.row, 1)], complete=True, gpu_fraction=best.gpu_fraction)

    def close(self, _row: int) -> None:
        """Pick no further node: the pod could not be placed on the best one."""
        self._refused = True

    def shortage(self) -> tuple[StaticFit, Ints]:
        """As in ``Picks``."""
        statement, capacity = self._attempt.statement, self._attempt.capacity
        mask = self._node_set.mask
        return self._first, self._fits.replicas(statement, self._shape, mask, 1, capacity)
