"""Due amounts: what queues are entitled to, as far as their pending gangs could use it now."""

import math
from dataclasses import dataclass, field

import numpy as np

from kai_py.plan.state.queues import Quota
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.tables.queue_tree import QueueTable

Sizes = tuple[tuple[Gang, int], ...]
"""Pending gangs, each with how many of its queue are of its size."""


@dataclass(slots=True)
class LastDue:
    """The last result of ``due_amounts`` with its inputs; the result is read-only."""

    pending: Sizes = ()
    queues: QueueTable | None = None
    usage: tuple[bytes, bytes] = (b"", b"")
    found: Floats = field(default_factory=lambda: np.zeros((0, 0)))


def due_amounts(pending: Sizes, quota: Quota, last: LastDue) -> Floats:
    """(resources, queues) what queues are entitled to and could use now.

    That is what they have allocated, and as many of their pending gangs, the smallest first, as fit
    into their fair shares with it. Gangs beyond the share do not count: the queue is not entitled
    to their capacity. O(sizes x depth) once the pending gangs, or usage or shares, have changed.
    """
    usage = quota.usage.allocated.tobytes(), quota.usage.fair.tobytes()
    if pending is not last.pending or quota.queues is not last.queues or usage != last.usage:
        last.found = _due_amounts(pending, quota)
        last.pending, last.queues, last.usage = pending, quota.queues, usage
    return last.found


def _due_amounts(pending: Sizes, quota: Quota) -> Floats:
    usage, counts = quota.usage, dict[tuple[float, int, tuple[float, ...]], int]()
    for gang, number in pending:
        queue = quota.queue_of(gang)
        if queue is not None:
            charge, pods = gang.common_charge, gang.pending
            cost = quota.cost_of(pods) if charge is None else quota.cost(charge) * len(pods)
            size = float(cost.sum()), queue, tuple(cost.tolist())
            counts[size] = counts.get(size, 0) + number
    # Lists, as a handful of amounts at a time are no work for arrays.
    due, fair = usage.allocated.tolist(), usage.fair.tolist()
    paths = {queue: quota.queues.ancestors(queue).tolist() for _, queue, _ in counts}
    for (_, queue, amounts), count in sorted(counts.items(), key=lambda size: size[0][:2]):
        cells = [(row, at) for row, each in enumerate(amounts) if each > 0 for at in paths[queue]]
        # Most of many sizes do not fit; then the first cell tells.
        if not cells or any(
            fair[row][at] - due[row][at] + 1e-9 < amounts[row] for row, at in cells
        ):
            continue
        fitting = [(fair[row][at] - due[row][at] + 1e-9) / amounts[row] for row, at in cells]
        number = math.floor(min(*fitting, count))
        for row, at in cells:
            due[row][at] += amounts[row] * number
    return np.array(due)
