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
from kai_py.dra.allocator import NoFit, Site, Undecided, prepare, refusal_of, solve
from kai_py.dra.claims import ClaimSet
from kai_py.dra.errors import AllocationError
from kai_py.dra.features import Choice, Features
from kai_py.dra.fleet_layout import FleetLayout, Ints
from kai_py.dra.holdings import DeviceState
from kai_py.dra.inventory import NodeView
from kai_py.dra.node_classes import NodeClasses
from kai_py.dra.results import build_allocations
from kai_py.dra.search import Verdict
from kai_py.dra.selection import Expressions
from kai_py.dra.standing import standing_of
from kai_py.dra.trial import Pick
from kai_py.dra.usage_numbers import UsageNumbers

STEPS_KEPT = 200_000
"""Steps after which a question starts afresh; far more than there are standings at a time."""

UNKNOWN = -1
"""In place of the number of a standing."""

Refusal = NoFit | Undecided | AllocationError


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One more pod on a node: the devices it takes and what is held afterwards, or why not."""

    picks: tuple[Pick, ...] = ()
    usage: int = 0
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What all questions of a fleet have in common."""

    features: Features
    choice: Choice
    expressions: Expressions
    usage: UsageNumbers
    budget: int


class Alternatives(NamedTuple):
    """How good the alternatives are that pods get; all arrays have a value for each row asked.

    ``depth``: alternatives that one more pod passes over, over all of its requests; ``pods``: how
    many pods in a row pass over just as many.
    """

    depth: Ints
    pods: Ints


