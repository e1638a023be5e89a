"""Reclaim rules: from which queues a gang may reclaim what its own queue is entitled to.

Let R be the queue of the reclaimer and V that of a victim, both at the first level at which their
paths differ (siblings). "Within" and "above" are over ``FairnessRules.compared_resources``.

1. Who may reclaim: allocated(R) + request is within R's fair share; a non-preemptible request is
   also within what R deserves.
2. From whom: if R stays within what it deserves, V must exceed what it deserves in a requested
   resource, or not fall short in any; else V must be above its allocatable.
3. Each victim, against what V still has when it is taken: either V is above its allocatable
   (maintain fair share), or R stays within what it deserves and V is above what it deserves
   (guarantee deserved). Victims of one queue are taken in the order given, queues in table order,
   so the result depends on the set of victims and not on how queues were visited. A set that is
   refused stays refused when victims are added: the largest legal prefix is found by bisection.
4. For R's queue and each of its ancestors, against each sibling X that loses something: refused if
   R ends above its fair share, X has one, and saturation(R) x multiplier >= saturation(X), where
   saturation = allocated / fair share.
5. A non-preemptible request is within what is deserved at every level.

All are pure functions of arrays: victims are arrays of the queues that lose, of their losses and of
what was released before. A refusal (``ReclaimRefused``) carries the inequality that decided.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from kai_py.policy.fairness_rules import ComparedResources, FairnessRules
from kai_py.policy.queue_usage import (
    QueueUsage,
    QuotaBound,
    diverging_siblings,
    exceeds,
    exceeds_any,
    is_above,
    tolerance,
)
from kai_py.policy.sibling_division import running_sums
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import Index, QueueTable


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


class Victims(Struct, frozen=True):
    """Evictions in the order of taking: (n,) leaf queues, (resources, n) what each releases.

    One entry is what is evicted together: an elastic pod alone, the minMember set of a gang as a
    whole.
    """

    queue: Index
    amount: Floats

    def first(self, count: int) -> "Victims":
        """The first ``count`` evictions."""
        return Victims(self.queue[:count], self.amount[:, :count])

    def freed(self, queues: QueueTable) -> Floats:
        """(resources, queues) what the evictions release, propagated to all ancestors."""
        own = np.zeros((len(self.amount), len(queues)))
        np.add.at(own.T, self.queue, self.amount.T)
        return queues.subtree_sums(own)


def freed_before(their_queues: Index, amount: Floats) -> Floats:
    """(resources, n) what is released in the same queue before each victim."""
    if len(their_queues) == 1:
        return np.zeros_like(amount)
    order = np.argsort(their_queues, kind="stable")
    group = their_queues[order].astype(np.int64)
    freed = np.empty_like(amount)
    freed[:, order] = running_sums(group, amount[:, order])
    return freed


class Reclaimer(Struct, frozen=True):
    """A gang that reclaims: (resources,) request of the pods that are still to be placed."""

    queue: int
    request: Floats
    preemptible: bool


def check_reclaimer(
    usage: QueueUsage, reclaimer: Reclaimer, rules: FairnessRules
) -> ReclaimRefused | None:
    """Rule 1, before any victim is searched for: why it may not reclaim, None if it may."""
    at, rows = reclaimer.queue, _compared(reclaimer.request, rules)
    with_request = usage.allocated[:, at] + reclaimer.request
    name, fair = usage.queues.names[at], usage.fair[:, at]
    refused = first_above(ReclaimRule.FAIR_SHARE, name, with_request, fair, rows)
    if refused is not None or reclaimer.preemptible:
        return refused
    return _above_deserved(usage, reclaimer, at, rows)


def resource_to_name(usage: QueueUsage, reclaimer: Reclaimer, queue: int, gpu: int) -> int:
    """The row to name if ``queue`` loses pods: GPUs if they, or nothing, are requested.

    Else the first requested resource of which the queue is above its fair share.
    """
    rows = [int(row) for row in reclaimer.request.nonzero()[0]]
    if gpu in rows or not rows:
        return gpu
    above = exceeds(usage.allocated[rows, queue], usage.fair[rows, queue])
    return rows[int(above.argmax())]


def reclaimable_queues(usage: QueueUsage, reclaimer: Reclaimer, rules: FairnessRules) -> Bools:
    """(queues,) rule 2: the queues to reclaim from, without the reclaimer's own path."""
    ours, theirs = diverging_siblings(usage.queues, reclaimer.queue)
    rows = compared_rows(reclaimer.request, rules)
    starved = stays_within_deserved(usage, reclaimer, ours, rows)
    allocated = usage.allocated[:, theirs]
    above_share = maintains_fair_share(allocated[rows], usage.allocatable[:, theirs][rows])
    deserved = usage.queues.deserved[:, theirs]
    compared = (reclaimer.request > 0)[:, None] & np.isfinite(deserved)
    more = (compared & exceeds(allocated, deserved)).any(axis=0)
    less = (compared & exceeds(deserved, allocated)).any(axis=0)
    candidates: Bools = np.where(starved, more | ~less, above_share) & (ours != theirs)
    return candidates


