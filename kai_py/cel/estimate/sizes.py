"""How large can a text, list or map be?

Limits of what a device may hold: driver and domain 63 characters, a name 32, a value 64, and 32
attributes or capacities. What nobody knows is 2**64 - 1.

Source: resource.k8s.io/v1; k8s.io/dynamic-resource-allocation/cel for the limits it assumes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kai_py.cel.charge import TEXT
from kai_py.cel.values import UINT_MAX

if TYPE_CHECKING:
    from kai_py.cel.types import Type

DRIVER_LENGTH, DOMAIN_LENGTH, NAME_LENGTH, VALUE_LENGTH, MAP_SIZE = 63, 63, 32, 64, 32
SCALARS = frozenset(
    {"bool", "int", "uint", "double", "google.protobuf.Duration", "google.protobuf.Timestamp"}
)
Path = tuple[str, ...]


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

    def charge(self, factor: float = TEXT) -> int:
        """Charge for going through it at worst."""
        return scaled(self.most, factor)


UNKNOWN, ONE = Size(0, UINT_MAX), Size(1, 1)


def capped(number: int) -> int:
    """Stay within 64 bits."""
    return min(number, UINT_MAX)


def scaled(number: int, factor: float) -> int:
    """Multiply and round up."""
    scaled = float(number) * factor
    return UINT_MAX if scaled >= 2.0**64 else math.ceil(scaled)


def limit_of(path: Path) -> Size | None:
    """Give the length of what a path under ``device`` leads to."""
    match path:
        case ("device", "driver"):
            return Size(0, DRIVER_LENGTH)
        case ("device", "attributes" | "capacity") | (
            "device",
            "attributes" | "capacity",
            "@values",
        ):
            return Size(0, MAP_SIZE)
        case ("device", "attributes" | "capacity", "@keys"):
            return Size(0, DOMAIN_LENGTH)
        case ("device", "attributes" | "capacity", "@values", "@keys"):
            return Size(0, NAME_LENGTH)
        case ("device", "attributes", "@values", _):
            return Size(0, VALUE_LENGTH)
        case _:
            return None


def is_scalar(type_: Type) -> bool:
    """Tell whether values of a type have the size 1."""
    if type_.name == "optional_type":
        return is_scalar(type_.params[0])
    return type_.name in SCALARS


def union(sizes: list[Size]) -> Size:
    """Cover all of the sizes."""
    return Size(min(size.least for size in sizes), max(size.most for size in sizes))
