"""Kinds of devices: equal devices are evaluated once per DeviceClass.

Devices that differ only by identifiers (uuid, PCI address) are of one kind; what holds for one of
them holds for all. So a query for a DeviceClass costs its kinds, not its devices. O(devices) once
per change of the inventory, with a dictionary look-up each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kai_py.api.bounded import remember
from kai_py.api.records.resource import MAX_RESULTS_PER_CLAIM
from kai_py.dra.eligibility import ExpressionCompileError, ExpressionRuntimeError
from kai_py.dra.expressions import CompiledExpressions
from kai_py.dra.inventory import Inventory
from kai_py.dra.rows import DeviceRow

SELECTIONS_KEPT = 4096


@dataclass(slots=True)
class DeviceKind:
    """One device of a kind, and counts; ``by_node``: "" for those of no single node."""

    row: DeviceRow
    devices: int = 0
    by_node: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class DeviceKinds:
    """The kinds of an inventory, cached while it stays the same."""

    inventory: Inventory
    expressions: CompiledExpressions
    _cached: tuple[int, Mapping[str, DeviceKind]] | None = None
    _selected: dict[tuple[str, ...], list[DeviceKind]] = field(default_factory=dict)

    def all(self) -> Mapping[str, DeviceKind]:
        """Every kind by what its devices have in common."""
        if self._cached is None or self._cached[0] != self.inventory.revision:
            self._cached = (self.inventory.revision, _kinds(self.inventory))
            self._selected.clear()
        return self._cached[1]

    def selected_by(self, expressions: Sequence[str]) -> list[DeviceKind]:
        """The kinds whose devices satisfy all expressions; none if an expression fails."""
        kinds, key = self.all(), tuple(expressions)
        cached = self._selected.get(key)
        if cached is None:
            cached = [each for each in kinds.values() if self._satisfies(each.row, key)]
            remember(self._selected, key, cached, SELECTIONS_KEPT)
        return cached

    def _satisfies(self, row: DeviceRow, expressions: Iterable[str]) -> bool:
        try:
            return all(self.expressions.matches(each, row) for each in expressions)
        except (ExpressionRuntimeError, ExpressionCompileError):
            return False


def max_on_one_node(kinds: Iterable[DeviceKind]) -> int:
    """The most devices of these kinds that a claim with allocation mode All gets on one node."""
    by_node: dict[str, int] = {}
    for kind in kinds:
        for node, devices in kind.by_node.items():
            by_node[node] = by_node.get(node, 0) + devices
    anywhere = by_node.pop("", 0)
    return min(anywhere + max(by_node.values(), default=0), MAX_RESULTS_PER_CLAIM)


def _kinds(inventory: Inventory) -> Mapping[str, DeviceKind]:
    kinds: dict[str, DeviceKind] = {}
    for parsed in inventory.slices().values():
        for row in parsed.rows:
            kind = kinds.get(row.kind)
            if kind is None:
                kind = kinds[row.kind] = DeviceKind(row)
            kind.devices += 1
            node = row.reach.node_name
            kind.by_node[node] = kind.by_node.get(node, 0) + 1
    return kinds
