"""Physical devices: the partitions of a pool that draw on one counter set, and their exhaustion.

A physical device is exhausted when no partition of it finds the counters it draws on: then it does
not matter which of its partitions are allocated. Devices with shareable partitions, or with
partitions on several counter sets, never count as exhausted, nor do overdrawn ones.

Complexity: O(devices) once per pool; equal physical devices share their results.
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
    """Partitions that draw on one counter set, by position in it."""

    values: Draw
    draws: tuple[Draw, ...]
    _exhausted: dict[tuple[int, ...], bool] = field(default_factory=dict)
    """By the positions of the allocated partitions."""

    def is_exhausted(self, allocated: tuple[int, ...]) -> bool:
        """Whether nothing more can be taken while the partitions at ``allocated`` are."""
        cached = self._exhausted.get(allocated)
        if cached is None:
            if len(self._exhausted) >= ALLOCATION_CACHE_SIZE:
                self._exhausted.clear()
            cached = self._exhausted[allocated] = self._is_exhausted(allocated)
        return cached

    def _is_exhausted(self, allocated: tuple[int, ...]) -> bool:
        left = dict(self.values)
        for position in allocated:
            for name, amount in self.draws[position]:
                left[name] = left.get(name, 0) - amount
        if min(left.values(), default=0) < 0:
            return False
        return not any(
            all(left.get(name, 0) >= amount for name, amount in draw) for draw in self.draws
        )


@dataclass(frozen=True, slots=True, eq=False)
class PhysicalDevices:
    """The physical devices of a pool by partition; None for a device that is no partition."""

    by_partition: tuple[PhysicalDevice | None, ...]
    positions: tuple[int, ...]
    """For each device, its position among the partitions of its physical device."""
    first_partitions: tuple[int, ...]
    """For each device, the first partition of its physical device."""


def physical_devices(rows: Sequence[DeviceRow], counters: dict[CounterID, int]) -> PhysicalDevices:
    """Group the devices of a pool by counter set; ``counters`` are the sets' values."""
    members: dict[str, list[int]] = {}
    excluded: dict[str, None] = {}
    for number, row in enumerate(rows):
        for consumption in row.consumes:
            members.setdefault(consumption.counter_set, []).append(number)
            if len(row.consumes) > 1 or row.shareable:
                excluded[consumption.counter_set] = None
    values: dict[str, list[tuple[str, int]]] = {}
    for (counter_set, name), value in counters.items():
        values.setdefault(counter_set, []).append((name, value))
    devices: list[PhysicalDevice | None] = [None] * len(rows)
    positions, firsts = [0] * len(rows), [0] * len(rows)
    for counter_set, numbers in members.items():
        if counter_set in excluded:
            continue
        draws = tuple(rows[number].consumes[0].counters for number in numbers)
        device = _physical_device(tuple(values.get(counter_set, ())), draws)
        for position, number in enumerate(numbers):
            devices[number], positions[number], firsts[number] = device, position, numbers[0]
    return PhysicalDevices(tuple(devices), tuple(positions), tuple(firsts))


@lru_cache(maxsize=DEVICE_CACHE_SIZE)
def _physical_device(values: Draw, draws: tuple[Draw, ...]) -> PhysicalDevice:
    return PhysicalDevice(values, draws)
