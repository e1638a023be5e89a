"""Why a reclaim is refused: the rule of ``reclaim_rules``, and the comparison that decided."""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from kai_py.policy.queue_usage import QueueUsage, is_above
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import Index


class ReclaimRule(StrEnum):
    """The rule that refused a reclaim."""

    FAIR_SHARE = "ReclaimerAboveFairShare"
    DESERVED = "NonPreemptibleAboveDeserved"
    VICTIM = "VictimQueueWithinFairShare"
    SATURATION = "ReclaimerMoreSaturated"


class ReclaimRefused(Struct, frozen=True):
    """The comparison that decided, in row ``resource``.

    ``FAIR_SHARE`` and ``DESERVED``: ``value``, what ``queue`` would have, is above ``bound``.
    ``VICTIM``: ``value``, what ``queue`` still has, is not above ``bound``; ``against`` is the
    reclaimer's side. ``SATURATION``: ``value``, the saturation of ``queue`` times the multiplier,
    is not below ``bound``, that of its sibling ``against``.
    """

    rule: ReclaimRule
    queue: str
    against: str
    resource: int
    value: float
    bound: float


def first_above(
    rule: ReclaimRule, queue: str, amounts: Floats, bounds: Floats, rows: Sequence[int]
) -> ReclaimRefused | None:
    """The refusal if ``queue`` would be above a bound, for the first such of ``rows``."""
    # A handful of numbers: arrays would cost more than they save.
    for row in rows:
        amount, bound = amounts.item(row), bounds.item(row)
        if is_above(amount, bound):
            return ReclaimRefused(rule, queue, "", row, amount, bound)
    return None


def victim_refusal(
    usage: QueueUsage, sides: tuple[int, int], remaining: Floats, rows: Index, *, starved: bool
) -> ReclaimRefused:
    """The refusal of the next victim of a queue that still has ``remaining`` (resources,).

    ``sides``: the queues on the reclaimer's side and on the victim's. Names the resource of which
    it has most above its bound. ``starved``: as in ``allowed_by_share``.
    """
    ours, theirs = sides
    bound = usage.allocatable[:, theirs]
    if starved:
        bound = np.minimum(bound, usage.queues.deserved[:, theirs])
    nearest = int(rows[np.argmax((remaining - bound)[rows])])
    return ReclaimRefused(
        ReclaimRule.VICTIM,
        usage.queues.names[theirs],
        usage.queues.names[ours],
        nearest,
        float(remaining[nearest]),
        float(bound[nearest]),
    )


def saturation_refusal(
    usage: QueueUsage, sides: tuple[Index, Index], ratios: tuple[Floats, Floats], refused: Bools
) -> ReclaimRefused:
    """The first of the comparisons ``refused`` (resources, n) between queues and their siblings.

    ``sides``: (n,) the queues and their siblings; ``ratios``: (resources, n) the saturation of each
    side, that of the queues times the multiplier.
    """
    at, row = divmod(int(refused.T.argmax()), len(refused))
    (ours, siblings), (ratio, their_ratio) = sides, ratios
    return ReclaimRefused(
        ReclaimRule.SATURATION,
        usage.queues.names[ours[at]],
        usage.queues.names[siblings[at]],
        row,
        float(ratio[row, at]),
        float(their_ratio[row, at]),
    )
