"""Classes of nodes that are equal for a set of claims and share one result.

Two nodes are equal when their devices, in order, are of equal kinds, get equal results from every
selector, and have equal patterns of the attributes that constraints (or the preference for nearby
devices) compare. Compared attributes count by pattern only: serial numbers, PCI addresses and the
like do not distinguish nodes. Attributes with lists, and those that derived attributes read, count
by value.

Complexity: O(devices) array work, plus the evaluation of new combinations of values.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from kai_py.cel.expression import CompileError
from kai_py.dra.cluster_layout import ClusterLayout, Interner, Ints
from kai_py.dra.parsed_claims import ParsedClaims
from kai_py.dra.selectors.columns import HAS, Column, columns_of
from kai_py.dra.selectors.masks import mask
from kai_py.dra.selectors.selector import compile_attribute, compile_selector

LOCALITY_ATTRIBUTES = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")
"""Attributes that say which devices of a node are near each other (KEP-4381, KEP-6072)."""


class NodeClasses(Struct, eq=False):
    """Numbers nodes by what ``claims`` can distinguish; numbers stay valid across layouts."""

    claims: ParsedClaims
    compared_attributes: tuple[str, ...] = ()
    """Further attributes whose pattern matters."""
    _row_numbers: Interner = field(default_factory=Interner)
    _node_numbers: Interner = field(default_factory=Interner)

    @property
    def size(self) -> int:
        """The number of classes seen, of devices and of nodes."""
        return self._row_numbers.size + self._node_numbers.size

    def classify(self, layout: ClusterLayout) -> Ints:
        """(nodes,) int64: equal numbers mean equal nodes."""
        by_value, by_pattern = self._split_columns(layout)
        columns = [layout.kinds, *self._selector_results(layout), *self._exclusions(layout)]
        columns += [layout.table.column(column) for column in by_value]
        rows = self._number_rows(columns)
        entries = [rows[layout.positions]]
        entries += [_pattern(layout, layout.table.column(column)) for column in by_pattern]
        content = np.stack(entries, axis=1).astype(np.int32).tobytes()
        width = 4 * len(entries)
        bounds = (layout.offsets * width).tolist()
        return np.fromiter(
            (
                self._node_numbers[signature, content[bounds[node] : bounds[node + 1]]]
                for node, signature in enumerate(layout.view_signatures.tolist())
            ),
            np.int64,
            len(layout.nodes),
        )

    def _selector_results(self, layout: ClusterLayout) -> Iterator[Ints]:
        """(rows,) per selector: no, yes or error."""
        texts = {s.expression for option in self.claims.options for s in option.selectors}
        for text in sorted(texts):
            layout.table.encoding.allowance.read(text)
            selector = compile_selector(text)
            if not isinstance(selector, CompileError):
                result = mask(selector, layout.table)
                yield result.value + 2 * result.error.astype(np.int64)

    def _exclusions(self, layout: ClusterLayout) -> Iterator[Ints]:
        """(rows,) per set of excluded kinds: whether a device is of one of them."""
        for kinds in dict.fromkeys(each.excluded for each in self.claims.options if each.excluded):
            excluded = (row.kind in kinds for row in layout.rows)
            yield np.fromiter(excluded, np.int64, len(layout.rows))

    def _split_columns(self, layout: ClusterLayout) -> tuple[list[Column], list[Column]]:
        """Columns that count by value, and those that count by pattern."""
        names = {
            constraint.attribute for claim in self.claims.claims for constraint in claim.constraints
        }
        by_value: dict[Column, None] = {}
        by_pattern: dict[Column, None] = {}
        for name in sorted(names | set(self.compared_attributes)):
            column = _column(name)
            by_value[HAS, *column] = None
            (by_value if _holds_lists(layout, column) else by_pattern)[column] = None
        by_value.update(dict.fromkeys(_derived_columns(self.claims)))
        return list(by_value), list(by_pattern)

    def _number_rows(self, columns: Sequence[Ints]) -> Ints:
        """(rows,) int64: equal numbers mean equal values in all columns."""
        groups, first = _group_rows(columns)
        values = zip(*(column[first].tolist() for column in columns), strict=True)
        numbers = np.fromiter((self._row_numbers[v] for v in values), np.int64, len(first))
        return numbers[groups]


def _column(name: str) -> Column:
    domain, _, bare = name.rpartition("/")
    return ("attributes", domain, bare)


def _derived_columns(claims: ParsedClaims) -> Iterator[Column]:
    for option in claims.options:
        for derived in option.derived:
            compiled = compile_attribute(derived.expression)
            if not isinstance(compiled, CompileError):
                yield from columns_of(compiled.expression.checked.root)


def _holds_lists(layout: ClusterLayout, column: Column) -> bool:
    """Whether any device has a list, or nothing readable, under an attribute."""
    codes = layout.table.column(column)
    _, first = np.unique(codes, return_index=True)
    for row in first.tolist():
        value = layout.table.devices[row].fields
        for key in column:
            value = value.get(key, {})
        if not isinstance(value, int | str) and value:
            return True
    return False


def _pattern(layout: ClusterLayout, column: Ints) -> Ints:
    """Replace values by the position, within the node, of the first device with that value."""
    values = column[layout.positions]
    sizes = np.diff(layout.offsets)
    node = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    width = int(values.max(initial=0)) + 1
    _, first, inverse = np.unique(node * width + values, return_index=True, return_inverse=True)
    position: Ints = first[inverse] - layout.offsets[node]
    return position


def _group_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Number the distinct combinations of values: (rows,) group and (groups,) first row."""
    combined = np.zeros(len(columns[0]), dtype=np.int64)
    first = combined[:0]
    for column in columns:
        width = int(column.max(initial=0)) + 1
        _, first, combined = np.unique(
            combined * width + column, return_index=True, return_inverse=True
        )
    return combined, first
