"""In which domain of a topology may, or should, pods be placed together?

A topology is a list of node label keys, coarse to fine. A domain of a level is a distinct
combination of the values of that label and of all coarser ones. A node that lacks a label has no
domain at that level, but counts for the levels it has, finer or coarser.

- A *required* level: all pods go into one domain of that level, or of a finer one.
- A *preferred* level: a single domain of that level if one holds them all, else the next coarser,
  down to no bound at all; in that the pods go to few preferred domains near each other.
- Both: as preferred, but never coarser than required.

Within a level the tightest domain that holds all pods comes first, judged from the coarsest level
down and by name where they tie, so that roomy domains stay whole for those who need them. Pods that
need several domains fill the roomiest first, then those with the fewest hops to it in the tree of
levels; where pods of the group run already, the hops count from them. O(levels x nodes log nodes)
per question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Floats, Ints

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a topology.

    ``codes``: (nodes,) int64 domain of each node, ``NOWHERE`` where it has none. ``names``: the
    domains, values joined by "/", in ascending order.
    """

    key: str
    codes: Ints
    names: tuple[str, ...]

    def sums(self, amounts: Ints) -> Ints:
        """(domains,) ``amounts`` (nodes,) added up per domain."""
        inside = self.codes != NOWHERE
        summed = np.bincount(self.codes[inside], weights=amounts[inside], minlength=len(self.names))
        return summed.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A domain to try; ``mask``: (nodes,) bool. The unbounded one has no name."""

    name: str
    mask: Bools
    preference: Floats | None = None


def levels_of(nodes: NodeColumns, keys: Sequence[str]) -> tuple[Level, ...]:
    """The levels of a topology over ``nodes``."""
    levels: list[Level] = []
    paths, of_node = [""], np.zeros(len(nodes), dtype=np.int64)
    for key in keys:
        column = nodes.label(key)
        values = len(column.values)
        pairs, of_node = np.unique(of_node * values + column.codes, return_inverse=True)
        split = [divmod(pair, values) for pair in pairs.tolist()]
        paths = [f"{paths[above]}/{column.values[code] if code else ''}" for above, code in split]
        named = sorted((path, at) for at, path in enumerate(paths) if split[at][1])
        domains = np.full(len(paths), NOWHERE, dtype=np.int64)
        domains[[at for _, at in named]] = np.arange(len(named))
        levels.append(Level(key, domains[of_node], tuple(path[1:] for path, _ in named)))
    return tuple(levels)


def candidates(
    levels: Sequence[Level],
    copies: Sequence[Ints],
    counts: Sequence[int],
    *,
    required: int | None,
    preferred: int | None,
    pinned: Bools | None = None,
) -> Iterator[Candidate]:
    """Domains to try, in order.

    ``copies``: per shape (nodes,) how many of its pods fit; ``counts``: how many are wanted.
    ``required``, ``preferred``: positions in ``levels``. ``pinned``: (nodes,) bool, where pods of
    the group run already: only their domains of the required level are left.
    """
    finest = preferred if preferred is not None else required
    coarsest = 0 if required is None else required
    allowed = None if required is None or pinned is None else _domains_of(levels[required], pinned)
    for position in range(len(levels) - 1 if finest is None else finest, coarsest - 1, -1):
        level = levels[position]
        holds = np.ones(len(level.names), dtype=np.bool_)
        for fitting, count in zip(copies, counts, strict=True):
            holds &= level.sums(fitting) >= count
        for domain in _tightest_first(levels[: position + 1], copies[0], holds):
            mask = level.codes == domain
            if required is not None and (levels[required].codes[mask] == NOWHERE).any():
                continue
            if allowed is not None:
                mask = mask & allowed
            if mask.any():
                finer = () if preferred is None else levels[position + 1 : preferred + 1]
                yield Candidate(level.names[domain], mask, _near(finer, copies[0] * mask, pinned))
    if required is None:
        everywhere = np.ones(len(copies[0]), dtype=np.bool_)
        finer = () if preferred is None else levels[: preferred + 1]
        yield Candidate("", everywhere, _near(finer, copies[0], pinned))


def _tightest_first(lines: Sequence[Level], copies: Ints, holds: Bools) -> list[int]:
    """Domains of the last level that hold the pods, by the room of each level from the top."""
    codes = lines[-1].codes
    inside = np.flatnonzero(codes != NOWHERE)
    domains, first = np.unique(codes[inside], return_index=True)
    member = inside[first]
    room = [_room(level, copies, member) for level in lines]
    order = np.lexsort((domains, *reversed(room)))
    return [int(domain) for domain in domains[order] if holds[domain]]


def _room(level: Level, copies: Ints, rows: Ints) -> Ints:
    """(rows,) copies that fit into the domain of each of some nodes, 0 where it has none."""
    codes = level.codes[rows]
    sums = np.append(level.sums(copies), 0)
    return np.asarray(np.where(codes == NOWHERE, 0, sums[codes]))


def _domains_of(level: Level, pinned: Bools) -> Bools:
    """(nodes,) bool: in a domain in which a pinned node lies."""
    held = np.unique(level.codes[pinned])
    return np.isin(level.codes, held[held != NOWHERE])


def _near(lines: Sequence[Level], copies: Ints, pinned: Bools | None) -> Floats | None:
    """(nodes,) a preference below 1 that fills one domain after the other, near ones in turn.

    From the coarsest level down: domains of ``pinned`` nodes, then the roomiest, then by name. So
    all that is below a domain comes before what is beside it.
    """
    if not lines:
        return None
    keys: list[Ints] = []
    for level in lines:
        named = level.codes != NOWHERE
        here = named if pinned is None else _domains_of(level, pinned)
        away = np.where(named, np.where(here, 0, 1), 2)
        keys += [away, -_room(level, copies, np.arange(len(copies))), level.codes]
    order, rank = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    preference: Floats = (len(order) - rank.reshape(-1)) / (2.0 * (len(order) + 1))
    return preference
