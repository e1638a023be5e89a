"""Whose room may a gang take that its own queue is entitled to?

Let R be the queue of the reclaimer and V that of a victim, both at the first level at which their
lines differ (siblings). "Within" and "above" are judged over the resources of ``Rules.compared``.

1. Who may reclaim: allocated(R) + request is within R's fair share; a non-preemptible request is
   also within what R deserves.
2. Whose pods may be asked: if R stays within what it deserves, V must exceed what it deserves in a
   resource asked for, or not fall short in any; else V must be above its allocatable.
3. Each victim, against what V still holds when it is taken: either V is above its allocatable
   (maintain fair share), or R stays within what it deserves and V is above what it deserves
   (guarantee deserved). Victims of one queue are taken in the order given, queues in table order,
   so the verdict depends on which victims there are and not on how queues were visited. A set that
   is refused stays refused when victims are added: the largest legal prefix is found by bisection.
4. For R's queue and each one above it, against each sibling X that loses something: refused if R
   ends above its fair share, X has one, and saturation(R) x multiplier >= saturation(X), where
   saturation = held / fair share.
5. A non-preemptible request is within what is deserved at every level.

All are pure functions of arrays. A refusal carries the inequality that decided.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kai_py.policy.fairness_rules import ComparedResources, FairnessRules
from kai_py.policy.queue_usage import QueueUsage, diverging_siblings, exceeds, exceeds_any
from kai_py.policy.water_fill import running_sums
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.tables.queue_tree import Index


class ReclaimRule(StrEnum):
    """The rule that refused."""

    FAIR_SHARE = "ReclaimerAboveFairShare"
    DESERVED = "NonPreemptibleAboveDeserved"
    VICTIM = "VictimQueueWithinItsShare"
    SATURATION = "ReclaimerMoreSaturated"


@dataclass(frozen=True, slots=True)
class Reclaimer:
    """A gang that wants room of other queues: (resources,) request of the pods still to place."""

    queue: int
    request: Floats
    preemptible: bool


@dataclass(frozen=True, slots=True)
class Victims:
    """Evictions in the order of taking: (n,) leaf queues, (resources, n) what each gives back.

    One entry is what leaves together: an elastic pod alone, the core of a gang as a whole.
    """

    queue: Index
    amount: Floats

    def first(self, count: int) -> "Victims":
        """The first ``count`` evictions."""
        return Victims(self.queue[:count], self.amount[:, :count])


@dataclass(frozen=True, slots=True)
class ReclaimRefused:
    """The comparison that decided, of row ``resource``.

    ``FAIR_SHARE`` and ``DESERVED``: ``value``, what ``queue`` would hold, is above ``bound``.
    ``VICTIM``: ``value``, what ``queue`` still holds, is not above ``bound``; ``against`` is the
    reclaimer's side. ``SATURATION``: ``value``, the saturation of ``queue`` times the multiplier,
    is not below ``bound``, that of its sibling ``against``.
    """

    rule: ReclaimRule
    queue: str
    against: str
    resource: int
    value: float
    bound: float


def may_reclaim(
    usage: QueueUsage, reclaimer: Reclaimer, rules: FairnessRules
) -> ReclaimRefused | None:
    """Rule 1, before any victim is looked for."""
    at, rows = reclaimer.queue, compared_rows(reclaimer.request, rules)
    held = usage.allocated[:, at] + reclaimer.request
    above = _first_above(held, usage.fair[:, at], rows)
    if above is not None:
        name = usage.queues.names[at]
        value, bound = float(held[above]), float(usage.fair[above, at])
        return ReclaimRefused(ReclaimRule.FAIR_SHARE, name, "", above, value, bound)
    if reclaimer.preemptible:
        return None
    return _above_deserved(usage, reclaimer, at, rows)


def reclaimable_queues(usage: QueueUsage, reclaimer: Reclaimer, rules: FairnessRules) -> Bools:
    """(queues,) rule 2: the queues whose pods may be asked. The reclaimer's own line is not."""
    ours, theirs = diverging_siblings(usage.queues, reclaimer.queue)
    rows = compared_rows(reclaimer.request, rules)
    starved = stays_within_deserved(usage, reclaimer, ours, rows)
    held = usage.allocated[:, theirs]
    above_share = maintains_fair_share(held[rows], usage.allocatable[:, theirs][rows])
    deserved = usage.queues.deserved[:, theirs]
    asked = (reclaimer.request > 0)[:, None] & np.isfinite(deserved)
    more = (asked & exceeds(held, deserved)).any(axis=0)
    less = (asked & exceeds(deserved, held)).any(axis=0)
    candidates: Bools = np.where(starved, more | ~less, above_share) & (ours != theirs)
    return candidates


