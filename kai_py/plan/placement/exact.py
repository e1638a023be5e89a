"""Exact search for gangs whose pods, placed the largest first, do not all fit.

Where capacity alone decides, pods of several sizes are assigned to nodes (``exact_assignment``).
Where rules between pods decide, too, the order matters as much as the node: a pod may need another
one beside it, or keep others away. So pods are placed one after the other in the statement itself,
every kind on every node that differs, and what was reached before by another order is not entered
again. Both are for few pods, bounded by steps, and only where no pod is evicted for the gang:
searches for victims make many trial placements, each of which would pay for a search of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kai_py.plan.placement.fit import ShapeFits, slack
from kai_py.plan.placement.running_fit import fits_by_resources
from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.exact_assignment import PodClass, assign
from kai_py.policy.fit import replicas_that_fit
from kai_py.policy.pod_rules import DomainCounts
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Ints

MAX_SEARCH_PODS = 64
MAX_SEARCH_STEPS = 256
"""Pods that the search tries on a node."""

MAX_STEPS_PER_CYCLE = 2_048
"""The same, with rules between pods, of all gangs of a cycle."""

MAX_NODES_TO_SEARCH = 2**18
"""Steps times nodes of one search with rules: a step looks at all of them."""


@dataclass(slots=True)
class SearchSteps:
    """The steps that searches with rules between pods may still take in this cycle."""

    left: int = MAX_STEPS_PER_CYCLE

    def spend(self, steps: int) -> None:
        """Take steps, as many as there are."""
        self.left -= min(steps, self.left)


def can_place_exactly(
    statement: Statement, parts: Sequence[Sequence[Member]], action: Action
) -> bool:
    """Whether the pods of ``parts``, one per shape, are such a gang."""
    if action is not Action.ALLOCATE or sum(map(len, parts)) > MAX_SEARCH_PODS:
        return False
    known = statement.snapshot.resources.positions
    plain = all(fits_by_resources(part[0].shape, statement.limits) for part in parts)
    return plain and all(name in known for part in parts for name in part[0].shape.requests)


def place_exactly(
    statement: Statement,
    gang: Gang,
    parts: Sequence[Sequence[Member]],
    masks: Sequence[Bools],
    action: Action,
    *,
    capacity: Capacity,
) -> bool:
    """Place all of ``parts`` or nothing; ``masks``: (nodes,) per part, where its pods may go."""
    kinds = [
        PodClass(len(part), statement.request_vector(part[0].shape), mask)
        for part, mask in zip(parts, masks, strict=True)
    ]
    found = assign(kinds, statement.free(capacity), MAX_SEARCH_STEPS)
    for part, rows in zip(parts, found or (), strict=found is not None):
        for member, row in zip(part, rows, strict=True):
            statement.place(gang, [member], row, action, capacity=capacity)
    return found is not None


@dataclass
class RuleSearch:
    """The search with rules for one gang; ``mask``: (nodes,) bool, where its pods may go."""

    statement: Statement
    gang: Gang
    parts: Sequence[Sequence[Member]]
    fits: ShapeFits
    mask: Bools
    capacity: Capacity
    steps: SearchSteps
    _rows: list[list[int]] = field(init=False)
    _reached: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """No pod is placed."""
        self._rows = [[] for _ in self.parts]
        nodes = max(1, len(self.statement.snapshot.nodes))
        pods = sum(map(len, self.parts))
        bound = max(pods, min(MAX_SEARCH_STEPS, MAX_NODES_TO_SEARCH // nodes))
        self._last_step = self.steps.left - min(self.steps.left, bound)

    def place(self) -> bool:
        """Place all pods that are left, or nothing."""
        reached = tuple(tuple(sorted(rows)) for rows in self._rows)
        if reached in self._reached:
            return False
        self._reached.add(reached)
        open_parts: list[tuple[int, Ints]] = []
        for at, part in enumerate(self.parts):
            left = len(part) - len(self._rows[at])
            if not left:
                continue
            replicas, at_most = self._replicas(part[0])
            if at_most < left:
                return False
            open_parts.append((at, replicas))
        if not open_parts:
            return True
        return any(
            self._place_next(at, row)
            for at, replicas in open_parts
            for row in self._distinct_rows(at, replicas)
        )

    def _place_next(self, at: int, row: int) -> bool:
        """Place the next pod of a part on a node, and all that are left then."""
        if self.steps.left <= self._last_step:
            return False
        self.steps.left -= 1
        member = self.parts[at][len(self._rows[at])]
        with self.statement.trial() as trial:
            if not self.statement.place(
                self.gang, [member], row, Action.ALLOCATE, capacity=self.capacity
            ):
                return False
            self._rows[at].append(row)
            if self.place():
                trial.keep()
            else:
                self._rows[at].pop()
        return trial.kept

    def _replicas(self, member: Member) -> tuple[Ints, int]:
        """(nodes,) where one pod may go now, and the most that may ever fit from here on.

        Nodes where others refuse it are lost; where its affinity or its spread keeps it away now,
        further pods may let it in.
        """
        statement, shape = self.statement, member.shape
        snapshot = statement.snapshot
        mask = self.fits.static_fits.of(shape, snapshot.nodes).mask & self.mask
        rules = statement.pod_rules.rules(self.capacity)
        for _, passes in rules.refusals(shape):
            mask &= passes
        replicas = replicas_that_fit(
            shape,
            snapshot.resources,
            statement.free(self.capacity),
            mask,
            snapshot.nodes.allocatable,
        )
        at_most = int(np.minimum(replicas, MAX_SEARCH_PODS).sum())
        for _, passes in rules.attractions(shape):
            replicas = np.where(passes, replicas, 0)
        return replicas, at_most

    def _distinct_rows(self, at: int, replicas: Ints) -> list[int]:
        """One of several nodes that no rule and no pod of the gang tells apart, tightest first."""
        shape, statement = self.parts[at][0].shape, self.statement
        rows = np.flatnonzero(replicas)
        free = statement.free(self.capacity)
        empty = slack(shape, statement.snapshot.resources, free)
        order = rows[np.lexsort((rows, empty[rows], replicas[rows]))].tolist()
        masks = [self._static_mask(part[0]) for part in self.parts]
        rules = statement.pod_rules.rules(self.capacity)
        counted = [counts for part in self.parts for counts in rules.counts(part[0].shape)]
        alone = [np.bincount(counts.codes, minlength=len(counts.now)) == 1 for counts in counted]
        first: dict[object, int] = {}
        for row in order:
            key = (
                free[:, row].tobytes(),
                *(bool(mask[row]) for mask in masks),
                *(_domain(c, row, is_alone) for c, is_alone in zip(counted, alone, strict=True)),
            )
            first.setdefault(key, row)
        return list(first.values())

    def _static_mask(self, member: Member) -> Bools:
        return self.fits.static_fits.of(member.shape, self.statement.snapshot.nodes).mask


def _domain(counts: DomainCounts, row: int, alone: Bools) -> tuple[int, ...]:
    """The domain of a node; of one that is alone in it, what it has of the counted pods."""
    code = int(counts.codes[row])
    if code and alone[code]:
        return -1, int(counts.now[code]), int(counts.later[code])
    return (code,)
