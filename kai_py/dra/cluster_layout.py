"""The devices of all nodes in arrays, so that a claim is evaluated on all nodes at once.

A node's devices are positions into one device table; a pool that several nodes see has its rows
once. ``kinds`` and ``view_signatures`` number everything about a device or a node's view that a
result can depend on, apart from names, attributes that no expression reads, and allocations.

Complexity: O(devices) per change of a slice, nothing while slices and nodes stay as they are.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from kai_py.api.records.node import Node
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import Inventory, NodeDevices
from kai_py.dra.rows import DeviceRow, ParsedSlice
from kai_py.dra.selectors.table import DeviceBlock, DeviceTable, Encoding

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Interner(Struct, eq=False):
    """Gives equal values equal numbers for its lifetime; 0 is never given."""

    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def __getitem__(self, value: Hashable) -> int:
        return self._numbers.setdefault(value, len(self._numbers) + 1)

    @property
    def size(self) -> int:
        """The number of values seen."""
        return len(self._numbers)


class LayoutCache(Struct, eq=False):
    """What outlives a layout: encodings, numbers, and the encoded blocks of slices."""

    encoding: Encoding = field(default_factory=Encoding)
    kinds: Interner = field(default_factory=Interner)
    view_signatures: Interner = field(default_factory=Interner)
    _blocks: dict[int, tuple[ParsedSlice, DeviceBlock, Ints]] = field(default_factory=dict)

    def block(self, slice_rows: ParsedSlice) -> tuple[DeviceBlock, Ints]:
        """The CEL block of a slice's devices, and (devices,) their kinds; made once per version."""
        cached = self._blocks.get(id(slice_rows))
        if cached is None:
            block = DeviceBlock([row.cel for row in slice_rows.rows])
            kinds = np.array([self.kinds[_kind(row)] for row in slice_rows.rows], dtype=np.int64)
            # The entry keeps the slice alive, so its id can't be used by another object.
            cached = self._blocks[id(slice_rows)] = (slice_rows, block, kinds)
        return cached[1], cached[2]

    @property
    def size(self) -> int:
        """How much is kept beside the blocks, which go with their slices."""
        return self.encoding.size + self.kinds.size + self.view_signatures.size

    def keep(self, slices: Sequence[ParsedSlice]) -> None:
        """Drop the blocks of all other slices."""
        self._blocks = {id(p): self._blocks[id(p)] for p in slices if id(p) in self._blocks}


class ClusterLayout(Struct, frozen=True, eq=False):
    """Nodes and their devices at one revision of the inventory."""

    nodes: tuple[Node, ...]
    revision: int
    views: tuple[NodeDevices, ...]
    rows: tuple[DeviceRow, ...]
    table: DeviceTable
    kinds: Ints
    """(rows,)"""
    positions: Ints
    """Rows of node n are ``positions[offsets[n]:offsets[n + 1]]``, in the order of its view."""
    offsets: Ints
    """(nodes + 1,)"""
    view_signatures: Ints
    """(nodes,)"""
    nodes_by_pool: dict[PoolID, list[int]]
    """Positions of the nodes that see a pool."""
    row_of: dict[int, int]
    """Position in ``rows`` by id() of the device row."""


def lay_out_cluster(
    inventory: Inventory, nodes: tuple[Node, ...], cache: LayoutCache
) -> ClusterLayout:
    """Build the layout of the devices of ``nodes``."""
    slices = list(inventory.slices().values())
    cache.keep(slices)
    inventory.keep_views(nodes)
    blocks = [cache.block(parsed) for parsed in slices]
    rows = tuple(row for parsed in slices for row in parsed.rows)
    row_of = {id(row): position for position, row in enumerate(rows)}
    views = tuple(inventory.view(node) for node in nodes)
    sizes = np.fromiter((len(view.rows) for view in views), np.int64, len(views))
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    nodes_by_pool: dict[PoolID, list[int]] = {}
    for number, view in enumerate(views):
        for pool in view.pools:
            nodes_by_pool.setdefault(pool.id, []).append(number)
    return ClusterLayout(
        nodes=nodes,
        revision=inventory.revision,
        views=views,
        rows=rows,
        table=DeviceTable([block for block, _ in blocks], cache.encoding),
        kinds=np.concatenate([np.zeros(0, np.int64), *(kinds for _, kinds in blocks)]),
        positions=np.fromiter(
            (row_of[id(row)] for view in views for row in view.rows), np.int64, int(offsets[-1])
        ),
        offsets=offsets,
        view_signatures=np.fromiter(
            (cache.view_signatures[v.signature] for v in views), np.int64, len(views)
        ),
        nodes_by_pool=nodes_by_pool,
        row_of=row_of,
    )


def _kind(row: DeviceRow) -> Hashable:
    """What a result can depend on besides attributes, and how many nodes reach it."""
    return (
        row.id.driver,
        row.shareable,
        row.capacities,
        row.consumes,
        tuple((taint.key, taint.value, taint.effect) for taint in row.taints),
        bool(row.device.binding_conditions),
        row.reach.width,
        row.skip_node_operations,
    )
