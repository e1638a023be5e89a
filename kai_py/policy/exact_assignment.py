"""Exact assignment of pods of several sizes to nodes, for when largest-first fails.

Depth-first search, largest pod first: each pod tries the nodes it fits on, the tightest first, and
only one of several equal nodes (same free amounts, open to the same pods). The search is bounded by
``steps``, so a None may also mean that the bound was reached.

Of n pods in total, a class that fits on n or more nodes always finds one that no other pod uses, so
n of its nodes suffice. O(resources x nodes), then O(steps x resources x n).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from kai_py.policy.fit import holds
from kai_py.snapshot.resources import Bools, Floats, Ints


class PodClass(Struct, frozen=True):
    """``count`` pods of ``request`` (resources,), on the nodes of ``mask`` (nodes,) bool."""

    count: int
    request: Floats
    mask: Bools


def assign(pod_classes: Sequence[PodClass], free: Floats, steps: int) -> list[list[int]] | None:
    """Per class, the node row of each of its pods; None where no assignment was found.

    ``free``: (resources, nodes) float64. The first class should be the hardest to place.
    """
    nodes = _nodes_to_try(pod_classes, free)
    masks = np.array([pod_class.mask[nodes] for pod_class in pod_classes])
    search = _Search(
        [k for k, pod_class in enumerate(pod_classes) for _ in range(pod_class.count)], steps
    )
    if not search.run(0, pod_classes, masks, free[:, nodes]):
        return None
    rows: list[list[int]] = [[] for _ in pod_classes]
    for pod_class, row in zip(search.pods, search.rows, strict=True):
        rows[pod_class].append(int(nodes[row]))
    return rows


def _nodes_to_try(pod_classes: Sequence[PodClass], free: Floats) -> Ints:
    """Rows of the nodes that the search considers, ascending."""
    pods = sum(pod_class.count for pod_class in pod_classes)
    chosen = [
        np.flatnonzero(pod_class.mask & holds(free, pod_class.request))[:pods]
        for pod_class in pod_classes
    ]
    return np.unique(np.concatenate(chosen)).astype(np.int64)


@dataclass
class _Search:
    """``pods``: the class of each pod; ``rows``: the rows of those placed so far."""

    pods: list[int]
    steps: int

    def __post_init__(self) -> None:
        """Nothing is placed."""
        self.rows: list[int] = []

    def run(self, at: int, pod_classes: Sequence[PodClass], masks: Bools, free: Floats) -> bool:
        """Place the pods from ``at`` on; whether all were placed.

        ``masks``: (classes of pods, nodes) bool, where each may go. ``free``: (resources, nodes),
        restored if that fails.
        """
        if at == len(self.pods):
            return True
        pod_class = self.pods[at]
        request = pod_classes[pod_class].request
        feasible = masks[pod_class] & holds(free, request)
        for row in _distinct_rows(np.flatnonzero(feasible), masks, free, request):
            if self.steps <= 0:
                return False
            self.steps -= 1
            free[:, row] -= request
            self.rows.append(row)
            if self.run(at + 1, pod_classes, masks, free):
                return True
            self.rows.pop()
            free[:, row] += request
        return False


def _distinct_rows(rows: Ints, masks: Bools, free: Floats, request: Floats) -> list[int]:
    """One row per group of equal nodes, the tightest in the requested resources first."""
    requested = np.flatnonzero(request > 0)
    order = np.lexsort((rows, *free[requested][:, rows]))
    first: dict[bytes, int] = {}
    for row in rows[order].tolist():
        first.setdefault(free[:, row].tobytes() + masks[:, row].tobytes(), row)
    return list(first.values())
