"""Which devices of a pool draw on one counter set, and when is nothing of such a card left?

A card is spent when no device of it finds what it draws, whatever is held of it: then it matters to
nobody which of its devices are held. Cards whose devices can be shared, or draw on several sets,
are never taken to be spent, nor is one that is overdrawn.

Complexity: O(devices) once per pool; equal cards share what is known of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kai_py.dra.rows import CounterID, DeviceRow

Draw = tuple[tuple[str, int], ...]
"""(counter, nano-units) pairs."""

DEVICE_CACHE_SIZE = 4096
ALLOCATION_CACHE_SIZE = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class PhysicalDevice:
    """Devices that draw on one counter set, by their places in it."""

    values: Draw
    draws: tuple[Draw, ...]
    _exhausted: dict[tuple[int, ...], bool] = field(default_factory=dict)
    """By the places of the devices that are held."""

    def is_exhausted(self, allocated: tuple[int, ...]) -> bool:
        """Whether nothing more can be taken of the card while the devices at ``held`` are."""
        known = self._exhausted.get(allocated)
        if known is None:
            if len(self._exhausted) >= ALLOCATION_CACHE_SIZE:
                self._exhausted.clear()
            known = self._exhausted[allocated] = self._is_exhausted(allocated)
        return known

    def _is_exhausted(self, allocated: tuple[int, ...]) -> bool:
        left = dict(self.values)
        for place in allocated:
            for name, amount in self.draws[place]:
                left[name] = left.get(name, 0) - amount
        if min(left.values(), default=0) < 0:
            return False
        return not any(
            all(left.get(name, 0) >= amount for name, amount in draw) for draw in self.draws
        )


@dataclass(frozen=True, slots=True, eq=False)
class PhysicalDevices:
    """The cards of a pool by its devices; None for a device that belongs to none."""

    by_partition: tuple[PhysicalDevice | None, ...]
    positions: tuple[int, ...]
    """Of each device in its card."""
    first_partitions: tuple[int, ...]
    """Of each device the first one of its card."""


def physical_devices(rows: Sequence[DeviceRow], counters: dict[CounterID, int]) -> PhysicalDevices:
    """Find the cards among the devices of a pool whose counter sets hold ``counters``."""
    members: dict[str, list[int]] = {}
    unfit: dict[str, None] = {}
    for number, row in enumerate(rows):
        for consumption in row.consumes:
            members.setdefault(consumption.counter_set, []).append(number)
            if len(row.consumes) > 1 or row.shareable:
                unfit[consumption.counter_set] = None
    values: dict[str, list[tuple[str, int]]] = {}
    for (counter_set, name), value in counters.items():
        values.setdefault(counter_set, []).append((name, value))
    cards: list[PhysicalDevice | None] = [None] * len(rows)
    places, firsts = [0] * len(rows), [0] * len(rows)
    for counter_set, numbers in members.items():
        if counter_set in unfit:
            continue
        draws = tuple(rows[number].consumes[0].counters for number in numbers)
        card = _physical_device(tuple(values.get(counter_set, ())), draws)
        for place, number in enumerate(numbers):
            cards[number], places[number], firsts[number] = card, place, numbers[0]
    return PhysicalDevices(tuple(cards), tuple(places), tuple(firsts))


@lru_cache(maxsize=DEVICE_CACHE_SIZE)
def _physical_device(values: Draw, draws: tuple[Draw, ...]) -> PhysicalDevice:
    return PhysicalDevice(values, draws)
