"""Nodes as columns: names sorted, one contiguous row per resource, labels as dictionary codes.

A filter or score over all nodes is a handful of numpy operations: labels are encoded per key on
first use (code 0 = the label is absent), taints per distinct list of taints.

Labels mark spot nodes; ``SpotChoice`` says whether pods of a shape may use them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.node_departures import Departure, DepartureStage
from kai_py.api.records.node import Node, Taint
from kai_py.api.records.partial import unreadable_fields
from kai_py.api.spot import SpotUse
from kai_py.snapshot.resources import (
    MAX_NODE_GPUS,
    Bools,
    Floats,
    Ints,
    ResourceIndex,
    amount,
    largest_amount,
)
from kai_py.snapshot.topology import LabelColumn, TopologyLevel, encode_label, topology_levels

Scalar = TypeVar("Scalar", bound=np.generic)

NO_DEPARTURES: Mapping[str, Departure] = MappingProxyType({})


@dataclass(frozen=True)
class NodeColumns:
    """All nodes at one instant; arrays are read-only.

    ``allocatable``: (resources, nodes) float64 in the units of ``ResourceIndex``.
    ``ready``, ``unschedulable``: (nodes,) bool.
    ``taint_lists``: distinct taint lists; ``taint_codes``: (nodes,) int64 into them.
    ``departures``: by name, the nodes that are about to go.
    ``generation`` changes whenever anything here changes, so it keys caches of static masks.
    """

    records: tuple[Node, ...]
    names: tuple[str, ...]
    allocatable: Floats
    ready: Bools
    unschedulable: Bools
    taint_lists: tuple[tuple[Taint, ...], ...]
    taint_codes: Ints
    generation: int
    problems: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, int] = field(default_factory=dict)
    departures: Mapping[str, Departure] = field(default_factory=dict)
    _labels: dict[str, LabelColumn] = field(default_factory=dict, repr=False)
    _levels: dict[tuple[str, ...], tuple[TopologyLevel, ...]] = field(
        default_factory=dict, repr=False
    )
    _label_keys: list[str] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def reported(self) -> Sequence[bool]:
        """(resources,) whether any node has any of the resource. O(nodes)."""
        listed: list[bool] = np.asarray(self.allocatable.any(axis=1)).tolist()
        return listed

    def label(self, key: str) -> LabelColumn:
        """The column of label ``key``, encoded on first use."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = encode_label(
                [r.metadata.labels.get(key) for r in self.records]
            )
        return column

    def first(self, count: int) -> "NodeColumns":
        """The first ``count`` nodes, of the same generation."""
        positions = {name: row for row, name in enumerate(self.names[:count])}
        return replace(
            self,
            records=self.records[:count],
            names=self.names[:count],
            allocatable=self.allocatable[:, :count],
            ready=self.ready[:count],
            unschedulable=self.unschedulable[:count],
            taint_codes=self.taint_codes[:count],
            positions=positions,
            departures={n: each for n, each in self.departures.items() if n in positions},
            _labels={},
            _levels={},
            _label_keys=[],
        )

    def departing(self, *stages: DepartureStage) -> Bools:
        """(nodes,) bool: the nodes at one of these stages."""
        mask = np.zeros(len(self.names), dtype=np.bool_)
        rows = [self.positions[n] for n, each in self.departures.items() if each.stage in stages]
        mask[rows] = True
        return mask

    def label_keys(self) -> tuple[str, ...]:
        """Every label that any node has, sorted; collected on first use."""
        if not self._label_keys:
            keys = {key for each in self.records for key in each.metadata.labels}
            self._label_keys.extend(sorted(keys))
        return tuple(self._label_keys)

    def levels(self, keys: tuple[str, ...]) -> tuple[TopologyLevel, ...]:
        """The levels of the topology of these labels, coarse to fine; encoded on first use."""
        known = self._levels.get(keys)
        if known is None:
            known = self._levels[keys] = topology_levels({key: self.label(key) for key in keys})
        return known

    def name_column(self) -> LabelColumn:
        """``metadata.name`` as a column, for matchFields."""
        column = self._labels.get("metadata.name")
        if column is None:
            column = self._labels["metadata.name"] = encode_label(list(self.names))
        return column


def at_codes(by_code: NDArray[Scalar], codes: Ints) -> NDArray[Scalar]:
    """(nodes,) for each node the value of its code."""
    if len(by_code) == 1:
        # As a rule all nodes are alike: filling is several times as fast as looking up.
        return by_code.repeat(len(codes))
    return by_code[codes]


