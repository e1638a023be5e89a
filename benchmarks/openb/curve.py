"""How much was given away when so much was asked for."""

from collections.abc import Sequence

from benchmarks.openb.replay import PlacedPod


def allocation_curve(placed: Sequence[PlacedPod], capacity: int) -> dict[int, float]:
    """Whole % asked for: the mean % given away, over the arrivals that round to it."""
    sums: dict[int, list[float]] = {}
    asked = given = 0
    for each in placed:
        asked += each.pod.milli
        given += each.pod.milli if each.node else 0
        sums.setdefault(round(100 * asked / capacity), []).append(100 * given / capacity)
    return {at: sum(values) / len(values) for at, values in sums.items()}
