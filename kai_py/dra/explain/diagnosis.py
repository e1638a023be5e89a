"""Diagnosis of claims that can't be allocated: how many devices each check rejects.

Per option of each request: the devices that some node sees pass the conditions of the selectors one
by one, all devices at once; those that pass go through the other checks of the allocator on one
node of each kind (equal devices, equal usage), the kinds with most nodes first. A device is counted
at the first check it fails, so the counts and the free devices add up to the devices examined.

Complexity: array work over the devices per condition, and a bounded number of nodes. Source:
KEP-5677 and kubernetes issue 137490, which ask for such a record.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from kai_py.api.groups import grouped
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceConstraint, ResourceClaim
from kai_py.dra.allocation_query import AllocationQuery
from kai_py.dra.allocator import BudgetExceeded
from kai_py.dra.cluster_allocator import ClusterAllocator
from kai_py.dra.cluster_layout import Bools, ClusterLayout, Ints
from kai_py.dra.device_state import DeviceState
from kai_py.dra.eligibility import SELECTION_CHECKS, DeviceCheck
from kai_py.dra.explain.rejections import (
    ClosestDevice,
    DeviceRejectionCount,
    SelectedDevices,
    rejection_of,
    select_devices,
    unmet_constraints,
)
from kai_py.dra.identity import AllocationError
from kai_py.dra.parsed_claims import Option
from kai_py.dra.pools import Pool, PoolStatus
from kai_py.dra.search_state import SearchState
from kai_py.dra.spending import SelectorsTooExpensiveError
from kai_py.dra.usage_classes import device_usage

PASSING_CHECKS = frozenset(
    {DeviceCheck.TAINT, DeviceCheck.QUOTA, DeviceCheck.IN_USE, DeviceCheck.GROUPS}
)
"""Checks that a device may pass at another time, without being published again."""
MAX_KINDS_EXAMINED = 64
"""Kinds of nodes whose devices are examined one by one; the rest is not counted."""
MAX_KINDS_RELAXED = 8
"""Kinds of nodes on which claims are tried without their constraints."""
STEPS_PER_RELAXATION = 1_000
"""Steps of the device search when claims are tried without some of their constraints."""


class OptionDiagnosis(Struct, frozen=True):
    """The devices that one option of a request could get, by check."""

    option: Option
    matching: int
    """Devices that pass all selectors."""
    free: int
    """Devices that are eligible and not allocated."""
    max_on_one_node: int
    """The most of these on one node."""
    is_whole: bool
    """Whether some node has devices for the option, all of them free."""
    rejected: tuple[DeviceRejectionCount, ...]
    closest: ClosestDevice | None
    """The device that fails the fewest conditions, where none passes all."""

    @property
    def is_sufficient(self) -> bool:
        """Whether some node has enough for this option, taken by itself."""
        if self.option.is_all_mode:
            return self.is_whole
        return self.max_on_one_node >= self.option.count


class AllocationDiagnosis(Struct, frozen=True):
    """What prevents the allocation of claims on some nodes."""

    nodes: int
    devices: int
    """Devices in complete and valid pools that the nodes see."""
    faulty: tuple[Pool, ...]
    """Pools the nodes see that are incomplete or invalid."""
    budget_exceeded_nodes: int
    """Nodes on which the budget of the search ran out."""
    options: tuple[OptionDiagnosis, ...]
    unmet: tuple[DeviceConstraint, ...] = ()
    """Constraints without which a node would have the devices."""
    fits_one_pod: bool = False
    """Whether some node has the devices for one pod."""

    @property
    def blocked(self) -> OptionDiagnosis | None:
        """The first option of the first request of which no option finds enough devices."""
        return _blocked(self.options)

    @property
    def is_lasting(self) -> bool:
        """Whether only what devices are is to blame: no taint, incomplete pool or ended search."""
        checks = {rejected.check for option in self.options for rejected in option.rejected}
        is_proven = not self.faulty and not self.budget_exceeded_nodes
        return is_proven and self.devices > 0 and not checks & PASSING_CHECKS


def diagnose_allocation(
    allocator: ClusterAllocator,
    claims: Sequence[ResourceClaim],
    nodes: tuple[Node, ...],
    state: DeviceState,
    rows: Ints,
) -> AllocationDiagnosis | AllocationError:
    """Diagnose ``claims`` on ``rows``, (n,) of ``nodes``.

    A fault of the claims is returned as it is, one of single nodes if all nodes have one.
    """
    try:
        query, usage = allocator.query(claims, nodes, state)
    except AllocationError as error:
        return error.as_outcome()
    layout = query.layout
    assert layout is not None
    kinds = _kinds(query, usage, rows)
    steps = [query.step(kind.row, int(usage[kind.row]), state) for kind in kinds]
    errors = [
        (kind.row, step.failure)
        for kind, step in zip(kinds, steps, strict=True)
        if isinstance(step.failure, AllocationError)
    ]
    if len(errors) < len(steps):
        errors = [each for each in errors if isinstance(each[1], SelectorsTooExpensiveError)]
    for row, failure in errors[:1]:
        uncached = allocator.allocate_uncached(claims, nodes[row], state)
        return uncached if isinstance(uncached, AllocationError) else failure
    visible = _visible_devices(layout, rows)
    selected = [select_devices(option, layout, visible) for option in query.claims.options]
    try:
        options = tuple(_diagnose_option(each, query, kinds, state) for each in selected)
    except AllocationError as error:  # of an alternative that the search did not come to
        return error.as_outcome()

    def is_feasible(relaxed: Sequence[ResourceClaim]) -> bool:
        other, other_usage = allocator.query(relaxed, nodes, state)
        tried = kinds[:MAX_KINDS_RELAXED]
        found = (other.step(kind.row, int(other_usage[kind.row]), state) for kind in tried)
        with allocator.spending.steps.apart(STEPS_PER_RELAXATION):
            return any(step.failure is None for step in found)

    return AllocationDiagnosis(
        nodes=len(rows),
        devices=int(np.count_nonzero(visible)),
        faulty=_faulty_pools(layout, rows),
        budget_exceeded_nodes=sum(
            kind.nodes
            for kind, step in zip(kinds, steps, strict=True)
            if isinstance(step.failure, BudgetExceeded)
        ),
        options=options,
        unmet=() if _blocked(options) else unmet_constraints(claims, is_feasible),
        fits_one_pod=any(step.failure is None for step in steps),
    )


def _blocked(options: Sequence[OptionDiagnosis]) -> OptionDiagnosis | None:
    by_request = grouped(options, lambda each: (each.option.claim, each.option.request))
    blocked = (o for o in by_request.values() if not any(each.is_sufficient for each in o))
    return next((of_request[0] for of_request in blocked), None)


class _Kind(NamedTuple):
    """Nodes with equal devices and equal usage, and one of them."""

    row: int
    nodes: int


def _kinds(query: AllocationQuery, usage: Ints, rows: Ints) -> list[_Kind]:
    width = int(usage.max(initial=0)) + 1
    pairs = query.classes[rows] * width + usage[rows]
    _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    largest = np.argsort(-counts, kind="stable")[:MAX_KINDS_EXAMINED]
    return [
        _Kind(row, count)
        for row, count in zip(rows[first[largest]].tolist(), counts[largest].tolist(), strict=True)
    ]


def _visible_devices(layout: ClusterLayout, node_rows: Ints) -> Bools:
    """(rows,) bool: some node of ``node_rows`` sees the device."""
    on_nodes = np.zeros(len(layout.nodes), dtype=np.bool_)
    on_nodes[node_rows] = True
    visible = np.zeros(len(layout.rows), dtype=np.bool_)
    visible[layout.positions[np.repeat(on_nodes, np.diff(layout.offsets))]] = True
    return visible


def _faulty_pools(layout: ClusterLayout, node_rows: Ints) -> tuple[Pool, ...]:
    faulty = {
        pool.id: pool
        for row in node_rows.tolist()
        for pool in layout.views[row].pools
        if pool.status is not PoolStatus.READY
    }
    return tuple(faulty[key] for key in sorted(faulty))


def _diagnose_option(
    selected: SelectedDevices, query: AllocationQuery, kinds: Sequence[_Kind], state: DeviceState
) -> OptionDiagnosis:
    checked = _CheckCounts(query, state, selected)
    if selected.passing.any():
        for kind in kinds:
            checked.examine(kind)
    return OptionDiagnosis(
        option=selected.option,
        matching=int(np.count_nonzero(selected.passing)),
        free=checked.free,
        max_on_one_node=checked.max_on_one_node,
        is_whole=checked.is_whole,
        rejected=(*selected.rejected, *checked.rejections()),
        closest=selected.closest,
    )


class _CheckCounts(Struct, eq=False):
    """Counts of devices that pass the selectors, by the further check they fail."""

    query: AllocationQuery
    state: DeviceState
    selected: SelectedDevices
    free: int = 0
    max_on_one_node: int = 0
    is_whole: bool = False
    _rejected: Counter[tuple[DeviceCheck, str]] = field(default_factory=Counter)
    _counted: set[int] = field(default_factory=set)
    """Devices that several nodes see, which are counted once."""

    def examine(self, kind: _Kind) -> None:
        """Check the devices that one node sees."""
        problem, layout = self.query.problem(kind.row), self.query.layout
        if isinstance(problem, AllocationError) or layout is None:
            return
        view = layout.views[kind.row]
        strategy = self.query.context.strategy
        usage = device_usage(view, problem.counters, self.state.pools, strategy)
        search_state = SearchState(problem.eligibility, problem.counters, usage)
        free, lacking = 0, 0
        start = int(layout.offsets[kind.row])
        for device in np.flatnonzero(self._passing(layout, start, len(view.rows))).tolist():
            rejection = rejection_of(search_state, self.selected.option, device)
            free += rejection is None
            lacking += rejection is not None and rejection.check not in SELECTION_CHECKS
            weight = self._weight(layout, int(layout.positions[start + device]), kind.nodes)
            if rejection is None:
                self.free += weight
            else:
                self._rejected[rejection.check, rejection.detail] += weight
        self.max_on_one_node = max(self.max_on_one_node, free)
        self.is_whole |= free > 0 and not lacking

    def rejections(self) -> tuple[DeviceRejectionCount, ...]:
        """The counts, in the order of the checks."""
        order = list(DeviceCheck)
        counted = sorted(
            self._rejected.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
        )
        return tuple(
            DeviceRejectionCount(step, cause, count) for (step, cause), count in counted if count
        )

    def _passing(self, layout: ClusterLayout, start: int, count: int) -> Bools:
        return self.selected.passing[layout.positions[start : start + count]]

    def _weight(self, layout: ClusterLayout, row: int, nodes: int) -> int:
        if len(layout.nodes_by_pool[layout.rows[row].id.pool_id]) == 1:
            return nodes
        if row in self._counted:
            return 0
        self._counted.add(row)
        return 1
