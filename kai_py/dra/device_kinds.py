"""Kinds of devices: equal devices are evaluated once per DeviceClass.

Devices that differ only by identifiers (uuid, PCI address) are of one kind; what holds for one of
them holds for all. So a query for a DeviceClass costs its kinds, not its devices, unless a selector
names identifiers: then it costs the devices of the kinds. O(devices) once per change of the
inventory, with a dictionary look-up each.
"""

from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec import Struct, field

from kai_py.api.bounded import remember
from kai_py.api.records.resource import MAX_RESULTS_PER_CLAIM, DeviceSelector
from kai_py.dra.eligibility import ExpressionCompileError, ExpressionRuntimeError
from kai_py.dra.expressions import CompiledExpressions
from kai_py.dra.gpu_weight import GpuWeights
from kai_py.dra.inventory import Inventory
from kai_py.dra.rows import DeviceRow, names_identifier
from kai_py.dra.spending import SelectorAllowance, SelectorsTooExpensiveError

COST_OF_REQUEST, COST_OF_REQUESTS = 20_000, 200_000
"""What evaluating the selectors of one request may cost, and of all between two cycles."""

COST_OF_CLASS = 2_000_000
"""What evaluating the selectors of a DeviceClass, which administrators write, may cost."""

SELECTIONS_KEPT = 4096
"""Results kept of the selectors of classes, and as many of the selectors of requests."""


class DeviceKind(Struct):
    """The devices of a kind, or some of them, by node; "" for those of no single node.

    ``gpus``: the most that any of them counts as where its driver or its class counts as GPUs.
    """

    gpus: float = 0.0
    rows: list[DeviceRow] = field(default_factory=list)
    by_node: dict[str, int] = field(default_factory=dict)

    @property
    def row(self) -> DeviceRow:
        """One of the devices."""
        return self.rows[0]

    @property
    def devices(self) -> int:
        """How many there are."""
        return len(self.rows)

    def devices_beside(self, nodes: Set[str]) -> int:
        """How many there are on other nodes, or on no single one."""
        return self.devices - sum(self.by_node[node] for node in nodes & self.by_node.keys())

    def add(self, row: DeviceRow, gpus: float) -> None:
        """Take in a device."""
        self.rows.append(row)
        self.gpus = max(self.gpus, gpus)
        node = row.reach.node_name
        self.by_node[node] = self.by_node.get(node, 0) + 1


class DeviceKinds(Struct):
    """The kinds of an inventory, cached while it stays the same.

    Selectors of requests are written by users and evaluated here as their objects come in, so they
    may cost little: a request whose selectors cost more counts as any device of its class.
    """

    inventory: Inventory
    weights: GpuWeights
    _of_classes: CompiledExpressions = field(
        default_factory=lambda: CompiledExpressions(SelectorAllowance(COST_OF_CLASS))
    )
    _of_requests: CompiledExpressions = field(
        default_factory=lambda: CompiledExpressions(
            SelectorAllowance(COST_OF_REQUEST, COST_OF_REQUESTS)
        )
    )
    _cached: tuple[int, Mapping[str, DeviceKind]] | None = None
    _selected: dict[tuple[str, ...], list[DeviceKind]] = field(default_factory=dict)
    _requested: dict[tuple[Sequence[str], ...], list[DeviceKind] | None] = field(
        default_factory=dict
    )

    def start_cycle(self) -> None:
        """What may be spent on the requests that come in is whole again."""
        self._of_classes.allowance.start_cycle()
        self._of_requests.allowance.start_cycle()

    def all(self) -> Mapping[str, DeviceKind]:
        """Every kind by what its devices have in common."""
        if self._cached is None or self._cached[0] != self.inventory.revision:
            self._cached = (self.inventory.revision, _kinds(self.inventory, self.weights))
            self._selected.clear()
            self._requested.clear()
        return self._cached[1]

    def selected_by(self, of_class: Sequence[str]) -> list[DeviceKind]:
        """The kinds whose devices satisfy all selectors of a class; none if one fails."""
        kinds, key = self.all(), tuple(of_class)
        cached = self._selected.get(key)
        if cached is None:
            cached = _satisfying(self._of_classes, kinds.values(), key) or []
            remember(self._selected, key, cached, SELECTIONS_KEPT)
        return cached

    def requested(self, of_class: Sequence[str], own: Sequence[str]) -> list[DeviceKind]:
        """The kinds a request can get; all of its class if its own selectors match none of them.

        So too if they cost too much to evaluate here.
        """
        return self.matching(of_class, own) or self.selected_by(of_class)

    def matching(self, of_class: Sequence[str], own: Sequence[str]) -> list[DeviceKind] | None:
        """The kinds that satisfy the selectors of a class and of a request.

        None where those of the request cost too much to evaluate here.
        """
        kinds = self.selected_by(of_class)
        if not own:
            return kinds
        key = tuple(of_class), tuple(own)
        if key not in self._requested:
            found = _satisfying(self._of_requests, kinds, key[1])
            if found is None and self._of_requests.allowance.cut_short:
                return None
            remember(self._requested, key, found, SELECTIONS_KEPT)
        return self._requested[key]


