"""Search for small gangs whose pods claim devices that others of them need.

Placed one after the other, each pod gets the devices that suit it best, which may be those without
which a later one fits nowhere. Where no order of the pods helps, they are assigned to nodes pod by
pod, tightest nodes first, and the claims of all pods on a node are allocated in one search for
devices (``CycleDevices.chosen_together``). Pods that share a claim go to one node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kai_py.plan.placement.attempt import MAX_PODS_TO_REORDER, Attempt, NodeSet
from kai_py.plan.placement.exact import MAX_SEARCH_STEPS, SearchSteps
from kai_py.plan.placement.fit import ShapeFits, slack
from kai_py.plan.state.statement import Statement
from kai_py.policy.fit import replicas_that_fit
from kai_py.snapshot.gangs import Member


def may_fit_together(statement: Statement, members: Sequence[Member]) -> bool:
    """Whether a search may place pods that could not be placed one after the other."""
    if not 1 < len(members) <= MAX_PODS_TO_REORDER:
        return False
    devices, shapes = statement.devices, {m.shape.number: m.shape for m in members}
    if not any(shape.needs_devices for shape in shapes.values()):
        return False
    uses = [use for shape in shapes.values() for use in shape.claims]
    if len(shapes) == len(uses) == 1 and devices.whole_claims.needed(uses[0].spec) is not None:
        return False  # Counting was exact.
    own = [use for m in members for use in m.shape.claims if use.claim is None]
    specs = [devices.narrowed_spec(use.spec) for use in own if not use.is_allocated]
    return not devices.exceed_free(specs)


@dataclass
class TogetherSearch:
    """The search for one gang; ``parts``: its pods, those of one shape in one part."""

    attempt: Attempt
    parts: Sequence[Sequence[Member]]
    node_set: NodeSet
    fits: ShapeFits
    steps: SearchSteps
    _pods: Sequence[Member] = field(init=False)
    _last_step: int = field(init=False)
    _by_row: dict[int, list[Member]] = field(default_factory=dict)
    _known: dict[tuple[object, ...], bool] = field(default_factory=dict)

    def place(self) -> bool:
        """Place all pods or nothing."""
        self._pods = [member for part in self.parts for member in part]
        self._last_step = max(0, self.steps.left - MAX_SEARCH_STEPS)
        rows = {part[0].shape.number: self._candidates(part[0]) for part in self.parts}
        return all(rows.values()) and self._place_from(0, 0, rows)

    def _candidates(self, member: Member) -> list[int]:
        """The rows on which a pod fits alone, tightest first."""
        statement, _, _, capacity, _ = self.attempt
        shape, mask = member.shape, self.node_set.of(member.shape).mask
        replicas = self.fits.replicas(statement, shape, mask, len(self._pods), capacity)
        empty = slack(shape, statement.snapshot.resources, statement.free(capacity))
        rows = np.flatnonzero(replicas)
        order: list[int] = rows[np.lexsort((rows, empty[rows], replicas[rows]))].tolist()
        return order

    def _place_from(self, at: int, first: int, rows: Mapping[int, Sequence[int]]) -> bool:
        """Place the pods from position ``at`` on; that one on its ``first`` candidate or later."""
        if at == len(self._pods):
            return self._place_all()
        member = self._pods[at]
        candidates = rows[member.shape.number]
        for position in range(first, len(candidates)):
            if self.steps.left <= self._last_step:
                return False
            self.steps.spend(1)
            row = candidates[position]
            self._by_row.setdefault(row, []).append(member)
            again = at + 1 < len(self._pods) and self._pods[at + 1].shape is member.shape
            if self._fit(row) and self._place_from(at + 1, position if again else 0, rows):
                return True
            self._by_row[row].pop()
        return False

    def _fit(self, row: int) -> bool:
        """Whether the pods that are assigned to a node fit on it, as long as others are not."""
        members = self._by_row[row]
        others = [m for other, each in self._by_row.items() if other != row for m in each]
        if _shared_by(others) & _shared_by(members):
            return False
        key = (row, *((m.shape.number, _shared_by([m])) for m in members))
        if key not in self._known:
            with self.attempt.statement.trial():
                self._known[key] = self._place_on(row)
        return self._known[key]

    def _place_all(self) -> bool:
        with self.attempt.statement.trial() as trial:
            if all(self._place_on(row) for row, members in self._by_row.items() if members):
                trial.keep()
        return trial.kept

    def _place_on(self, row: int) -> bool:
        statement, gang, action, capacity, _ = self.attempt
        members = self._by_row[row]
        with statement.devices.chosen_together(members, row, capacity) as found:
            return found and all(
                self._admits(row, member)
                and statement.place(gang, [member], row, action, capacity=capacity)
                for member in members
            )

    def _admits(self, row: int, member: Member) -> bool:
        """Whether a pod fits on a node, apart from its devices."""
        statement, shape, capacity = self.attempt.statement, member.shape, self.attempt.capacity
        static = self.fits.static_fit(statement, shape, capacity).mask
        only = static & (np.arange(len(static)) == row)
        resources, allocatable = statement.snapshot.resources, statement.snapshot.nodes.allocatable
        return bool(
            replicas_that_fit(shape, resources, statement.free(capacity), only, allocatable)[row]
        )


def _shared_by(members: Sequence[Member]) -> frozenset[str]:
    """The uids of the shared claims of pods that are yet to be allocated."""
    return frozenset(claim.metadata.uid for m in members for claim in m.shape.shared_claims)
