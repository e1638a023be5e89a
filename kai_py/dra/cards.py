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

CARDS_KEPT = 4096
HELD_KEPT = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Card:
    """Devices that draw on one counter set, by their places in it."""

    values: Draw
    draws: tuple[Draw, ...]
    _spent: dict[tuple[int, ...], bool] = field(default_factory=dict)
    """By the places of the devices that are held."""

    def is_spent(self, held: tuple[int, ...]) -> bool:
        """Whether nothing more can be taken of the card while the devices at ``held`` are."""
        known = self._spent.get(held)
        if known is None:
            if len(self._spent) >= HELD_KEPT:
                self._spent.clear()
            known = self._spent[held] = self._look(held)
        return known

    def _look(self, held: tuple[int, ...]) -> bool:
        left = dict(self.values)
        for place in held:
            for name, amount in self.draws[place]:
                left[name] = left.get(name, 0) - amount
        if min(left.values(), default=0) < 0:
            return False
        return not any(
            all(left.get(name, 0) >= amount for name, amount in draw) for draw in self.draws
        )


@dataclass(frozen=True, slots=True, eq=False)
class PoolCards:
    """The cards of a pool by its devices; None for a device that belongs to none."""

    cards: tuple[Card | None, ...]
    places: tuple[int, ...]
    """Of each device in its card."""
    firsts: tuple[int, ...]
    """Of each device the first one of its card."""


def cards_of(rows: Sequence[DeviceRow], counters: dict[CounterID, int]) -> PoolCards:
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
    cards: list[Card | None] = [None] * len(rows)
    places, firsts = [0] * len(rows), [0] * len(rows)
    for counter_set, numbers in members.items():
        if counter_set in unfit:
            continue
        draws = tuple(rows[number].consumes[0].counters for number in numbers)
        card = _card(tuple(values.get(counter_set, ())), draws)
        for place, number in enumerate(numbers):
            cards[number], places[number], firsts[number] = card, place, numbers[0]
    return PoolCards(tuple(cards), tuple(places), tuple(firsts))


@lru_cache(maxsize=CARDS_KEPT)
def _card(values: Draw, draws: tuple[Draw, ...]) -> Card:
    return Card(values, draws)
