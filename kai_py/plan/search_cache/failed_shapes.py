"""Requests that failed in one action, compared with those that need at least as much.

A tenant can submit thousands of pods of as many sizes. Once one of them has failed, those that
request no less need no search of their own.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Struct

from kai_py.plan.search_cache.cache import FailedRequests
from kai_py.snapshot.shape import Shape

Failure = TypeVar("Failure")

MAX_FAILED_SHAPES = 16
"""How many failures of one kind are compared with a request; of more, the last ones."""


class _FailedShape(Struct, Generic[Failure], frozen=True):
    shape: Shape
    size: int
    priority: int
    failure: Failure


class FailedShapes(Generic[Failure]):
    """Failures by kind of request, all for pods of one shape; they hold until capacity grows."""

    def __init__(self, dominates: Callable[[Shape, Shape], bool]) -> None:
        """``dominates``: whether the first shape fits only where the second fits too."""
        self._dominates = dominates
        self._of_shape = FailedRequests[Failure]()
        self._of_others: dict[Hashable, list[_FailedShape[Failure]]] = {}

    def find(self, kind: Hashable, shape: Shape, size: int, priority: int = 0) -> Failure | None:
        """The failure of a request for no more pods, none larger, of no lower priority, if any.

        Of other shapes only those that request the same resources count: which resources a
        reclaimer requests decides which queues may lose pods to it.
        """
        same = self._of_shape.find((kind, shape.number), size, priority)
        if same is not None:
            return same
        others = self._of_others.get((kind, frozenset(shape.requests)), [])
        for position in range(len(others) - 1, -1, -1):
            failed = others[position]
            if size < failed.size or priority > failed.priority:
                continue
            if self._dominates(shape, failed.shape):
                others.append(others.pop(position))
                return failed.failure
        return None

    def add(
        self, kind: Hashable, shape: Shape, failure: Failure, size: int, priority: int = 0
    ) -> None:
        """Record that a request for ``size`` pods of a shape failed."""
        self._of_shape.add((kind, shape.number), failure, size, priority)
        others = self._of_others.setdefault((kind, frozenset(shape.requests)), [])
        others.append(_FailedShape(shape, size, priority, failure))
        del others[:-MAX_FAILED_SHAPES]

    def clear(self) -> None:
        """Forget all failures, as capacity has grown."""
        self._of_shape.clear()
        self._of_others.clear()
