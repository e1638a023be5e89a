"""One set of claims, asked of many nodes: what is known stays known.

The answer on a node follows from the class of the node (``node_classes``) and from what is held on
it (``usage_numbers``). A step says what one more pod takes and what is held afterwards, so the
number of pods that fit is the length of a chain of steps. Steps outlive changes of slices, nodes
and allocation states.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

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
from kai_py.dra.device_usage import device_usage
from kai_py.dra.eligibility import Expressions
from kai_py.dra.errors import AllocationError
from kai_py.dra.features import AllocationStrategy, Features
from kai_py.dra.inventory import NodeDevices
from kai_py.dra.node_classes import NodeClasses
from kai_py.dra.parsed_claims import ParsedClaims
from kai_py.dra.results import build_allocations
from kai_py.dra.search import SearchStatus
from kai_py.dra.search_state import DevicePick
from kai_py.dra.usage_classes import UsageClasses

STEP_CACHE_SIZE = 200_000
"""Steps after which a question starts afresh; far more than there are standings at a time."""

UNKNOWN_USAGE = -1
"""In place of the number of a standing."""

AllocationFailure = Infeasible | BudgetExceeded | AllocationError


@dataclass(frozen=True, slots=True, eq=False)
class AllocationStep:
    """One more pod on a node: the devices it takes and what is held afterwards, or why not."""

    picks: tuple[DevicePick, ...] = ()
    usage_after: int = 0
    failure: AllocationFailure | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QueryContext:
    """What all questions of a fleet have in common."""

    features: Features
    strategy: AllocationStrategy
    expressions: Expressions
    usage_classes: UsageClasses
    budget: int


class Alternatives(NamedTuple):
    """How good the alternatives are that pods get; all arrays have a value for each row asked.

    ``depth``: alternatives that one more pod passes over, over all of its requests; ``pods``: how
    many pods in a row pass over just as many.
    """

    depth: Ints
    pods: Ints


@dataclass(slots=True, eq=False)
class AllocationQuery:
    """A set of claims with everything known about it."""

    claims: ParsedClaims
    sample_claims: tuple[ResourceClaim, ...]
    """Claims that are asked for others like them."""
    device_classes: tuple[DeviceClass, ...]
    """The classes named, to notice when one is replaced."""
    node_classes: NodeClasses
    context: QueryContext
    classes: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(nodes,) the class of each node in ``layout``."""
    layout: ClusterLayout | None = None
    _problems: dict[int, NodeProblem | AllocationError] = field(default_factory=dict)
    _counts: dict[tuple[int, int], int] = field(default_factory=dict)
    """How many pods fit; ``~n``, which is negative, where it is known only that n do."""
    _current_counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(nodes,) the same for the standing of each node at the last look, ``_looked_up``."""
    _current_usage: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _steps: dict[tuple[int, int], AllocationStep] = field(default_factory=dict)
    _depths: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._depths = self.claims.alternative_depths()

    def set_layout(self, layout: ClusterLayout) -> None:
        """Class the nodes of ``layout``."""
        if self.layout is not layout:
            self.classes = self.node_classes.classify(layout)
            self.layout = layout
            self._current_usage = np.full(len(self.classes), UNKNOWN_USAGE, dtype=np.int64)
            self._current_counts = np.zeros(len(self.classes), dtype=np.int64)

    def step(self, node: int, usage: int, state: DeviceState) -> AllocationStep:
        """Return what one more pod takes on ``node``, where ``usage`` numbers its standing."""
        key = (int(self.classes[node]), usage)
        step = self._steps.get(key)
        if step is None:
            step, _ = self._search_and_cache(key, node, state)
        return step

    def _search_and_cache(
        self, key: tuple[int, int], node: int, state: DeviceState
    ) -> tuple[AllocationStep, DeviceState | None]:
        """Search for a step that is not known, and what is held after it."""
        if len(self._steps) >= STEP_CACHE_SIZE:
            self._steps.clear()
        found = self._search(node, state)
        self._steps[key] = found[0]
        return found

    def counts(self, rows: Ints, usage: Ints, state: DeviceState, limit: int) -> Ints:
        """(rows,) how many pods fit each node one after the other, at most ``limit``."""
        self._load_counts(rows[self._current_usage[rows] != usage[rows]], usage)
        known = self._current_counts[rows]
        unsure = rows[(known < 0) & (~known < limit)]
        if len(unsure):
            self._complete_counts(unsure, usage, state, limit)
            known = self._current_counts[rows]
        counts: Ints = np.minimum(np.where(known < 0, ~known, known), limit)
        return counts

    def alternatives(self, rows: Ints, usage: Ints, limit: int) -> Alternatives:
        """What of the lists of alternatives pods get on each node, as far as ``counts`` was asked.

        ``limit`` is the most pods that are worth knowing of.
        """
        pairs = np.stack((self.classes[rows], usage[rows]), axis=1)
        distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
        runs = [
            self._equal_depth_run(number, standing, limit) for number, standing in distinct.tolist()
        ]
        found = np.array(runs, dtype=np.int64).reshape(-1, 2)[inverse.reshape(-1)]
        return Alternatives(depth=found[:, 0], pods=found[:, 1])

    def _equal_depth_run(self, number: int, usage: int, limit: int) -> tuple[int, int]:
        """The depth of the next step, and how many steps in a row are as deep."""
        depth, pods = 0, 0
        while pods < limit:
            step = self._steps.get((number, usage))
            if step is None or step.failure is not None:
                break
            options = {pick.option for pick in step.picks}
            deep = sum(self._depths[option] for option in options)
            if pods and deep != depth:
                break
            depth, pods, usage = deep, pods + 1, step.usage_after
        return depth, pods

    def _load_counts(self, rows: Ints, usage: Ints) -> None:
        """Keep for each node what is known of its present standing."""
        keys = zip(self.classes[rows].tolist(), usage[rows].tolist(), strict=True)
        self._current_counts[rows] = [self._counts.get(key, ~0) for key in keys]
        self._current_usage[rows] = usage[rows]

    def _complete_counts(self, rows: Ints, usage: Ints, state: DeviceState, limit: int) -> None:
        """Count up to ``limit`` on one node of each kind among ``rows``."""
        width = int(usage.max(initial=0)) + 1
        pairs = self.classes[rows] * width + usage[rows]
        _, first = np.unique(pairs, return_index=True)
        for node in rows[first].tolist():
            known = self._counts.get((int(self.classes[node]), int(usage[node])), ~0)
            if known < 0 and ~known < limit:
                self._recount(node, int(usage[node]), state, limit)
        self._load_counts(rows, usage)

    def _recount(self, node: int, usage: int, state: DeviceState, limit: int) -> None:
        count = self._count(node, usage, state, limit)
        if len(self._counts) >= STEP_CACHE_SIZE:
            self._counts.clear()
        self._counts[int(self.classes[node]), usage] = count if count < limit else ~count

    def _count(self, node: int, usage: int, state: DeviceState, limit: int) -> int:
        taken: list[AllocationStep] = []
        copy: DeviceState | None = None
        while len(taken) < limit:
            key = (int(self.classes[node]), usage)
            step, after = self._steps.get(key), None
            if step is None:
                copy = copy or self._copy(node, state, taken)
                step, after = self._search_and_cache(key, node, copy)
            if step.failure is not None:
                break
            taken.append(step)
            usage = step.usage_after
            if after is not None:
                copy = after
            elif copy is not None:
                self._mark_allocated(node, step.picks, copy)
        return len(taken)

    def allocations_for(
        self, claims: Sequence[ResourceClaim], node: int, picks: Sequence[DevicePick]
    ) -> tuple[AllocationResult, ...]:
        """Turn picks into allocations of the devices of ``node``.

        :raises AllocationError: no node selector can be made for a claim.
        """
        site = self.problem(node)
        if isinstance(site, AllocationError):
            raise site
        return build_allocations(claims, site.eligibility, self._view(node), picks)

    def _search(self, node: int, state: DeviceState) -> tuple[AllocationStep, DeviceState | None]:
        site = self.problem(node)
        if isinstance(site, AllocationError):
            return AllocationStep(failure=site), None
        view = self._view(node)
        standing = device_usage(view, site.counters, state.pools, self.context.strategy)
        try:
            outcome = solve(site, standing, self.context.budget)
            if outcome.status is not SearchStatus.FOUND:
                return AllocationStep(failure=failure_of(outcome)), None
            held = self._copy(node, state, ())
            self._mark_allocated(node, outcome.picks, held)
        except AllocationError as error:
            return AllocationStep(failure=error), None
        return AllocationStep(
            outcome.picks, self.context.usage_classes.of_view(view, held.pools)
        ), held

    def problem(self, node: int) -> NodeProblem | AllocationError:
        """Return what the claims mean on nodes like ``node``, whoever holds what."""
        number = int(self.classes[node])
        site = self._problems.get(number)
        if site is None:
            site = self._problems[number] = self._prepare_problem(self._view(node))
        return site

    def _prepare_problem(self, view: NodeDevices) -> NodeProblem | AllocationError:
        terms = self.context
        try:
            return prepare_problem(
                self.claims, view, terms.features, terms.strategy, terms.expressions
            )
        except AllocationError as error:
            return error

    def _view(self, node: int) -> NodeDevices:
        assert self.layout is not None
        return self.layout.views[node]

    def _copy(self, node: int, state: DeviceState, taken: Sequence[AllocationStep]) -> DeviceState:
        """Copy what is held on one node, with the pods of ``taken`` on top."""
        pools = (pool.id for pool in self._view(node).pools)
        copy = DeviceState(
            state.find_device, {p: state.pools[p] for p in pools if p in state.pools}
        )
        for step in taken:
            self._mark_allocated(node, step.picks, copy)
        return copy

    def _mark_allocated(self, node: int, picks: Sequence[DevicePick], state: DeviceState) -> None:
        for allocation in self.allocations_for(self.sample_claims, node, picks):
            state.mark_allocated(allocation)