def check_reclaim(
    usage: QueueUsage, reclaimer: Reclaimer, victims: Victims, rules: FairnessRules
) -> ReclaimRefused | None:
    """Rules 3 to 5 for one set of victims; None means that they may be evicted."""
    refused = check_victims(usage, reclaimer, victims, rules)
    return refused or check_boundaries(usage, reclaimer, victims, rules)


def check_victims(
    usage: QueueUsage, reclaimer: Reclaimer, victims: Victims, rules: FairnessRules
) -> ReclaimRefused | None:
    """Rule 3; names the first queue that would lose a victim without being above its bound."""
    order = np.argsort(victims.queue, kind="stable")
    ours, theirs = (
        side[victims.queue[order]] for side in diverging_siblings(usage.queues, reclaimer.queue)
    )
    amount = victims.amount[:, order]
    rows = compared_rows(reclaimer.request, rules)
    starved = stays_within_deserved(usage, reclaimer, ours, rows)
    refused = ~allowed_by_share(usage, theirs, starved, amount, rows)
    if not refused.any():
        return None
    first = int(refused.argmax())
    remaining = (usage.allocated[:, theirs] - freed_before(theirs, amount))[:, first]
    sides = int(ours[first]), int(theirs[first])
    return victim_refusal(usage, sides, remaining, rows, starved=bool(starved[first]))


def allowed_by_share(
    usage: QueueUsage, their_queues: Index, starved: Bools, amount: Floats, rows: Index
) -> Bools:
    """(n,) whether rule 3 allows each victim, of amounts (resources, n), after those before it.

    ``their_queues`` (n,): the siblings that lose it (``diverging_siblings``); ``starved`` (n,):
    whether the reclaimer's side stays within what it deserves; ``rows``: the resources that count.
    """
    remaining = (usage.allocated[:, their_queues] - freed_before(their_queues, amount))[rows]
    allowed: Bools = maintains_fair_share(
        remaining, usage.allocatable[:, their_queues][rows]
    ) | guarantees_deserved(starved, remaining, usage.queues.deserved[:, their_queues][rows])
    return allowed


class ReclaimAllowance:
    """Rule 3 one victim at a time: by how much queues are above their bound, less what was taken.

    For searches that choose victims with that rule in mind. ``check_reclaim`` still has to allow
    what they find: it takes the victims of a queue in a fixed order, and checks rules 4 and 5.
    """

    def __init__(self, usage: QueueUsage, reclaimer: Reclaimer, rules: FairnessRules) -> None:
        """Nothing is taken yet."""
        ours, theirs = diverging_siblings(usage.queues, reclaimer.queue)
        rows = compared_rows(reclaimer.request, rules)
        starved = stays_within_deserved(usage, reclaimer, ours, rows)
        deserved = np.where(starved, usage.queues.deserved[:, theirs], np.inf)
        bound = np.minimum(usage.allocatable[:, theirs], deserved)
        above = usage.allocated[:, theirs] - bound - tolerance(bound)
        self._rows: list[int] = rows.tolist()
        self._siblings: list[int] = theirs.tolist()
        self._above: list[list[float]] = above[rows].T.tolist()

    def allows(self, queue: int) -> bool:
        """Whether a victim may be taken from ``queue``."""
        return any(each > 0 for each in self._above[self._siblings[queue]])

    def take(self, queue: int, amount: Floats) -> None:
        """Count ``amount`` (resources,) as taken from ``queue``; a negative one as given back."""
        above = self._above[self._siblings[queue]]
        for position, row in enumerate(self._rows):
            above[position] -= amount.item(row)


def maintains_fair_share(allocated: Floats, allocatable: Floats) -> Bools:
    """(n,) the strategy that takes from queues above their allocatable; (resources, n) inputs."""
    return exceeds_any(allocated, allocatable)


