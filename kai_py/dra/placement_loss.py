"""Placement loss: the later placements that taking a partition makes impossible.

Devices that draw on common counters are partitions of one physical device (a GPU). Taking a
partition while ``left`` of each counter is available costs

    sum of size(s) over partitions s that could be taken before and can't be afterwards

where size is the largest fraction of a counter that s draws, so that losing the position of a large
partition weighs more. Equal devices with equal counters share one computation.

Source: Weng et al., "Beware of Fragmentation", ATC 2023, applied to counters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from kai_py.api.quantity import ratio
from kai_py.dra.counters import CounterDraw, CounterLayout
from kai_py.dra.symmetry import connected_components


class _PartitionedDevice(Struct, frozen=True, eq=False):
    counters: tuple[int, ...]
    draws: tuple[CounterDraw, ...]
    """Per partition, by index into ``counters``."""
    sizes: tuple[float, ...]
    values: tuple[int, ...]
    """Counters while no partition is allocated."""
    signature: int


@dataclass(slots=True, eq=False)
class PlacementLoss:
    """The partitioned devices of one node view with cached losses."""

    layout: CounterLayout
    _devices: list[_PartitionedDevice] = field(init=False)
    _device_of: list[int] = field(init=False)
    _position: list[int] = field(init=False)
    """Position of each device among the partitions of its physical device."""
    _losses: dict[tuple[int, tuple[int, ...]], dict[int, float]] = field(default_factory=dict)
    """By device signature and what is left of its counters, the loss by position."""
    _fits: dict[tuple[int, tuple[int, ...]], tuple[bool, ...]] = field(default_factory=dict)
    """By device signature and what is left of its counters, which positions fit."""

    def __post_init__(self) -> None:
        draws = self.layout.draws
        self._device_of = connected_components([[number for number, _ in draw] for draw in draws])
        members: dict[int, list[int]] = {}
        self._position = []
        for device, component in enumerate(self._device_of):
            self._position.append(len(members.setdefault(component, [])))
            members[component].append(device)
        signatures: dict[tuple[object, ...], int] = {}
        self._devices = [
            self._partitioned_device(devices, signatures) for devices in members.values()
        ]

    def with_left(self, counters_left: Sequence[int]) -> "CurrentLosses":
        """The losses at ``counters_left``."""
        return CurrentLosses(self, counters_left)

    def current(self, device_number: int, left: Sequence[int]) -> "_CurrentPartitions":
        """One partitioned device with ``left`` of each counter."""
        device = self._devices[device_number]
        device_left = tuple([left[number] for number in device.counters])
        key = (device.signature, device_left)
        losses, fits = self._losses.setdefault(key, {}), self._fits.get(key)
        if fits is None:
            fits = tuple(
                all(device_left[index] >= amount for index, amount in draw) for draw in device.draws
            )
            self._fits[key] = fits
        return _CurrentPartitions(device, device_left, device_left == device.values, losses, fits)

    def position_of(self, device: int) -> tuple[int, int]:
        """The partitioned device of a device, and its position in it."""
        return self._device_of[device], self._position[device]

    def _partitioned_device(
        self, devices: list[int], signatures: dict[tuple[object, ...], int]
    ) -> _PartitionedDevice:
        layout = self.layout
        counters = sorted({number for device in devices for number, _ in layout.draws[device]})
        index_of = {number: index for index, number in enumerate(counters)}
        draws = tuple(
            tuple((index_of[number], amount) for number, amount in layout.draws[device])
            for device in devices
        )
        values = tuple(layout.values[number] for number in counters)
        sizes = tuple(
            max(
                (ratio(amount, values[index]) for index, amount in draw if values[index] > 0),
                default=0.0,
            )
            for draw in draws
        )
        signature = signatures.setdefault((draws, values), len(signatures))
        return _PartitionedDevice(tuple(counters), draws, sizes, values, signature)


class _CurrentPartitions(NamedTuple):
    device: _PartitionedDevice
    left: tuple[int, ...]
    untouched: bool
    losses: dict[int, float]
    fits: tuple[bool, ...]


@dataclass(slots=True, eq=False)
class CurrentLosses:
    """The cost of taking any one device, while the counters stay as they are."""

    placement: PlacementLoss
    left: Sequence[int]
    _current: dict[int, _CurrentPartitions] = field(default_factory=dict)

    def of(self, device: int) -> tuple[float, float]:
        """Whether no partition of the device is in use, 0 or 1, and the loss of taking it."""
        number, position = self.placement.position_of(device)
        current = self.current(number)
        loss = current.losses.get(position)
        if loss is None:
            loss = current.losses[position] = _loss(current.device, current.left, position)
        return float(current.untouched), loss

    def fits(self, number: int) -> tuple[bool, ...]:
        """By position in a partitioned device, whether the counters suffice for the partition."""
        return self.current(number).fits

    def current(self, number: int) -> _CurrentPartitions:
        """One partitioned device at the current counters."""
        current = self._current.get(number)
        if current is None:
            current = self._current[number] = self.placement.current(number, self.left)
        return current


def _loss(device: _PartitionedDevice, left: tuple[int, ...], position: int) -> float:
    after = list(left)
    for index, amount in device.draws[position]:
        after[index] -= amount
    return sum(
        size
        for other, (draw, size) in enumerate(zip(device.draws, device.sizes, strict=True))
        if other != position
        and all(left[index] >= amount for index, amount in draw)
        and any(after[index] < amount for index, amount in draw)
    )
