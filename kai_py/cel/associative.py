"""Lists of Kubernetes' list types set and map, in which the order of elements is irrelevant.

Equality ignores order. Concatenation keeps the order of the left side: a set adds missing elements,
a map replaces elements of equal keys and adds the others.

Source: Kubernetes documentation "Validation rules", on ``x-kubernetes-list-type``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kai_py.cel.values import KINDS, AssociativeList, CELRuntimeError, Value, equal, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable


class SetList(AssociativeList):
    """A list of distinct elements."""

    def equals(self, other: tuple[Value, ...]) -> bool:
        """Whether both have the same elements."""
        return len(self) == len(other) and all(_contains(self, element) for element in other)

    def merged(self, other: tuple[Value, ...]) -> SetList:
        """The union."""
        merged = list(self)
        for element in other:
            if not _contains(merged, element):
                merged.append(element)
        return SetList(merged)


class MapList(AssociativeList):
    """A list of objects that are identified by the values of some of their fields."""

    keys: tuple[str, ...]

    def __new__(cls, keys: tuple[str, ...], elements: Iterable[Value]) -> MapList:
        """Make a list whose elements are identified by the fields ``keys``."""
        instance = super().__new__(cls, elements)
        instance.keys = keys
        return instance

    def equals(self, other: tuple[Value, ...]) -> bool:
        """Whether both have equal elements under equal keys."""
        own = {self._key(element): element for element in self}
        return len(self) == len(other) and all(
            (key := self._key(element)) in own and equal(own[key], element) for element in other
        )

    def merged(self, other: tuple[Value, ...]) -> MapList:
        """The list with elements replaced or added."""
        merged = {self._key(element): element for element in self}
        merged.update({self._key(element): element for element in other})
        return MapList(self.keys, merged.values())

    def _key(self, element: Value) -> tuple[Value, ...]:
        if not isinstance(element, dict):
            raise CELRuntimeError(f"unexpected element of a map list: {kind_of(element)}")
        return tuple((type(element.get(key)), element.get(key)) for key in self.keys)


def _contains(elements: Iterable[Value], wanted: Value) -> bool:
    return any(equal(element, wanted) for element in elements)


KINDS.update({SetList: "list", MapList: "list"})
