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

from kai_py.dra.components import connect
from kai_py.dra.counters import CounterLayout, Draw


@dataclass(frozen=True, slots=True, eq=False)
class _Card:
    counters: tuple[int, ...]
    draws: tuple[Draw, ...]
    """Per device of the card, by place in ``counters``."""
    sizes: tuple[float, ...]
    values: tuple[int, ...]
    """Counters of an untouched card."""
    pattern: int


@dataclass(slots=True, eq=False)
class PlacementLoss:
    """The cards of one node view and what is known of them."""

    layout: CounterLayout
    _cards: list[_Card] = field(init=False)
    _card_of: list[int] = field(init=False)
    _place: list[int] = field(init=False)
    """Device to its place in its card."""
    _known: dict[tuple[int, tuple[int, ...]], dict[int, float]] = field(default_factory=dict)
    """Per kind of card and what is left of it, the loss by place."""
    _fits: dict[tuple[int, tuple[int, ...]], tuple[bool, ...]] = field(default_factory=dict)
    """Per kind of card and what is left of it, whether that is enough, by place."""

    def __post_init__(self) -> None:
        draws = self.layout.draws
        self._card_of = connect([[number for number, _ in draw] for draw in draws])
        members: dict[int, list[int]] = {}
        self._place = []
        for device, card in enumerate(self._card_of):
            self._place.append(len(members.setdefault(card, [])))
            members[card].append(device)
        patterns: dict[tuple[object, ...], int] = {}
        self._cards = [self._card(devices, patterns) for devices in members.values()]

    def with_left(self, left: Sequence[int]) -> "LossesNow":
        """Fix what is left of each counter."""
        return LossesNow(self, left)

    def standing(self, card: int, left: Sequence[int]) -> "_CardNow":
        """Look at one card with ``left`` of each counter."""
        found = self._cards[card]
        now = tuple([left[number] for number in found.counters])
        key = (found.pattern, now)
        losses, fits = self._known.setdefault(key, {}), self._fits.get(key)
        if fits is None:
            fits = tuple(
                all(now[index] >= amount for index, amount in draw) for draw in found.draws
            )
            self._fits[key] = fits
        return _CardNow(found, now, now == found.values, losses, fits)

    def place_of(self, device: int) -> tuple[int, int]:
        """Return the card of a device and its place in it."""
        return self._card_of[device], self._place[device]

    def _card(self, devices: list[int], patterns: dict[tuple[object, ...], int]) -> _Card:
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
        pattern = patterns.setdefault((draws, values), len(patterns))
        return _Card(tuple(counters), draws, sizes, values, pattern)


class _CardNow(NamedTuple):
    card: _Card
    left: tuple[int, ...]
    untouched: bool
    losses: dict[int, float]
    fits: tuple[bool, ...]


@dataclass(slots=True, eq=False)
class LossesNow:
    """What taking any one device costs, while the counters stay as they are."""

    placement: PlacementLoss
    left: Sequence[int]
    _seen: dict[int, _CardNow] = field(default_factory=dict)

    def of(self, device: int) -> tuple[float, float]:
        """Whether nothing of the device's card is in use, 0 or 1, and what taking it costs."""
        number, place = self.placement.place_of(device)
        now = self.card(number)
        loss = now.losses.get(place)
        if loss is None:
            loss = now.losses[place] = _loss(now.card, now.left, place)
        return float(now.untouched), loss

    def fits(self, number: int) -> tuple[bool, ...]:
        """By place in a card, whether its counters hold what the device there draws."""
        return self.card(number).fits

    def card(self, number: int) -> _CardNow:
        """One card as it stands."""
        now = self._seen.get(number)
        if now is None:
            now = self._seen[number] = self.placement.standing(number, self.left)
        return now


def _loss(card: _Card, left: tuple[int, ...], place: int) -> float:
    after = list(left)
    for index, amount in card.draws[place]:
        after[index] -= amount
    return sum(
        size
        for other, (draw, size) in enumerate(zip(card.draws, card.sizes, strict=True))
        if other != place
        and all(left[index] >= amount for index, amount in draw)
        and any(after[index] < amount for index, amount in draw)
    )
