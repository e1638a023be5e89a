"""The axis of resource arrays: which row stands for which resource, and in which unit.

Units: ``cpu`` in millicores, everything else in its base unit (bytes, devices, pods). float64
holds every integer up to 2**53 exactly, so sums of bytes stay exact up to 9 PB.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from kai_py.api.quantity import Quantity, parse_quantity
from kai_py.api.resource_names import BASE_RESOURCES

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

MAX_UNITS = 2**31 - 1
"""Ceiling of pods, cores and GPUs."""
MAX_BYTES = 2**50
"""Ceiling of memory and storage, 1 PiB, and of resources whose unit is unknown."""
MAX_NODE_GPUS = 1024
"""Ceiling of the GPUs of a node: the GPUs of nodes are columns of an array."""
_IN_UNITS = re.compile(r"pods|.*/gpu|nvidia\.com/.*", re.ASCII)


@lru_cache(maxsize=4096)
def largest_amount(resource: str) -> float:
    """The ceiling of a resource, in the unit of its row: anything larger counts as this much.

    The API accepts 2**63 - 1 of each. Sums of amounts are corrected as pods come and go, and in
    float64 one such amount would swallow those of all other pods.
    """
    if resource == "cpu":
        return 1000.0 * MAX_UNITS
    return float(MAX_UNITS if _IN_UNITS.fullmatch(resource) else MAX_BYTES)


class ResourceIndex(Struct, frozen=True, dict=True):
    """Resource names in row order; the base resources come first."""

    names: tuple[str, ...] = BASE_RESOURCES

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Row of each name."""
        return {name: row for row, name in enumerate(self.names)}

    def extended(self, names: Iterable[str]) -> "ResourceIndex":
        """An index that also has ``names``; rows of known names do not move."""
        new = sorted({name for name in names if name not in self.positions})
        return ResourceIndex(self.names + tuple(new)) if new else self

    def vector(self, amounts: Mapping[str, float]) -> Floats:
        """``amounts`` as a column: (resources,) float64; names must be in the index."""
        column = np.zeros(len(self.names))
        for name, amount in amounts.items():
            column[self.positions[name]] = amount
        return column


def amount(resource: str, quantity: str | float) -> float:
    """A Kubernetes quantity in the unit of its row, at most ``largest_amount``.

    Raises QuantityError for malformed text.
    """
    return amount_of(resource, parse_quantity(quantity))


def amount_of(resource: str, quantity: Quantity) -> float:
    """A quantity in the unit of its row, at most ``largest_amount``."""
    units = quantity.milli() if resource == "cpu" else quantity.value()
    largest = largest_amount(resource)
    return float(max(-largest, min(units, largest)))


def amounts(quantities: Mapping[str, str | int | float]) -> dict[str, float]:
    """A resource list in row units."""
    return {name: amount(name, quantity) for name, quantity in quantities.items()}


def amounts_at(amounts: Mapping[str, float], positions: Mapping[str, int]) -> Floats:
    """(resources,) amounts by name; those without a position are left out."""
    column = np.zeros(len(positions))
    for name, each in amounts.items():
        position = positions.get(name)
        if position is not None:
            column[position] = each
    return column
