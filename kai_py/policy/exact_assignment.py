"""Do pods of several sizes fit, where the largest first did not?

Exact search, largest pod first: each pod tries the nodes with room, the tightest first, and of
nodes that look alike (same room, open to the same pods) only one. It is bounded by ``steps``, so a
"no" may also mean that it was too long.

Of n pods, a kind that fits on n nodes or more always finds one of those that no other pod uses, so
n of its nodes are enough for the search. O(resources x nodes), then O(steps x resources x n).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kai_py.snapshot.resources import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class PodClass:
    """``count`` pods that each take ``request`` (resources,), on the nodes of ``mask`` (nodes,)."""

    count: int
    request: Floats
    mask: Bools


def assign(pod_classes: Sequence[PodClass], free: Floats, steps: int) -> list[list[int]] | None:
    """Per kind the node row of each of its pods; None where none was found.

    ``free``: (resources, nodes) float64. The first kind should be the hardest to place.
    """
    nodes = _nodes_to_try(pod_classes, free)
    masks = np.array([kind.mask[nodes] for kind in pod_classes])
    search = _Search([k for k, kind in enumerate(pod_classes) for _ in range(kind.count)], steps)
    if not search.run(0, pod_classes, masks, free[:, nodes]):
        return None
    rows: list[list[int]] = [[] for _ in pod_classes]
    for kind, row in zip(search.pods, search.rows, strict=True):
        rows[kind].append(int(nodes[row]))
    return rows


def _nodes_to_try(pod_classes: Sequence[PodClass], free: Floats) -> Ints:
    """Rows of the nodes that the search needs, ascending."""
    pods = sum(kind.count for kind in pod_classes)
    chosen = [
        np.flatnonzero(kind.mask & (free >= kind.request[:, None]).all(axis=0))[:pods]
        for kind in pod_classes
    ]
    return np.unique(np.concatenate(chosen)).astype(np.int64)


@dataclass
class _Search:
    """``pods``: the kind of each; ``rows``: where those placed so far are."""

    pods: list[int]
    steps: int

    def __post_init__(self) -> None:
        """Nothing is placed."""
        self.rows: list[int] = []

    def run(self, at: int, pod_classes: Sequence[PodClass], masks: Bools, free: Floats) -> bool:
        """Place the pods from ``at`` on; ``free`` is as before if that fails."""
        if at == len(self.pods):
            return True
        kind = self.pods[at]
        request = pod_classes[kind].request[:, None]
        open_to = masks[kind] & (free >= request).all(axis=0)
        for row in _distinct_rows(np.flatnonzero(open_to), masks, free, request):
            if self.steps <= 0:
                return False
            self.steps -= 1
            free[:, row] -= pod_classes[kind].request
            self.rows.append(row)
            if self.run(at + 1, pod_classes, masks, free):
                return True
            self.rows.pop()
            free[:, row] += pod_classes[kind].request
        return False


def _distinct_rows(rows: Ints, masks: Bools, free: Floats, request: Floats) -> list[int]:
    """One row of those alike, the tightest in what the pod asks for first."""
    asked = np.flatnonzero(request[:, 0] > 0)
    order = np.lexsort((rows, *free[asked][:, rows]))
    first: dict[bytes, int] = {}
    for row in rows[order].tolist():
        first.setdefault(free[:, row].tobytes() + masks[:, row].tobytes(), row)
    return list(first.values())
