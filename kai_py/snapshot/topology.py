"""Labels of all nodes as codes: of one key, or of the levels of a topology.

A topology is a list of label keys, coarse to fine. A domain of a level is a distinct combination of
the values of its label and of all coarser ones. A node that lacks a label has no domain at that
level, but counts for the levels it has, finer or coarser.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from msgspec import Struct

from kai_py.api.records.kai import KaiTopology
from kai_py.snapshot.resources import Bools, Ints

NO_DOMAIN = -1


class LabelColumn(Struct, frozen=True):
    """One label of all nodes. ``codes``: (nodes,) int64; ``values[code]``, code 0 = absent."""

    codes: Ints
    values: tuple[str, ...]

    def matches(self, wanted: Sequence[str]) -> Bools:
        """(nodes,) bool: the label is present and its value is one of ``wanted``."""
        chosen = np.zeros(len(self.values), dtype=np.bool_)
        chosen[[code for code, value in enumerate(self.values) if code and value in wanted]] = True
        return chosen[self.codes]


class TopologyLevel(Struct, frozen=True):
    """One level of a topology.

    ``codes``: (nodes,) int64 domain of each node, ``NO_DOMAIN`` where it has none. ``names``: the
    domains, values joined by "/", in ascending order; ``first`` (domains,): a node of each.
    """

    key: str
    codes: Ints
    names: tuple[str, ...]
    first: Ints

    def sums(self, amounts: Ints) -> Ints:
        """(domains,) ``amounts`` (nodes,), or of the first nodes, added up per domain."""
        codes = self.codes[: len(amounts)] - NO_DOMAIN
        shifted = np.bincount(codes, weights=amounts, minlength=len(self.names) + 1)
        return shifted[1:].astype(np.int64)


def encode_label(values: Sequence[str | None]) -> LabelColumn:
    """The column of a label with these values, None where it is absent."""
    codes: dict[str, int] = {}
    column = np.zeros(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        if value is not None:
            column[row] = codes.setdefault(value, len(codes) + 1)
    column.flags.writeable = False
    return LabelColumn(codes=column, values=("", *codes))


def topology_levels(columns: Mapping[str, LabelColumn]) -> tuple[TopologyLevel, ...]:
    """The levels of a topology from its labels, coarse to fine."""
    levels: list[TopologyLevel] = []
    paths, of_node = [""], np.int64(0)
    for key, column in columns.items():
        values = len(column.values)
        pairs, first, of_node = np.unique(
            of_node * values + column.codes, return_index=True, return_inverse=True
        )
        split = [divmod(pair, values) for pair in pairs.tolist()]
        paths = [f"{paths[above]}/{column.values[code] if code else ''}" for above, code in split]
        named = sorted((path, at) for at, path in enumerate(paths) if split[at][1])
        order = [at for _, at in named]
        domains = np.full(len(paths), NO_DOMAIN, dtype=np.int64)
        domains[order] = np.arange(len(named))
        names = tuple(path[1:] for path, _ in named)
        levels.append(TopologyLevel(key, domains[of_node], names, first[order]))
    return tuple(levels)


class Topologies:
    """Node label keys of the levels of each topology, by its name."""

    kinds: ClassVar[tuple[str, ...]] = ("topologies",)

    def __init__(self) -> None:
        """Start empty."""
        self._levels: dict[str, tuple[str, ...]] = {}

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in a change of a watched object."""
        if isinstance(new, KaiTopology):
            # The API allows a label twice; a level nested in itself is that level.
            self._levels[new.metadata.name] = tuple(dict.fromkeys(new.node_labels))
        elif isinstance(old, KaiTopology):
            self._levels.pop(old.metadata.name, None)

    def levels(self) -> dict[str, tuple[str, ...]]:
        """Node label keys by topology, the coarsest first."""
        return dict(self._levels)
