"""Exact search for gangs whose pods, placed the largest first, do not all fit.

Where capacity alone decides, pods of several sizes are assigned to nodes (``exact_assignment``).
Where other things matter too (rules between pods, domains of subgroups, host ports, parts of GPUs),
pods are placed one by one in the statement itself, on every node that differs from the others. With
rules between pods the order matters as much as the node: a pod may need another one beside it, or
keep others away. So every part is tried next; a set of placements that was reached before in
another order is skipped. Both searches are for few pods and bounded by steps. While victims are
searched for the gang, only the search pod by pod is used, with steps of the search for victims
(``trials``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from kai_py.plan.placement.attempt import Attempt
from kai_py.plan.placement.fit import ShapeFits, slack
from kai_py.plan.placement.running_fit import fits_by_resources
from kai_py.plan.plan import Action
from kai_py.plan.state.statement import Statement
from kai_py.policy.exact_assignment import PodClass, assign
from kai_py.policy.pod_rules import DomainCounts
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.topology import NO_DOMAIN

MAX_SEARCH_PODS = 64
MAX_SEARCH_STEPS = 256
"""Steps of one search; a step tries one pod on one node."""

MAX_STEPS_PER_CYCLE = 2_048
"""Steps of all searches with pod rules in a cycle."""

MAX_NODES_TO_SEARCH = 2**18
"""Bound of steps x nodes of one search with pod rules, as a step looks at every node."""


class SearchSteps(Struct):
    """``left``: the steps that searches pod by pod may still take.

    ``action``: only its placements may be searched; ALLOCATE for the steps of a whole cycle.
    """

    left: int = MAX_STEPS_PER_CYCLE
    action: Action = Action.ALLOCATE

    def spend(self, steps: int) -> None:
        """Spend ``steps``, or all that are left."""
        self.left -= min(steps, self.left)


def can_search(statement: Statement, parts: Sequence[Sequence[Member]]) -> bool:
    """Whether an exact search may place ``parts``, each of one shape."""
    if not 1 < sum(map(len, parts)) <= MAX_SEARCH_PODS:
        return False
    known = statement.snapshot.resources.positions
    shapes = [part[0].shape for part in parts]
    claiming = any(shape.has_claims or shape.plugin_equivalents for shape in shapes)
    return not claiming and all(
        shape.requests and known.keys() >= shape.requests.keys() for shape in shapes
    )


def can_assign(statement: Statement, parts: Sequence[Sequence[Member]]) -> bool:
    """Whether capacity alone decides where pods of ``parts`` fit, apart from pod rules."""
    return all(fits_by_resources(part[0].shape, statement.limits) for part in parts)


def place_exactly(
    attempt: Attempt, parts: Sequence[Sequence[Member]], masks: Sequence[Bools]
) -> bool:
    """Place all of ``parts`` or nothing; ``masks``: (nodes,) per part, where its pods may go."""
    statement, gang, action, capacity, _ = attempt
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
    """The search pod by pod for one gang; ``mask``: (nodes,) bool, where its pods may go.

    ``domains``: (nodes,) by subgroup that must stay in one domain, the domain of each node.
    ``subgroups``: for each part, the positions in ``domains`` of those that its pods belong to.
    """

    attempt: Attempt
    parts: Sequence[Sequence[Member]]
    fits: ShapeFits
    mask: Bools
    steps: SearchSteps
    domains: Sequence[Ints] = ()
    subgroups: Sequence[Sequence[int]] = ()
    _rows: list[list[int]] = field(init=False)
    _reached: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin with no pod placed."""
        self._rows = [[] for _ in self.parts]
        self.subgroups = self.subgroups or [()] * len(self.parts)
        nodes = max(1, len(self.attempt.statement.snapshot.nodes))
        pods = sum(map(len, self.parts))
        bound = max(pods, min(MAX_SEARCH_STEPS, MAX_NODES_TO_SEARCH // nodes))
        self._last_step = self.steps.left - min(self.steps.left, bound)
        shapes = [part[0].shape for part in self.parts]
        concern, limits = self.attempt.statement.pod_rules.concern, self.attempt.statement.limits
        self._in_any_order = any(map(concern, shapes))
        self._equal_nodes = not any(shape.gpu_share or limits.refusing(shape) for shape in shapes)

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
            replicas, at_most = self._replicas(at)
            if at_most < left:
                return False
            open_parts.append((at, replicas))
        if not open_parts:
            return True
        return any(
            self._place_next(at, row)
            for at, replicas in open_parts[: None if self._in_any_order else 1]
            for row in self._distinct_rows(at, replicas)
        )

    def _place_next(self, at: int, row: int) -> bool:
        """Place the next pod of part ``at`` on a node, and then all others; whether they fit."""
        if self.steps.left <= self._last_step:
            return False
        self.steps.left -= 1
        member = self.parts[at][len(self._rows[at])]
        statement, gang, action, capacity, _ = self.attempt
        with statement.trial() as trial:
            if not statement.place(gang, [member], row, action, capacity=capacity):
                return False
            self._rows[at].append(row)
            if self.place():
                trial.keep()
            else:
                self._rows[at].pop()
        return trial.kept

    def _replicas(self, at: int) -> tuple[Ints, int]:
        """(nodes,) how many pods of a part fit now, and a bound of how many may fit later.

        A node from which the anti-affinity of others keeps the pod stays excluded. A node from
        which its own affinity or spread keeps it now may be allowed once further pods are placed.
        """
        statement, shape = self.attempt.statement, self.parts[at][0].shape
        mask = self._static_mask(shape) & self.mask
        for subgroup in self.subgroups[at]:
            mask &= self._open_nodes(subgroup)
        rules = statement.pod_rules.rules(self.attempt.capacity)
        for _, passes in rules.refusals(shape):
            mask &= passes
        wanted = self.attempt.capacity
        replicas = self.fits.capacity(statement, shape, mask, MAX_SEARCH_PODS, wanted).replicas
        by_domain = self._by_domain(at, np.minimum(replicas, MAX_SEARCH_PODS))
        for _, passes in rules.attractions(shape):
            replicas = np.where(passes, replicas, 0)
        return replicas, int(by_domain.max(initial=0))

    def _chosen(self, subgroup: int) -> int | None:
        """The domain in which pods of a subgroup were placed; None if none was."""
        for rows, own in zip(self._rows, self.subgroups, strict=True):
            if rows and subgroup in own:
                return int(self.domains[subgroup][rows[0]])
        return None

    def _open_nodes(self, subgroup: int) -> Bools:
        """(nodes,) bool: where a subgroup may still go."""
        codes, chosen = self.domains[subgroup], self._chosen(subgroup)
        open_nodes: Bools = codes != NO_DOMAIN if chosen is None else codes == chosen
        return open_nodes

    def _by_domain(self, at: int, replicas: Ints) -> Ints:
        """How many pods of a part fit, by domain of its innermost subgroup; else in total."""
        if not self.subgroups[at]:
            return np.array([replicas.sum()])
        codes = self.domains[self.subgroups[at][-1]]
        inside = codes != NO_DOMAIN
        return np.bincount(codes[inside], weights=replicas[inside]).astype(np.int64)

    def _distinct_rows(self, at: int, replicas: Ints) -> list[int]:
        """Rows on which a pod of part ``at`` fits, tightest first; one for equivalent nodes."""
        shape, statement = self.parts[at][0].shape, self.attempt.statement
        rows = np.flatnonzero(replicas)
        free = statement.free(self.attempt.capacity)
        empty = slack(shape, statement.snapshot.resources, free)
        order: list[int] = rows[np.lexsort((rows, empty[rows], replicas[rows]))].tolist()
        if not self._equal_nodes:
            return order
        masks = [self._static_mask(part[0].shape) for part in self.parts]
        rules = statement.pod_rules.rules(self.attempt.capacity)
        counted = [counts for part in self.parts for counts in rules.counts(part[0].shape)]
        alone = [np.bincount(counts.codes, minlength=len(counts.now)) == 1 for counts in counted]
        subgroups = [
            (codes, np.bincount(codes + 1, minlength=2) == 1, self._chosen(subgroup))
            for subgroup, codes in enumerate(self.domains)
        ]
        first: dict[object, int] = {}
        for row in order:
            key = (
                free[:, row].tobytes(),
                *(bool(mask[row]) for mask in masks),
                *(_domain(c, row, is_alone) for c, is_alone in zip(counted, alone, strict=True)),
                *(_subgroup_domain(*each, row) for each in subgroups),
            )
            first.setdefault(key, row)
        return list(first.values())

    def _static_mask(self, shape: Shape) -> Bools:
        return self.fits.static_fits.of(shape, self.attempt.statement.snapshot.nodes).mask


def _domain(counts: DomainCounts, row: int, alone: Bools) -> tuple[int, ...]:
    """What distinguishes the domain of a node from others.

    Of a domain of one node, how many pods count there now and later; else its code.
    """
    code = int(counts.codes[row])
    if code and alone[code]:
        return -1, int(counts.now[code]), int(counts.later[code])
    return (code,)


def _subgroup_domain(codes: Ints, alone: Bools, chosen: int | None, row: int) -> tuple[int, bool]:
    """What distinguishes a node's domain, for a subgroup with one ``chosen``, or none."""
    code = int(codes[row])
    is_alone = code != NO_DOMAIN and bool(alone[code + 1])
    return -2 if is_alone else code, code == chosen