@dataclass(slots=True, eq=False)
class Question:
    """A set of claims with everything known about it."""

    claims: ClaimSet
    sample: tuple[ResourceClaim, ...]
    """Claims that are asked for others like them."""
    device_classes: tuple[DeviceClass, ...]
    """The classes named, to notice when one is replaced."""
    alike: NodeClasses
    terms: Terms
    numbers: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(nodes,) the class of each node in ``layout``."""
    layout: FleetLayout | None = None
    _sites: dict[int, Site | AllocationError] = field(default_factory=dict)
    _counts: dict[tuple[int, int], int] = field(default_factory=dict)
    """How many pods fit; ``~n``, which is negative, where it is known only that n do."""
    _known: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(nodes,) the same for the standing of each node at the last look, ``_looked_up``."""
    _looked_up: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _steps: dict[tuple[int, int], Step] = field(default_factory=dict)
    _depths: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._depths = self.claims.depths()

    def look_at(self, layout: FleetLayout) -> None:
        """Class the nodes of ``layout``."""
        if self.layout is not layout:
            self.numbers = self.alike.number(layout)
            self.layout = layout
            self._looked_up = np.full(len(self.numbers), UNKNOWN, dtype=np.int64)
            self._known = np.zeros(len(self.numbers), dtype=np.int64)

    def step(self, node: int, usage: int, state: DeviceState) -> Step:
        """Return what one more pod takes on ``node``, where ``usage`` numbers its standing."""
        key = (int(self.numbers[node]), usage)
        step = self._steps.get(key)
        if step is None:
            step, _ = self._keep(key, node, state)
        return step

    def _keep(
        self, key: tuple[int, int], node: int, state: DeviceState
    ) -> tuple[Step, DeviceState | None]:
        """Search for a step that is not known, and what is held after it."""
        if len(self._steps) >= STEPS_KEPT:
            self._steps.clear()
        found = self._search(node, state)
        self._steps[key] = found[0]
        return found

    def counts(self, rows: Ints, usage: Ints, state: DeviceState, limit: int) -> Ints:
        """(rows,) how many pods fit each node one after the other, at most ``limit``."""
        self._look_up(rows[self._looked_up[rows] != usage[rows]], usage)
        known = self._known[rows]
        unsure = rows[(known < 0) & (~known < limit)]
        if len(unsure):
            self._make_sure(unsure, usage, state, limit)
            known = self._known[rows]
        counts: Ints = np.minimum(np.where(known < 0, ~known, known), limit)
        return counts

    def alternatives(self, rows: Ints, usage: Ints, limit: int) -> Alternatives:
        """What of the lists of alternatives pods get on each node, as far as ``counts`` was asked.

        ``limit`` is the most pods that are worth knowing of.
        """
        pairs = np.stack((self.numbers[rows], usage[rows]), axis=1)
        distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
        runs = [self._run(number, standing, limit) for number, standing in distinct.tolist()]
        found = np.array(runs, dtype=np.int64).reshape(-1, 2)[inverse.reshape(-1)]
        return Alternatives(depth=found[:, 0], pods=found[:, 1])

    def _run(self, number: int, usage: int, limit: int) -> tuple[int, int]:
        """The depth of the next step, and how many steps in a row are as deep."""
        depth, pods = 0, 0
        while pods < limit:
            step = self._steps.get((number, usage))
            if step is None or step.refusal is not None:
                break
            options = {pick.option for pick in step.picks}
            deep = sum(self._depths[option] for option in options)
            if pods and deep != depth:
                break
            depth, pods, usage = deep, pods + 1, step.usage
        return depth, pods

    def _look_up(self, rows: Ints, usage: Ints) -> None:
        """Keep for each node what is known of its present standing."""
        keys = zip(self.numbers[rows].tolist(), usage[rows].tolist(), strict=True)
        self._known[rows] = [self._counts.get(key, ~0) for key in keys]
        self._looked_up[rows] = usage[rows]

    def _make_sure(self, rows: Ints, usage: Ints, state: DeviceState, limit: int) -> None:
        """Count up to ``limit`` on one node of each kind among ``rows``."""
        width = int(usage.max(initial=0)) + 1
        pairs = self.numbers[rows] * width + usage[rows]
        _, first = np.unique(pairs, return_index=True)
        for node in rows[first].tolist():
            known = self._counts.get((int(self.numbers[node]), int(usage[node])), ~0)
            if known < 0 and ~known < limit:
                self._count_anew(node, int(usage[node]), state, limit)
        self._look_up(rows, usage)

    def _count_anew(self, node: int, usage: int, state: DeviceState, limit: int) -> None:
        count = self._count(node, usage, state, limit)
        if len(self._counts) >= STEPS_KEPT:
            self._counts.clear()
        self._counts[int(self.numbers[node]), usage] = count if count < limit else ~count

    def _count(self, node: int, usage: int, state: DeviceState, limit: int) -> int:
        taken: list[Step] = []
        copy: DeviceState | None = None
        while len(taken) < limit:
            key = (int(self.numbers[node]), usage)
            step, after = self._steps.get(key), None
            if step is None:
                copy = copy or self._copy(node, state, taken)
                step, after = self._keep(key, node, copy)
            if step.refusal is not None:
                break
            taken.append(step)
            usage = step.usage
            if after is not None:
                copy = after
            elif copy is not None:
                self._hold(node, step.picks, copy)
        return len(taken)

    def realise(
        self, claims: Sequence[ResourceClaim], node: int, picks: Sequence[Pick]
    ) -> tuple[AllocationResult, ...]:
        """Turn picks into allocations of the devices of ``node``.

        :raises AllocationError: no node selector can be made for a claim.
        """
        site = self.site(node)
        if isinstance(site, AllocationError):
            raise site
        return build_allocations(claims, site.eligibility, self._view(node), picks)

    def _search(self, node: int, state: DeviceState) -> tuple[Step, DeviceState | None]:
        site = self.site(node)
        if isinstance(site, AllocationError):
            return Step(refusal=site), None
        view = self._view(node)
        standing = standing_of(view, site.counters, state.pools, self.terms.choice)
        try:
            outcome = solve(site, standing, self.terms.budget)
            if outcome.verdict is not Verdict.FOUND:
                return Step(refusal=refusal_of(outcome)), None
            held = self._copy(node, state, ())
            self._hold(node, outcome.picks, held)
        except AllocationError as error:
            return Step(refusal=error), None
        return Step(outcome.picks, self.terms.usage.of_view(view, held.pools)), held

    def site(self, node: int) -> Site | AllocationError:
        """Return what the claims mean on nodes like ``node``, whoever holds what."""
        number = int(self.numbers[node])
        site = self._sites.get(number)
        if site is None:
            site = self._sites[number] = self._prepare(self._view(node))
        return site

    def _prepare(self, view: NodeView) -> Site | AllocationError:
        terms = self.terms
        try:
            return prepare(self.claims, view, terms.features, terms.choice, terms.expressions)
        except AllocationError as error:
            return error

    def _view(self, node: int) -> NodeView:
        assert self.layout is not None
        return self.layout.views[node]

    def _copy(self, node: int, state: DeviceState, taken: Sequence[Step]) -> DeviceState:
        """Copy what is held on one node, with the pods of ``taken`` on top."""
        pools = (pool.id for pool in self._view(node).pools)
        copy = DeviceState(state.find, {p: state.pools[p] for p in pools if p in state.pools})
        for step in taken:
            self._hold(node, step.picks, copy)
        return copy

    def _hold(self, node: int, picks: Sequence[Pick], state: DeviceState) -> None:
        for allocation in self.realise(self.sample, node, picks):
            state.hold(allocation)