class PossibleDevices(Struct, frozen=True):
    """Devices that a request could get while all are free.

    ``by_node``: on each node; ``anywhere``: those that several nodes reach. ``are_shared``: some of
    them may be allocated several times.
    """

    by_node: Mapping[str, int]
    anywhere: int
    are_shared: bool


def possible_devices(kinds: Iterable[DeviceKind]) -> PossibleDevices:
    """The devices of these kinds."""
    by_node: dict[str, int] = {}
    shared = False
    for kind in kinds:
        shared = shared or kind.row.cel.allow_multiple_allocations
        for node, devices in kind.by_node.items():
            by_node[node] = by_node.get(node, 0) + devices
    return PossibleDevices(by_node, by_node.pop("", 0), shared)


def selector_texts(selectors: Iterable[DeviceSelector]) -> list[str]:
    """The CEL expressions of the selectors of a class or a request."""
    return [each.cel.expression for each in selectors if each.cel is not None]


def _satisfying(
    expressions: CompiledExpressions, kinds: Iterable[DeviceKind], texts: tuple[str, ...]
) -> list[DeviceKind] | None:
    """The kinds that satisfy all of ``texts``; None if these cost too much to evaluate."""
    try:
        expressions.allowance.begin("\0".join(texts).encode())
        if not any(map(names_identifier, texts)):
            return [each for each in kinds if _satisfies(expressions, each.row, texts)]
        parts = (_part_of_kind(expressions, each, texts) for each in kinds)
        return [each for each in parts if each.rows]
    except SelectorsTooExpensiveError:
        return None


def _part_of_kind(
    expressions: CompiledExpressions, kind: DeviceKind, texts: tuple[str, ...]
) -> DeviceKind:
    """The devices of a kind that satisfy all of ``texts``."""
    part = DeviceKind()
    for row in kind.rows:
        if _satisfies(expressions, row, texts):
            part.add(row, kind.gpus)
    return part


def _satisfies(expressions: CompiledExpressions, row: DeviceRow, texts: Iterable[str]) -> bool:
    try:
        return all(expressions.matches(each, row) for each in texts)
    except (ExpressionRuntimeError, ExpressionCompileError):
        return False


def max_on_one_node(kinds: Iterable[DeviceKind]) -> int:
    """The most devices of these kinds that a claim with allocation mode All gets on one node."""
    return max(devices_by_node(kinds).values(), default=0)


def devices_by_node(kinds: Iterable[DeviceKind]) -> dict[str, int]:
    """What a claim with allocation mode All gets on each node; "" for nodes with none of its own.

    Devices that several nodes reach count on each node.
    """
    by_node: dict[str, int] = {}
    for kind in kinds:
        for node, devices in kind.by_node.items():
            by_node[node] = by_node.get(node, 0) + devices
    anywhere = by_node.pop("", 0)
    shared = {"": anywhere} if anywhere else {}
    return {
        node: min(anywhere + devices, MAX_RESULTS_PER_CLAIM)
        for node, devices in ({"": 0} | by_node if shared else by_node).items()
    }


def _kinds(inventory: Inventory, weights: GpuWeights) -> Mapping[str, DeviceKind]:
    kinds: dict[str, DeviceKind] = {}
    for parsed in inventory.slices().values():
        for row in parsed.rows:
            kind = kinds.get(row.kind)
            if kind is None:
                kind = kinds[row.kind] = DeviceKind()
            kind.add(row, weights.of(row))
    return kinds