def check_reclaim(
    usage: QueueUsage, reclaimer: Reclaimer, victims: Victims, rules: FairnessRules
) -> ReclaimRefused | None:
    """Rules 3 to 5 for one set of victims; None means that it may be carried out."""
    refused = check_victims(usage, reclaimer, victims, rules)
    return refused or check_boundaries(usage, reclaimer, victims, rules)


def check_victims(
    usage: QueueUsage, reclaimer: Reclaimer, victims: Victims, rules: FairnessRules
) -> ReclaimRefused | None:
    """Rule 3; names the first victim queue that would be taken from without being above its due."""
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
    holds = usage.allocated[:, theirs] - _freed_before(theirs, amount)
    allocatable, deserved = usage.allocatable[:, theirs], usage.queues.deserved[:, theirs]
    bound = np.where(starved, np.minimum(allocatable, deserved), allocatable)
    nearest = int(rows[np.argmax((holds - bound)[rows, first])])
    names = usage.queues.names
    return ReclaimRefused(
        ReclaimRule.VICTIM,
        names[theirs[first]],
        names[ours[first]],
        nearest,
        float(holds[nearest, first]),
        float(bound[nearest, first]),
    )


def allowed_by_share(
    usage: QueueUsage, their_queues: Index, starved: Bools, amount: Floats, rows: Index
) -> Bools:
    """(n,) whether rule 3 allows each victim, of amounts (resources, n), after those before it.

    ``theirs`` (n,): the queues that lose it, each facing the reclaimer; ``starved`` (n,): whether
    the reclaimer's side stays within what it deserves; ``rows``: the resources that count.
    """
    holds = (usage.allocated[:, their_queues] - _freed_before(their_queues, amount))[rows]
    allowed: Bools = maintains_fair_share(
        holds, usage.allocatable[:, their_queues][rows]
    ) | guarantees_deserved(starved, holds, usage.queues.deserved[:, their_queues][rows])
    return allowed


def max_victims(
    usage: QueueUsage, reclaimer: Reclaimer, min_released: Floats, rules: FairnessRules
) -> Floats:
    """(queues,) how many evictions rule 3 can allow at each queue that faces the reclaimer.

    ``smallest`` (resources, queues): the least that one eviction gives back of each resource. A
    queue may give while it holds more than its due of any resource, so no more evictions than
    bring every resource down to it.
    """
    ours, theirs = diverging_siblings(usage.queues, reclaimer.queue)
    rows = compared_rows(reclaimer.request, rules)
    starved = stays_within_deserved(usage, reclaimer, ours, rows)
    due = np.where(
        starved, np.minimum(usage.allocatable, usage.queues.deserved), usage.allocatable
    )[rows][:, theirs]
    excess = np.maximum(usage.allocated[rows][:, theirs] - due, 0.0)
    least = min_released[rows][:, theirs]
    unbounded = np.where(excess > 0, np.inf, 0.0)
    steps = np.divide(excess, least, out=unbounded, where=least > 0)
    most: Floats = np.ceil(steps - 1e-9).max(axis=0, initial=0.0)
    return most


def maintains_fair_share(allocated: Floats, allocatable: Floats) -> Bools:
    """(n,) the strategy that takes from queues above their allocatable; (resources, n) inputs."""
    return exceeds_any(allocated, allocatable)


def guarantees_deserved(starved: Bools, allocated: Floats, deserved: Floats) -> Bools:
    """(n,) the strategy that lets a starved queue take from queues above what they deserve."""
    return starved & exceeds_any(allocated, deserved)


