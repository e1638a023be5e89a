"""Why do claims find no devices? How many there are, and which check turns how many of them down.

Per option of each request: the devices that some node sees pass the conditions of the selectors one
by one, all devices at once; those that pass go through the other checks of the allocator on one
node of each kind (equal devices, equal standing), the kinds with most nodes first. A device is
counted at the first check it fails, so the counts and what is free add up to the devices looked at.

Complexity: array work over the devices per condition, and a bounded number of nodes.
Source: KEP 5677 and kubernetes 137490, which ask for such a record.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kai_py.api.records.core import Node
from kai_py.api.records.resource import ResourceClaim
from kai_py.dra.allocator import Undecided
from kai_py.dra.claims import Option
from kai_py.dra.errors import AllocationError
from kai_py.dra.fleet import Fleet
from kai_py.dra.fleet_layout import Bools, FleetLayout, Ints
from kai_py.dra.holdings import DeviceState
from kai_py.dra.pools import Pool, PoolStatus
from kai_py.dra.question import Question
from kai_py.dra.selection import Refusal, Step
from kai_py.dra.selector_funnel import Nearest, Removal, Selected, select_devices
from kai_py.dra.standing import standing_of
from kai_py.dra.trial import Trial

KINDS_EXAMINED = 64
"""Kinds of nodes whose devices are examined one by one; the others are not counted."""


@dataclass(frozen=True, slots=True)
class OptionFunnel:
    """What becomes of the devices that one option of a request might have."""

    option: Option
    matching: int
    """Devices that pass all selectors."""
    free: int
    """Devices that suit and that nobody holds."""
    most: int
    """The most of these on one node."""
    removed: tuple[Removal, ...]
    nearest: Nearest | None
    """The device that fails the fewest conditions, where none passes all."""

    @property
    def suffices(self) -> bool:
        """Whether some node has enough for this option, taken by itself."""
        return self.most >= (1 if self.option.everything else self.option.count)


@dataclass(frozen=True, slots=True)
class Funnel:
    """What keeps claims from being allocated on some nodes."""

    nodes: int
    examined: int
    """Nodes whose devices were examined one by one, or are like one that was."""
    devices: int
    """Devices in complete and valid pools that the nodes see."""
    faulty: tuple[Pool, ...]
    """Pools the nodes see that are incomplete or invalid."""
    undecided: int
    """Nodes on which the budget of the search ran out."""
    options: tuple[OptionFunnel, ...]


def device_funnel(
    fleet: Fleet,
    claims: Sequence[ResourceClaim],
    nodes: tuple[Node, ...],
    state: DeviceState,
    among: Ints,
) -> Funnel | AllocationError:
    """Find out what stops ``claims`` on the rows ``among`` of ``nodes``; a fault comes instead."""
    try:
        question, usage = fleet.look(claims, nodes, state)
    except AllocationError as error:
        return error
    layout = question.layout
    assert layout is not None
    kinds = _kinds(question, usage, among)
    steps = [question.step(kind.row, int(usage[kind.row]), state) for kind in kinds]
    for kind, step in zip(kinds, steps, strict=True):
        if isinstance(step.refusal, AllocationError):
            own = fleet.in_own_words(claims, nodes[kind.row], state)
            return own if isinstance(own, AllocationError) else step.refusal
    seen = _rows_seen(layout, among)
    selected = [select_devices(option, layout, seen) for option in question.claims.options]
    return Funnel(
        nodes=len(among),
        examined=sum(kind.nodes for kind in kinds),
        devices=int(np.count_nonzero(seen)),
        faulty=_faulty_pools(layout, among),
        undecided=sum(
            kind.nodes
            for kind, step in zip(kinds, steps, strict=True)
            if isinstance(step.refusal, Undecided)
        ),
        options=tuple(_option_funnel(each, question, kinds, state) for each in selected),
    )


class _Kind(NamedTuple):
    """Nodes with equal devices in equal standing, and one of them."""

    row: int
    nodes: int


def _kinds(question: Question, usage: Ints, among: Ints) -> list[_Kind]:
    width = int(usage.max(initial=0)) + 1
    pairs = question.numbers[among] * width + usage[among]
    _, first, counts = np.unique(pairs, return_index=True, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:KINDS_EXAMINED]
    return [
        _Kind(row, count)
        for row, count in zip(among[first[most]].tolist(), counts[most].tolist(), strict=True)
    ]


def _rows_seen(layout: FleetLayout, among: Ints) -> Bools:
    """(rows,) bool: some node among the given ones sees the device."""
    chosen = np.zeros(len(layout.nodes), dtype=np.bool_)
    chosen[among] = True
    seen = np.zeros(len(layout.rows), dtype=np.bool_)
    seen[layout.positions[np.repeat(chosen, np.diff(layout.offsets))]] = True
    return seen


def _faulty_pools(layout: FleetLayout, among: Ints) -> tuple[Pool, ...]:
    found = {
        pool.id: pool
        for row in among.tolist()
        for pool in layout.views[row].pools
        if pool.status is not PoolStatus.READY
    }
    return tuple(found[key] for key in sorted(found))


def _option_funnel(
    selected: Selected, question: Question, kinds: Sequence[_Kind], state: DeviceState
) -> OptionFunnel:
    checked = _Checked(question, state, selected)
    if selected.passing.any():
        for kind in kinds:
            checked.examine(kind)
    return OptionFunnel(
        option=selected.option,
        matching=int(np.count_nonzero(selected.passing)),
        free=checked.free,
        most=checked.most,
        removed=(*selected.removed, *checked.removals()),
        nearest=selected.nearest,
    )


@dataclass(slots=True, eq=False)
class _Checked:
    """Counts of devices that pass the selectors, by the further check they fail."""

    question: Question
    state: DeviceState
    selected: Selected
    free: int = 0
    most: int = 0
    _failed: Counter[tuple[Step, str]] = field(default_factory=Counter)
    _counted: set[int] = field(default_factory=set)
    """Devices that several nodes see, counted once."""

    def examine(self, kind: _Kind) -> None:
        """Check the devices that one node sees."""
        site, layout = self.question.site(kind.row), self.question.layout
        if isinstance(site, AllocationError) or layout is None:
            return
        view = layout.views[kind.row]
        choice = self.question.terms.choice
        standing = standing_of(view, site.counters, self.state.pools, choice)
        trial = Trial(site.eligibility, site.counters, standing)
        free = 0
        start = int(layout.offsets[kind.row])
        for device in np.flatnonzero(self._passing(layout, start, len(view.rows))).tolist():
            refusal = _refusal(trial, self.selected.option, device)
            free += refusal is None
            weight = self._weight(layout, int(layout.positions[start + device]), kind.nodes)
            if refusal is None:
                self.free += weight
            else:
                self._failed[refusal.step, refusal.detail] += weight
        self.most = max(self.most, free)

    def removals(self) -> tuple[Removal, ...]:
        """What was counted, in the order of the checks."""
        order = list(Step)
        found = sorted(self._failed.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
        return tuple(Removal(step, cause, count) for (step, cause), count in found if count)

    def _passing(self, layout: FleetLayout, start: int, count: int) -> Bools:
        return self.selected.passing[layout.positions[start : start + count]]

    def _weight(self, layout: FleetLayout, row: int, nodes: int) -> int:
        if len(layout.viewers[layout.rows[row].id.pool_id]) == 1:
            return nodes
        if row in self._counted:
            return 0
        self._counted.add(row)
        return 1


def _refusal(trial: Trial, option: Option, device: int) -> Refusal | None:
    """What is against a device: what it is comes before who holds it."""
    outcome = trial.eligibility.judge(option, device)
    return outcome if isinstance(outcome, Refusal) else trial.refusal(option, device)
