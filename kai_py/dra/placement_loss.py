"""What does a partition cost those who come later? The placements that it makes impossible.

Devices that draw on common counters form a card (one GPU). Taking a device of a card with ``left``
counters costs

    sum of size(s) over devices s of the card that could be taken before and cannot be afterwards

where size is the largest fraction of a counter that s draws, so that losing the place of a large
partition weighs more. Equal cards in equal standing share one computation.

Source: Weng et al., "Beware of Fragmentation", ATC 2023, applied to counters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kai_py.dra.components import connected_components
from kai_py.dra.counters import CounterDraw, CounterLayout


@dataclass(frozen=True, slots=True, eq=False)
class _PartitionedDevice:
    counters: tuple[int, ...]
    draws: tuple[CounterDraw, ...]
    """Per device of the card, by place in ``counters``."""
    sizes: tuple[float, ...]
    values: tuple[int, ...]
    """Counters of an untouched card."""
    signature: int


@dataclass(slots=True, eq=False)
class PlacementLoss:
    """The cards of one node view and what is known of them."""

    layout: CounterLayout
    _devices: list[_PartitionedDevice] = field(init=False)
    _device_of: list[int] = field(init=False)
    _position: list[int] = field(init=False)
    """Device to its place in its card."""
    _losses: dict[tuple[int, tuple[int, ...]], dict[int, float]] = field(default_factory=dict)
    """Per kind of card and what is left of it, the loss by place."""
    _fits: dict[tuple[int, tuple[int, ...]], tuple[bool, ...]] = field(default_factory=dict)
    """Per kind of card and what is left of it, whether that is enough, by place."""

    def __post_init__(self) -> None:
        draws = self.layout.draws
        self._device_of = connected_components([[number for number, _ in draw] for draw in draws])
        members: dict[int, list[int]] = {}
        self._position = []
        for device, card in enumerate(self._device_of):
            self._position.append(len(members.setdefault(card, [])))
            members[card].append(device)
        patterns: dict[tuple[object, ...], int] = {}
        self._devices = [
            self._partitioned_device(devices, patterns) for devices in members.values()
        ]

    def with_left(self, counters_left: Sequence[int]) -> "CurrentLosses":
        """Fix what is left of each counter."""
        return CurrentLosses(self, counters_left)

    def current(self, device_number: int, left: Sequence[int]) -> "_CurrentPartitions":
        """Look at one card with ``left`` of each counter."""
        found = self._devices[device_number]
        now = tuple([left[number] for number in found.counters])
        key = (found.signature, now)
        losses, fits = self._losses.setdefault(key, {}), self._fits.get(key)
        if fits is None:
            fits = tuple(
                all(now[index] >= amount for index, amount in draw) for draw in found.draws
            )
            self._fits[key] = fits
        return _CurrentPartitions(found, now, now == found.values, losses, fits)

    def position_of(self, device: int) -> tuple[int, int]:
        """Return the card of a device and its place in it."""
        return self._device_of[device], self._position[device]

    def _partitioned_device(
        self, devices: list[int], signatures: dict[tuple[object, ...], int]
    ) -> _PartitionedDevice:
        layout = self.layout
        counters = sorted({number for device in devices for number, _ in layout.draws[device]})
        place = {number: index for index, number in enumerate(counters)}
        draws = tuple(
            tuple((place[number], amount) for number, amount in layout.draws[device])
            for device in devices
        )
        values = tuple(layout.values[number] for number in counters)
        sizes = tuple(
            max((amount / values[index] for index, amount in draw if values[index]), default=0.0)
            for draw in draws
        )
        pattern = signatures.setdefault((draws, values), len(signatures))
        return _PartitionedDevice(tuple(counters), draws, sizes, values, pattern)


class _CurrentPartitions(NamedTuple):
    device: _PartitionedDevice
    left: tuple[int, ...]
    untouched: bool
    losses: dict[int, float]
    fits: tuple[bool, ...]


@dataclass(slots=True, eq=False)
class CurrentLosses:
    """What taking any one device costs, while the counters stay as they are."""

    placement: PlacementLoss
    left: Sequence[int]
    _current: dict[int, _CurrentPartitions] = field(default_factory=dict)

    def of(self, device: int) -> tuple[float, float]:
        """Whether nothing of the device's card is in use, 0 or 1, and what taking it costs."""
        number, place = self.placement.position_of(device)
        now = self.current(number)
        loss = now.losses.get(place)
        if loss is None:
            loss = now.losses[place] = _loss(now.device, now.left, place)
        return float(now.untouched), loss

    def fits(self, number: int) -> tuple[bool, ...]:
        """By place in a card, whether its counters hold what the device there draws."""
        return self.current(number).fits

    def current(self, number: int) -> _CurrentPartitions:
        """One card as it stands."""
        now = self._current.get(number)
        if now is None:
            now = self._current[number] = self.placement.current(number, self.left)
        return now


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