def check_boundaries(
    usage: QueueUsage, reclaimer: Reclaimer, victims: Victims, rules: FairnessRules
) -> ReclaimRefused | None:
    """Rules 4 and 5: what the reclaimer's line and its siblings end up with."""
    refused = _check_saturation(usage, reclaimer, freed_by(usage, victims), rules)
    if refused is not None or reclaimer.preemptible:
        return refused
    rows = compared_rows(reclaimer.request, rules)
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
    left = usage.allocated - freed
    asked = (reclaimer.request > 0)[:, None]
    involved = (
        asked
        if rules.compared_resources is ComparedResources.REQUESTED
        else asked | (freed[:, siblings] > 0)
    )
    gained = left[:, ours] + reclaimer.request[:, None]
    fair, their_fair = usage.fair[:, ours], usage.fair[:, siblings]
    ratio = _saturation(gained, fair) * rules.saturation_multiplier
    their_ratio = _saturation(left[:, siblings], their_fair)
    refused = involved & exceeds(gained, fair) & (their_fair > 0)
    refused &= ratio >= their_ratio * (1 - 1e-9)
    if not refused.any():
        return None
    at, row = divmod(int(refused.T.argmax()), len(freed))
    names = usage.queues.names
    return ReclaimRefused(
        ReclaimRule.SATURATION,
        names[ours[at]],
        names[siblings[at]],
        row,
        float(ratio[row, at]),
        float(their_ratio[row, at]),
    )


def _losing_siblings(usage: QueueUsage, queue: int, freed: Floats) -> Index:
    """Queues that lose something, and are siblings of ``queue`` or of one above it."""
    ours, theirs = diverging_siblings(usage.queues, queue)
    itself = np.equal(theirs, np.arange(len(theirs)))
    return np.flatnonzero(itself & (ours != theirs) & (freed > 0).any(axis=0)).astype(np.int32)


def _saturation(allocated: Floats, fair: Floats) -> Floats:
    """held / fair; inf for holding anything without a share, 0 where the share is unlimited."""
    nothing = np.where(allocated > 0, np.inf, 0.0)
    return np.divide(allocated, fair, out=nothing, where=fair > 0)


def freed_by(usage: QueueUsage, victims: Victims) -> Floats:
    """(resources, queues) what the victims give back, with everything above them."""
    own = np.zeros_like(usage.allocated)
    np.add.at(own.T, victims.queue, victims.amount.T)
    return usage.queues.subtree_sums(own)


def _freed_before(their_queues: Index, amount: Floats) -> Floats:
    """(resources, n) what is taken from the same queue before each victim."""
    if len(their_queues) == 1:
        return np.zeros_like(amount)
    order = np.argsort(their_queues, kind="stable")
    group = their_queues[order].astype(np.int64)
    taken = np.empty_like(amount)
    taken[:, order] = running_sums(group, amount[:, order])
    return taken


def stays_within_deserved(
    usage: QueueUsage, reclaimer: Reclaimer, ours: Index, rows: Index
) -> Bools:
    """(n,) whether the reclaimer's side stays within what it deserves with the request."""
    held = usage.allocated[:, ours] + reclaimer.request[:, None]
    return np.logical_not(exceeds_any(held[rows], usage.queues.deserved[:, ours][rows]))


def _above_deserved(
    usage: QueueUsage, reclaimer: Reclaimer, queue: int, rows: Index
) -> ReclaimRefused | None:
    held = usage.non_preemptible[:, queue] + reclaimer.request
    deserved = usage.queues.deserved[:, queue]
    above = _first_above(held, deserved, rows)
    if above is None:
        return None
    name = usage.queues.names[queue]
    value, bound = float(held[above]), float(deserved[above])
    return ReclaimRefused(ReclaimRule.DESERVED, name, "", above, value, bound)


def _first_above(allocated: Floats, bound: Floats, rows: Index) -> int | None:
    above = rows[exceeds(allocated, bound)[rows]]
    return int(above[0]) if len(above) else None


def compared_rows(request: Floats, rules: FairnessRules) -> Index:
    """The rows that count; all of them for a gang that asks for nothing."""
    asked = np.flatnonzero(request > 0).astype(np.int32)
    if rules.compared_resources is ComparedResources.ALL or not len(asked):
        return np.arange(len(request), dtype=np.int32)
    return asked
