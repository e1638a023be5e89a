"""Allocation queries: one set of claims on many nodes, with cached results.

The result on a node follows from the class of the node (``node_classes``) and from what is
allocated on it (``usage_classes``). A step says what one more pod takes and what is allocated
afterwards, so the number of pods that fit is the length of a chain of steps. Steps stay valid
across changes of slices, nodes and allocation states.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from kai_py.api.records.resource import AllocationResult, DeviceClass, ResourceClaim
from kai_py.dra.allocator import (
    BudgetExceeded,
    Infeasible,
    NodeProblem,
    failure_of,
    prepare_problem,
    solve,
)
from kai_py.dra.cluster_layout import ClusterLayout, Ints
from kai_py.dra.device_state import DeviceState
from kai_py.dra.eligibility import Expressions
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import AllocationError
from kai_py.dra.inventory import NodeDevices
from kai_py.dra.node_classes import NodeClasses
from kai_py.dra.parsed_claims import ParsedClaims
from kai_py.dra.results import build_allocations
from kai_py.dra.search import DeviceSearchResult, SearchStatus
from kai_py.dra.search_state import DevicePick
from kai_py.dra.spending import SelectorsTooExpensiveError, Spending
from kai_py.dra.usage_classes import DeviceUsage, UsageClasses, device_usage

STEP_CACHE_SIZE = 200_000
"""Steps at which a query's cache is cleared; far more than distinct usages exist at a time."""

UNKNOWN_USAGE = -1
"""In place of a usage number."""

AllocationFailure = Infeasible | BudgetExceeded | AllocationError


class AllocationStep(Struct, frozen=True, eq=False):
    """One more pod on a node: the devices it takes and the usage afterwards, or the failure."""

    picks: tuple[DevicePick, ...] = ()
    usage_after: int = 0
    failure: AllocationFailure | None = None


class QueryContext(Struct, frozen=True, eq=False):
    """What all queries of a cluster have in common."""

    strategy: AllocationStrategy
    expressions: Expressions
    usage_classes: UsageClasses
    budget: int
    spending: Spending


class Alternatives(NamedTuple):
    """Which alternatives of ``firstAvailable`` pods get; arrays with a value per queried row.

    ``depth``: alternatives that one more pod skips, over all of its requests; ``pods``: how many
    pods in a row skip equally many.
    """

    depth: Ints
    pods: Ints


