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


Shapes = tuple[Shape, ...]


class _FailedShapes(Struct, Generic[Failure], frozen=True):
    shapes: Shapes
    size: int
    priority: int
    failure: Failure


class FailedShapes(Generic[Failure]):
    """Failures by kind of request; they hold until capacity grows.

    All requests of a kind have pods of as many shapes, and as many of each but the first.
    """

    def __init__(self, dominates: Callable[[Shape, Shape], bool]) -> None:
        """``dominates``: whether the first shape fits only where the second fits too."""
        self._dominates = dominates
        self._of_equals = FailedRequests[Failure]()
        self._of_others: dict[Hashable, list[_FailedShapes[Failure]]] = {}

    def find(self, kind: Hashable, shapes: Shapes, size: int, priority: int = 0) -> Failure | None:
        """The failure of a request for no more pods, none larger, of no lower priority, if any.

        Of other shapes only those that request the same resources count: which resources a
        reclaimer requests decides which queues may lose pods to it.
        """
        equal = self._of_equals.find((kind, _numbers(shapes)), size, priority)
        if equal is not None:
            return equal
        others = self._of_others.get((kind, _resources(shapes)), [])
        for position in range(len(others) - 1, -1, -1):
            failed = others[position]
            if size < failed.size or priority > failed.priority:
                continue
            if all(map(self._dominates, shapes, failed.shapes)):
                others.append(others.pop(position))
                return failed.failure
        return None

    def add(
        self, kind: Hashable, shapes: Shapes, failure: Failure, size: int, priority: int = 0
    ) -> None:
        """Record that a request for ``size`` pods of these shapes failed."""
        self._of_equals.add((kind, _numbers(shapes)), failure, size, priority)
        others = self._of_others.setdefault((kind, _resources(shapes)), [])
        others.append(_FailedShapes(shapes, size, priority, failure))
        del others[:-MAX_FAILED_SHAPES]

    def clear(self) -> None:
        """Forget all failures, as capacity has grown."""
        self._of_equals.clear()
        self._of_others.clear()


def _numbers(shapes: Shapes) -> tuple[int, ...]:
    return tuple(shape.number for shape in shapes)


def _resources(shapes: Shapes) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(shape.requests) for shape in shapes)
