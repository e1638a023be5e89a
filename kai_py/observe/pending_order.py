"""Who comes first among the gangs that wait in a queue? The line of each, from a cycle's plan.

Complexity: O(waiting gangs x log of them).
"""

from collections.abc import Mapping, Sequence

from kai_py.plan.plan import Plan
from kai_py.snapshot.snapshot import Snapshot


def pending_by_queue(snapshot: Snapshot, plan: Plan) -> Mapping[str, Sequence[str]]:
    """Per queue the keys of the gangs that wait in it: higher priority first, then older."""
    lines: dict[str, list[tuple[int, float, str]]] = {}
    for unplaced in plan.unplaced:
        gang = snapshot.gangs.get(unplaced.gang)
        if gang is not None:
            rank = (-gang.priority - unplaced.ageing_points, gang.created, gang.key)
            lines.setdefault(unplaced.queue, []).append(rank)
    return {queue: [key for *_, key in sorted(line)] for queue, line in lines.items()}


def queue_positions(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[int, int]]:
    """Waiting gang to its place in the line of its queue, from 1, and the line's length."""
    return {
        key: (place, len(line))
        for line in pending_by_queue(snapshot, plan).values()
        for place, key in enumerate(line, start=1)
    }