@dataclass(slots=True, eq=False)
class AllocationQuery:
    """A set of claims with everything known about it."""

    claims: ParsedClaims
    sample_claims: tuple[ResourceClaim, ...]
    """Claims that represent all others with equal specs."""
    device_classes: tuple[DeviceClass, ...]
    """The classes the claims name, to notice when one is replaced."""
    node_classes: NodeClasses
    context: QueryContext
    classes: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(nodes,) the class of each node in ``layout``."""
    layout: ClusterLayout | None = None
    _problems: dict[int, NodeProblem | AllocationError] = field(default_factory=dict)
    _counts: dict[tuple[int, int], int] = field(default_factory=dict)
    """By class and usage, how many pods fit; ``~n``, which is negative, for at least n."""
    _current_counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(nodes,) the same for the usage of each node at the last query, ``_current_usage``."""
    _current_usage: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _steps: dict[tuple[int, int], AllocationStep] = field(default_factory=dict)
    _depths: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._depths = self.claims.alternative_depths()

    @property
    def size(self) -> int:
        """How many results and classes it has cached."""
        results = len(self._steps) + len(self._counts) + len(self._problems)
        return results + self.node_classes.size

    def leave_layout(self) -> None:
        """There is a newer layout; a query that is not asked any more must not keep the old one."""
        self.layout = None

    def set_layout(self, layout: ClusterLayout) -> None:
        """Classify the nodes of ``layout``."""
        if self.layout is not layout:
            self.classes = self.node_classes.classify(layout)
            self.layout = layout
            self._current_usage = np.full(len(self.classes), UNKNOWN_USAGE, dtype=np.int64)
            self._current_counts = np.zeros(len(self.classes), dtype=np.int64)

    def step(self, node: int, usage: int, state: DeviceState) -> AllocationStep:
        """What one more pod takes on ``node``, whose usage has the number ``usage``."""
        key = (int(self.classes[node]), usage)
        step = self._steps.get(key)
        if step is None:
            step, _ = self._search_and_cache(key, node, state)
        return step

    def _search_and_cache(
        self, key: tuple[int, int], node: int, state: DeviceState
    ) -> tuple[AllocationStep, DeviceState | None]:
        """Search for a step that is not cached; returns it and the state after it."""
        if len(self._steps) >= STEP_CACHE_SIZE:
            self._steps.clear()
        result = self._search(node, state)
        if _is_proven(result[0].failure):
            self._steps[key] = result[0]
        return result

    def counts(self, rows: Ints, usage: Ints, state: DeviceState, limit: int) -> Ints:
        """(rows,) how many pods fit on each node one after the other, at most ``limit``."""
        self._load_counts(rows[self._current_usage[rows] != usage[rows]], usage)
        cached = self._current_counts[rows]
        incomplete = rows[(cached < 0) & (~cached < limit)]
        if len(incomplete):
            self._complete_counts(incomplete, usage, state, limit)
            cached = self._current_counts[rows]
        counts: Ints = np.minimum(np.where(cached < 0, ~cached, cached), limit)
        return counts

    def alternatives(self, rows: Ints, usage: Ints, limit: int) -> Alternatives:
        """The alternatives that pods get on each node, as far as ``counts`` has computed them.

        ``rows``: (n,) rows of nodes, ``usage``: (n,) their usage classes. ``limit``: the most pods
        to consider per node.
        """
        pairs = np.stack((self.classes[rows], usage[rows]), axis=1)
        distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
        runs = [
            self._equal_depth_run(number, usage_number, limit)
            for number, usage_number in distinct.tolist()
        ]
        per_row = np.array(runs, dtype=np.int64).reshape(-1, 2)[inverse.reshape(-1)]
        return Alternatives(depth=per_row[:, 0], pods=per_row[:, 1])

    def _equal_depth_run(self, number: int, usage: int, limit: int) -> tuple[int, int]:
        """The depth of the next step, and how many steps in a row have that depth."""
        depth, pods = 0, 0
        while pods < limit:
            step = self._steps.get((number, usage))
            if step is None or step.failure is not None:
                break
            options = {pick.option for pick in step.picks}
            step_depth = sum(self._depths[option] for option in options)
            if pods and step_depth != depth:
                break
            depth, pods, usage = step_depth, pods + 1, step.usage_after
        return depth, pods

    def _load_counts(self, rows: Ints, usage: Ints) -> None:
        """Load what is cached for the current usage of each node."""
        keys = zip(self.classes[rows].tolist(), usage[rows].tolist(), strict=True)
        self._current_counts[rows] = [self._counts.get(key, ~0) for key in keys]
        self._current_usage[rows] = usage[rows]

    def _complete_counts(self, rows: Ints, usage: Ints, state: DeviceState, limit: int) -> None:
        """Count up to ``limit`` on one node per class and usage among ``rows``."""
        width = int(usage.max(initial=0)) + 1
        pairs = self.classes[rows] * width + usage[rows]
        _, first = np.unique(pairs, return_index=True)
        for node in rows[first].tolist():
            cached = self._counts.get((int(self.classes[node]), int(usage[node])), ~0)
            if cached < 0 and ~cached < limit:
                self._recount(node, int(usage[node]), state, limit)
        self._load_counts(rows, usage)

    def _recount(self, node: int, usage: int, state: DeviceState, limit: int) -> None:
        count, proven = self._count(node, usage, state, limit)
        if len(self._counts) >= STEP_CACHE_SIZE:
            self._counts.clear()
        exact = proven and count < limit
        self._counts[int(self.classes[node]), usage] = count if exact else ~count

    def _count(self, node: int, usage: int, state: DeviceState, limit: int) -> tuple[int, bool]:
        """How many pods fit, up to ``limit``, and whether that is proven."""
        steps: list[AllocationStep] = []
        copy: DeviceState | None = None
        while len(steps) < limit:
            key = (int(self.classes[node]), usage)
            step, after = self._steps.get(key), None
            if step is None:
                copy = copy or self._copy(node, state, steps)
                step, after = self._search_and_cache(key, node, copy)
            if step.failure is not None:
                return len(steps), _is_proven(step.failure)
            steps.append(step)
            usage = step.usage_after
            if after is not None:
                copy = after
            elif copy is not None:
                self._mark_allocated(node, step.picks, copy)
        return len(steps), True

    def allocations_for(
        self, claims: Sequence[ResourceClaim], node: int, picks: Sequence[DevicePick]
    ) -> tuple[AllocationResult, ...]:
        """Turn picks into allocations of the devices of ``node``.

        :raises AllocationError: no node selector can be made for a claim.
        """
        problem = self.problem(node)
        if isinstance(problem, AllocationError):
            raise problem
        return build_allocations(claims, problem.eligibility, self._view(node), picks)

    def _search(self, node: int, state: DeviceState) -> tuple[AllocationStep, DeviceState | None]:
        problem = self.problem(node)
        if isinstance(problem, AllocationError):
            return AllocationStep(failure=problem), None
        view = self._view(node)
        usage = device_usage(view, problem.counters, state.pools, self.context.strategy)
        try:
            outcome = self._solve(problem, usage)
            if outcome is None:
                return AllocationStep(failure=BudgetExceeded(0, proven=False)), None
            if outcome.status is not SearchStatus.FOUND:
                failure = failure_of(outcome)
                if isinstance(failure, BudgetExceeded) and failure.steps <= self.context.budget:
                    self.context.spending.steps.cut_short = True
                    failure = BudgetExceeded(failure.steps, proven=False)
                return AllocationStep(failure=failure), None
            after = self._copy(node, state, ())
            self._mark_allocated(node, outcome.picks, after)
        except AllocationError as error:
            return AllocationStep(failure=error.as_outcome()), None
        return AllocationStep(
            outcome.picks, self.context.usage_classes.of_view(view, after.pools)
        ), after

    def _solve(self, problem: NodeProblem, usage: DeviceUsage) -> DeviceSearchResult | None:
        """The result within what may be spent; None where nothing may."""
        context = self.context
        steps = context.spending.steps
        budget = min(context.budget, steps.left)
        if budget <= 0:
            steps.cut_short = True
            return None
        outcome = solve(problem, usage, budget, context.spending.poll)
        steps.spend(outcome.steps)
        return outcome

    def problem(self, node: int) -> NodeProblem | AllocationError:
        """The claims on nodes like ``node``, independent of current allocations."""
        number = int(self.classes[node])
        problem = self._problems.get(number)
        if problem is None:
            problem = self._prepare_problem(self._view(node))
            if isinstance(problem, NodeProblem) or _is_proven(problem):
                self._problems[number] = problem
        return problem

    def _prepare_problem(self, view: NodeDevices) -> NodeProblem | AllocationError:
        context = self.context
        try:
            return prepare_problem(self.claims, view, context.strategy, context.expressions)
        except AllocationError as error:
            return error.as_outcome()

    def _view(self, node: int) -> NodeDevices:
        assert self.layout is not None
        return self.layout.views[node]

    def _copy(self, node: int, state: DeviceState, steps: Sequence[AllocationStep]) -> DeviceState:
        """Copy the state of one node's pools, with the pods of ``steps`` allocated on top."""
        pools = (pool.id for pool in self._view(node).pools)
        copy = DeviceState(
            state.find_device, {p: state.pools[p] for p in pools if p in state.pools}
        )
        for step in steps:
            self._mark_allocated(node, step.picks, copy)
        return copy

    def _mark_allocated(self, node: int, picks: Sequence[DevicePick], state: DeviceState) -> None:
        for allocation in self.allocations_for(self.sample_claims, node, picks):
            state.mark_allocated(allocation)


def _is_proven(failure: AllocationFailure | None) -> bool:
    """Whether the same search would end so again, whatever else is searched for."""
    if isinstance(failure, BudgetExceeded | SelectorsTooExpensiveError):
        return failure.proven
    return True
