"""Fill: the nodes for k pods of one shape, found at once, exactly as placing them one by one would.

The rule of one step, for the next of the pods that are left:

- *bin-pack*: stay on the node chosen last while pods fit. Else, among the nodes with the highest
  preference, take the tightest one that holds all that are left, or, if none does, the one that
  holds most. So k pods use the fewest nodes, and what they leave over is as whole as possible.
- *spread*: among the nodes with the highest preference, take the one that holds most.

Ties go to the node that is fuller already (bin-pack) and then to the lower row. Cost: one sort of
the nodes that fit, O(n log n), however many pods.
"""

from collections.abc import Iterator

import numpy as np

from kai_py.api.choices import FillStrategy
from kai_py.snapshot.resources import Floats, Ints


def fill(
    count: int,
    replicas: Ints,
    preference: Ints,
    slack: Floats,
    strategy: FillStrategy = FillStrategy.BINPACK,
    *,
    preferred_replicas: Ints | None = None,
) -> list[tuple[int, int]]:
    """(node row, pods) in placement order; fewer than ``count`` pods when they don't all fit.

    ``replicas``: (nodes,) int64, pods of the shape that fit. ``preference``: (nodes,) int64, ranks,
    higher first. ``slack``: (nodes,) float64, how empty a node is; only breaks ties.
    ``preferred_replicas``: (nodes,) int64, of the replicas those that bin-packing uses up before
    any other of the same preference.
    """
    (candidates,) = replicas.nonzero()
    if count <= 0 or not candidates.size:
        return []
    spread = strategy is FillStrategy.SPREAD
    placed: list[tuple[int, int]] = []
    for rows in _tiers(candidates, preference):
        parts = (
            (replicas,)
            if preferred_replicas is None or spread
            else (preferred_replicas, replicas - preferred_replicas)
        )
        for part in parts:
            tier = _spread(count, rows, part) if spread else _pack(count, rows, part, slack)
            placed += [(row, pods) for row, pods in tier if pods]
            count -= sum(pods for _, pods in tier)
            if not count:
                return placed
    return placed


def _tiers(candidates: Ints, preference: Ints) -> Iterator[Ints]:
    """Rows of equal preference, most preferred first."""
    wanted = preference[candidates]
    if (wanted == wanted[0]).all():
        yield candidates
        return
    for value in np.unique(wanted)[::-1]:
        yield candidates[wanted == value]


def _pack(count: int, rows: Ints, replicas: Ints, slack: Floats) -> list[tuple[int, int]]:
    """Fill the nodes that hold most until one of the others holds the rest; ``rows`` ascend."""
    fits = replicas[rows]
    holding = fits >= count
    if holding.any():
        tightest = rows[fits == fits[holding].min()]
        return [(int(tightest[slack[tightest].argmin()]), count)]
    order = np.lexsort((slack[rows], -fits))
    full = order[: np.searchsorted(np.cumsum(fits[order[:count]]), count)]
    placed = list(zip(rows[full].tolist(), fits[full].tolist(), strict=True))
    others = -fits[order[len(full) :]]
    if not others.size or not others[0]:
        return placed
    left = count - sum(pods for _, pods in placed)
    least = others[np.searchsorted(others, -left, side="right") - 1]
    tightest = order[len(full) + np.searchsorted(others, least)]
    return [*placed, (int(rows[tightest]), left)]


def _spread(count: int, rows: Ints, replicas: Ints) -> list[tuple[int, int]]:
    """Lower every node to one water level; what the last level can't take goes to lower rows."""
    fits = replicas[rows]
    if count >= fits.sum():
        return [(int(row), int(pods)) for row, pods in zip(rows, fits, strict=True)]
    low, high = 0, int(fits.max())
    while low < high:
        level = (low + high) // 2
        if np.maximum(fits - level, 0).sum() <= count:
            high = level
        else:
            low = level + 1
    given = np.maximum(fits - low, 0)
    at_level = np.flatnonzero(np.minimum(fits, low) == low) if low else np.empty(0, np.int64)
    given[at_level[: count - int(given.sum())]] += 1
    return [(int(row), int(pods)) for row, pods in zip(rows, given, strict=True) if pods]
