"""Orders for people: the pending gangs of each queue, and names (``gpu-2`` before ``gpu-10``).

Complexity: O(g log g) for g pending gangs.
"""

import re
from collections.abc import Mapping, Sequence

from kai_py.plan.plan import Plan
from kai_py.snapshot.snapshot import Snapshot


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key that compares runs of digits as numbers, however long."""
    parts = re.split(r"([0-9]+)", name)
    digits = [part.lstrip("0") for part in parts[1::2]]
    parts[1::2] = digits
    return tuple((len(part), part) if at % 2 else (-1, part) for at, part in enumerate(parts))


def pending_by_queue(snapshot: Snapshot, plan: Plan) -> Mapping[str, Sequence[str]]:
    """Keys of the pending gangs by queue: higher priority first, with ageing, then older."""
    ranks: dict[str, list[tuple[int, float, str]]] = {}
    for unplaced in plan.unplaced:
        gang = snapshot.gangs.get(unplaced.gang)
        if gang is not None:
            rank = (-gang.priority - unplaced.ageing_points, gang.created, gang.key)
            ranks.setdefault(unplaced.queue, []).append(rank)
    return {queue: [key for *_, key in sorted(queue_ranks)] for queue, queue_ranks in ranks.items()}


def queue_positions(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[int, int]]:
    """Position in its queue, from 1, and number of pending gangs there, by pending gang."""
    return {
        key: (position, len(keys))
        for keys in pending_by_queue(snapshot, plan).values()
        for position, key in enumerate(keys, start=1)
    }