def node_columns(
    nodes: Sequence[Node],
    resources: ResourceIndex,
    generation: int,
    departures: Mapping[str, Departure] = NO_DEPARTURES,
) -> NodeColumns:
    """Columns of ``nodes``; one with malformed or negative amounts is kept, unusable, reported."""
    ordered = sorted(nodes, key=lambda node: node.metadata.name)
    allocatable = np.zeros((len(resources.names), len(ordered)))
    ready = np.zeros(len(ordered), dtype=np.bool_)
    problems: dict[str, str] = {}
    taint_lists: dict[tuple[Taint, ...], int] = {}
    taint_codes = np.zeros(len(ordered), dtype=np.int64)
    for row, node in enumerate(ordered):
        read = read_allocatable(node, resources)
        allocatable[:, row] = read.column
        ready[row] = read.usable and is_ready(node)
        taint_codes[row] = taint_lists.setdefault(node.spec.taints, len(taint_lists))
        if read.problem:
            problems[node.metadata.name] = read.problem
    names = tuple(node.metadata.name for node in ordered)
    columns = NodeColumns(
        records=tuple(ordered),
        names=names,
        allocatable=allocatable,
        ready=ready,
        unschedulable=np.array([node.spec.unschedulable for node in ordered], dtype=np.bool_),
        taint_lists=tuple(taint_lists),
        taint_codes=taint_codes,
        generation=generation,
        problems=problems,
        positions={name: row for row, name in enumerate(names)},
        departures=departures,
    )
    for array in (allocatable, ready, columns.unschedulable, taint_codes):
        array.flags.writeable = False
    return columns


def with_node(
    columns: NodeColumns,
    node: Node,
    resources: ResourceIndex,
    generation: int,
    departures: Mapping[str, Departure] = NO_DEPARTURES,
) -> NodeColumns:
    """``columns`` with one known node replaced: a row is written, nothing is rebuilt."""
    row = columns.positions[node.metadata.name]
    allocatable, ready = columns.allocatable.copy(), columns.ready.copy()
    unschedulable, taint_codes = columns.unschedulable.copy(), columns.taint_codes.copy()
    read = read_allocatable(node, resources)
    allocatable[:, row] = read.column
    ready[row] = read.usable and is_ready(node)
    unschedulable[row] = node.spec.unschedulable
    taint_lists = columns.taint_lists
    if node.spec.taints not in taint_lists:
        taint_lists = (*taint_lists, node.spec.taints)
    taint_codes[row] = taint_lists.index(node.spec.taints)
    problems = {name: text for name, text in columns.problems.items() if name != node.metadata.name}
    if read.problem:
        problems[node.metadata.name] = read.problem
    for array in (allocatable, ready, unschedulable, taint_codes):
        array.flags.writeable = False
    return replace(
        columns,
        records=(*columns.records[:row], node, *columns.records[row + 1 :]),
        allocatable=allocatable,
        ready=ready,
        unschedulable=unschedulable,
        taint_lists=taint_lists,
        taint_codes=taint_codes,
        generation=generation,
        problems=problems,
        departures=departures,
        _labels={},
        _levels={},
    )


class Allocatable(NamedTuple):
    """``status.allocatable`` as (resources,) float64; ``problem``: what is wrong with it, if any.

    ``usable``: whether the node takes pods nevertheless.
    """

    column: Floats
    problem: str = ""
    usable: bool = True


def read_allocatable(node: Node, resources: ResourceIndex) -> Allocatable:
    """The amounts of a node; what exceeds a ceiling counts as that and is reported."""
    column, place = np.zeros(len(resources.names)), f"node {node.metadata.name}: status.allocatable"
    excess = ""
    if node.metadata.unreadable:
        problem = f"node {node.metadata.name}: {unreadable_fields(node.metadata)}"
        return Allocatable(column, f"{problem}; the node is not used", usable=False)
    for name, quantity in node.status.allocatable.items():
        try:
            value = amount(name, quantity)
        except ValueError as error:
            return Allocatable(column * 0, f"{place}[{name}]: {error}", usable=False)
        if value < 0:
            problem = f"is negative ({quantity}); the node is not used"
            return Allocatable(column * 0, f"{place}[{name}] {problem}", usable=False)
        ceiling = MAX_NODE_GPUS if name == GPU_RESOURCE else largest_amount(name)
        if value >= ceiling and (value > ceiling or name != GPU_RESOURCE):
            value = float(ceiling)
            excess = f"{place}[{name}]: {quantity} is too large, it counts as {ceiling:.0f}"
        if name in resources.positions:
            column[resources.positions[name]] = value
    return Allocatable(column, excess)


def is_ready(node: Node) -> bool:
    """Whether the node's Ready condition is True."""
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


SpotLabelValues = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels of spot nodes with their values, in order."""


class SpotChoice(Struct, frozen=True):
    """Whether pods go to spot nodes; ``labels``: those of spot nodes."""

    use: SpotUse
    labels: SpotLabelValues


def spot_nodes(labels: SpotLabelValues, nodes: NodeColumns) -> Bools:
    """(nodes,) bool: the spot nodes."""
    found = np.zeros(len(nodes), dtype=np.bool_)
    for key, values in labels:
        found |= nodes.label(key).matches(values)
    return found
