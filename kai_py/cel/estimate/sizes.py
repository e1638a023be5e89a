"""Sizes of strings, lists and maps, as far as they are known before evaluation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from kai_py.cel.actual_cost import TEXT
from kai_py.cel.types import Type
from kai_py.cel.values import UINT_MAX

SCALARS = frozenset(
    {"bool", "int", "uint", "double", "google.protobuf.Duration", "google.protobuf.Timestamp"}
)
Path = tuple[str, ...]
"""A variable and the path below it: fields, ``@items``, ``@keys``, ``@values``, ``@indices``."""


@dataclass(frozen=True, slots=True)
class Size:
    """The minimum and the maximum length of a string, list or map."""

    least: int
    most: int

    def __add__(self, other: "Size") -> "Size":
        return Size(capped(self.least + other.least), capped(self.most + other.most))

    def __mul__(self, other: "Size") -> "Size":
        return Size(capped(self.least * other.least), capped(self.most * other.most))

    def __or__(self, other: "Size") -> "Size":
        return Size(min(self.least, other.least), max(self.most, other.most))

    def cost(self, factor: float = TEXT) -> int:
        """The maximum cost of traversing it."""
        return scaled(self.most, factor)


UNKNOWN, ONE = Size(0, UINT_MAX), Size(1, 1)
Limits = Callable[[Path], Size | None]
"""Returns the size of the value at a path, if it is limited."""


def capped(number: int) -> int:
    """``number``, at most 2**64 - 1."""
    return min(number, UINT_MAX)


def scaled(number: int, factor: float) -> int:
    """``number`` times ``factor``, rounded up, at most 2**64 - 1."""
    product = float(number) * factor
    return UINT_MAX if product >= 2.0**64 else math.ceil(product)


def is_scalar(type_: Type) -> bool:
    """Whether values of a type have the size 1."""
    if type_.name == "optional_type":
        return is_scalar(type_.params[0])
    return type_.name in SCALARS


def union(sizes: list[Size]) -> Size:
    """A size that covers all ``sizes``."""
    return Size(min(size.least for size in sizes), max(size.most for size in sizes))
