"""Sizes of texts, lists and maps, as far as they are known before an expression runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kai_py.cel.actual_cost import TEXT
from kai_py.cel.values import UINT_MAX

if TYPE_CHECKING:
    from kai_py.cel.types import Type

SCALARS = frozenset(
    {"bool", "int", "uint", "double", "google.protobuf.Duration", "google.protobuf.Timestamp"}
)
Path = tuple[str, ...]
"""A variable and what is below it: fields, ``@items``, ``@keys``, ``@values``, ``@indices``."""


@dataclass(frozen=True, slots=True)
class Size:
    """The least and the greatest length of a text, list or map."""

    least: int
    most: int

    def __add__(self, other: Size) -> Size:
        return Size(capped(self.least + other.least), capped(self.most + other.most))

    def __mul__(self, other: Size) -> Size:
        return Size(capped(self.least * other.least), capped(self.most * other.most))

    def __or__(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))

    def cost(self, factor: float = TEXT) -> int:
        """Give the cost of going through it at worst."""
        return scaled(self.most, factor)


UNKNOWN, ONE = Size(0, UINT_MAX), Size(1, 1)
Limits = Callable[[Path], Size | None]
"""Gives the size of what stands at a path, if it is limited."""


def capped(number: int) -> int:
    """Stay within 64 bits."""
    return min(number, UINT_MAX)


def scaled(number: int, factor: float) -> int:
    """Multiply and round up."""
    scaled = float(number) * factor
    return UINT_MAX if scaled >= 2.0**64 else math.ceil(scaled)


def is_scalar(type_: Type) -> bool:
    """Tell whether values of a type have the size 1."""
    if type_.name == "optional_type":
        return is_scalar(type_.params[0])
    return type_.name in SCALARS


def union(sizes: list[Size]) -> Size:
    """Cover all of the sizes."""
    return Size(min(size.least for size in sizes), max(size.most for size in sizes))