def guarantees_deserved(starved: Bools, allocated: Floats, deserved: Floats) -> Bools:
    """(n,) the strategy that lets a starved queue take from queues above what they deserve."""
    return starved & exceeds_any(allocated, deserved)


def check_boundaries(
    usage: QueueUsage, reclaimer: Reclaimer, victims: Victims, rules: FairnessRules
) -> ReclaimRefused | None:
    """Rules 4 and 5: what the reclaimer's path and its siblings end up with."""
    refused = _check_saturation(usage, reclaimer, victims.freed(usage.queues), rules)
    if refused is not None or reclaimer.preemptible:
        return refused
    rows = _compared(reclaimer.request, rules)
    for queue in usage.queues.ancestors(reclaimer.queue)[::-1]:
        refused = _above_deserved(usage, reclaimer, int(queue), rows)
        if refused is not None:
            return refused
    return None


def _check_saturation(
    usage: QueueUsage, reclaimer: Reclaimer, freed: Floats, rules: FairnessRules
) -> ReclaimRefused | None:
    siblings = _losing_siblings(usage, reclaimer.queue, freed)
    ours = usage.queues.path[reclaimer.queue, usage.queues.depth[siblings]]
    remaining = usage.allocated - freed
    requested = (reclaimer.request > 0)[:, None]
    involved = (
        requested
        if rules.compared_resources is ComparedResources.REQUESTED
        else requested | (freed[:, siblings] > 0)
    )
    with_request = remaining[:, ours] + reclaimer.request[:, None]
    fair, their_fair = usage.fair[:, ours], usage.fair[:, siblings]
    ratio = _saturation(with_request, fair) * rules.saturation_multiplier
    their_ratio = _saturation(remaining[:, siblings], their_fair)
    refused = involved & exceeds(with_request, fair) & (their_fair > 0)
    # Equal saturations refuse, also when they differ by rounding only.
    refused &= ratio >= their_ratio * (1 - 1e-9)
    if not refused.any():
        return None
    return saturation_refusal(usage, (ours, siblings), (ratio, their_ratio), refused)


def _losing_siblings(usage: QueueUsage, queue: int, freed: Floats) -> Index:
    """Queues that lose something, and are siblings of ``queue`` or of one of its ancestors."""
    ours, theirs = diverging_siblings(usage.queues, queue)
    itself = np.equal(theirs, np.arange(len(theirs)))
    return np.flatnonzero(itself & (ours != theirs) & (freed > 0).any(axis=0)).astype(np.int32)


def _saturation(allocated: Floats, fair: Floats) -> Floats:
    """allocated / fair; inf for any amount without a share, 0 where the share is unlimited."""
    without_share = np.where(allocated > 0, np.inf, 0.0)
    return np.divide(allocated, fair, out=without_share, where=fair > 0)


def is_guaranteed(usage: QueueUsage, reclaimer: Reclaimer, rules: FairnessRules) -> bool:
    """Whether, with the request, the queue and its ancestors stay within what they deserve."""
    path = usage.queues.ancestors(reclaimer.queue)
    rows = compared_rows(reclaimer.request, rules)
    return bool(stays_within_deserved(usage, reclaimer, path, rows).all())


def stays_within_deserved(
    usage: QueueUsage, reclaimer: Reclaimer, ours: Index, rows: Index
) -> Bools:
    """(n,) whether the reclaimer's side, with the request, stays within what it deserves."""
    with_request = usage.allocated[:, ours] + reclaimer.request[:, None]
    return np.logical_not(exceeds_any(with_request[rows], usage.queues.deserved[:, ours][rows]))


def _above_deserved(
    usage: QueueUsage, reclaimer: Reclaimer, queue: int, rows: Sequence[int]
) -> ReclaimRefused | None:
    with_request = usage.counted(QuotaBound.DESERVED, queue) + reclaimer.request
    name, deserved = usage.queues.names[queue], usage.queues.deserved[:, queue]
    return first_above(ReclaimRule.DESERVED, name, with_request, deserved, rows)


def compared_rows(request: Floats, rules: FairnessRules) -> Index:
    """The rows of ``request`` (resources,) that count; all of them if it requests nothing."""
    return np.array(_compared(request, rules), dtype=np.int32)


def _compared(request: Floats, rules: FairnessRules) -> list[int]:
    """``compared_rows`` as a list: for a handful of numbers, arrays cost more than they save."""
    requested = [row for row, amount in enumerate(request.tolist()) if amount > 0]
    if rules.compared_resources is ComparedResources.ALL or not requested:
        return list(range(len(request)))
    return requested
