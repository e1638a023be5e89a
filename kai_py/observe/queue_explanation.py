"""Explanation of a queue: what it has, is entitled to and why, who borrows, what would change it.

Made from a snapshot and the plan of its cycle; amounts are GPUs. A queue borrows what it has above
its deserved amount; it lends what it deserves, and neither has nor could use now.

Gangs on nodes may be charged to no queue, as theirs was deleted or is closed to them. Their pods
run on, outside all shares and limits.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from kai_py.api.texts import count_of, first_of, is_or_are
from kai_py.observe.share_steps import format_amount
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan, Stage
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_objects import QueueFields

MAX_NAMED = 3
"""Queues, or gangs, that a sentence names."""


class Uncharged(Struct):
    """How many gangs and pods of one queue are on nodes without being charged to it."""

    gangs: int = 0
    pods: int = 0

    @property
    def _counted(self) -> str:
        gangs, pods = count_of(self.gangs, "gang"), count_of(self.pods, "pod")
        return f"{gangs} with {pods} on nodes {is_or_are(self.gangs)} charged to no queue"

    def of_missing(self, queue: str) -> str:
        """The problem of a queue that does not exist."""
        return f"queue {queue!r} does not exist; {self._counted}. Create it to charge it with them"

    def of_closed(self, queue: str) -> str:
        """The problem of a queue that does not accept the namespaces of these gangs."""
        gangs = "its namespace" if self.gangs == 1 else "their namespaces"
        return f"{self._counted}: queue {queue!r} does not accept {gangs}"


def uncharged_gangs(snapshot: Snapshot) -> Mapping[str, Uncharged]:
    """By the name of their queue, in order. O(pods)."""
    queues = {each.name for each in snapshot.queues}
    found: dict[str, Uncharged] = {}
    for gang in snapshot.gangs.values():
        if not gang.queue or (gang.charged and gang.queue in queues):
            continue
        pods = sum(bool(member.node) for member in gang.members)
        if pods:
            counts = found.setdefault(gang.queue, Uncharged())
            counts.gangs += 1
            counts.pods += pods
    return dict(sorted(found.items()))


class QueueExplanation(Struct, frozen=True):
    """``pending``: gangs of the queue itself by stage; ``sentences``: the explanation in order."""

    queue: str
    deserved: float
    maximum: float | None
    fair_share: float
    allocated: float
    requested: float
    pending: dict[str, int]
    sentences: tuple[str, ...]


def explain_queue(
    snapshot: Snapshot, plan: Plan, name: str, shows: Callable[[str], bool] = lambda _queue: True
) -> QueueExplanation | None:
    """Explain the queue ``name``; None if there is none and no gang runs in it. O(queues + pods).

    ``shows``: whether another queue may be named; those that may not are one sum.
    """
    stages = Counter(each.stage.value for each in plan.unplaced if each.queue == name)
    uncharged = uncharged_gangs(snapshot).get(name)
    share = next((each for each in plan.queues if each.queue == name), None)
    if share is None:
        return None if uncharged is None else _missing(snapshot, name, stages, uncharged)
    maximum = share.maximum.get(GPU, math.inf)
    return QueueExplanation(
        queue=name,
        deserved=_gpus(share.deserved),
        maximum=None if math.isinf(maximum) else maximum,
        fair_share=_gpus(share.fair_share),
        allocated=_gpus(share.allocated),
        requested=_gpus(share.requested),
        pending=dict(sorted(stages.items())),
        sentences=(
            _allocation(share),
            _entitlement(share),
            *_infeasible(share, plan),
            *_borrowing(share, plan, shows),
            *_spares(share),
            *_changes(share, stages),
            *(f"Problem: {problem.reason}" for problem in share.problems),
            *((f"Problem: {uncharged.of_closed(name)}",) if uncharged else ()),
        ),
    )


def _missing(
    snapshot: Snapshot, name: str, stages: Counter[str], uncharged: Uncharged
) -> QueueExplanation:
    """A queue that does not exist, in which gangs run."""
    return QueueExplanation(
        queue=name,
        deserved=0.0,
        maximum=0.0,
        fair_share=0.0,
        allocated=_gpus(snapshot.queue_allocated.get(name, {})),
        requested=_gpus(snapshot.queue_requested.get(name, {})),
        pending=dict(sorted(stages.items())),
        sentences=(f"Problem: {uncharged.of_missing(name)}",),
    )


def _gpus(amounts: Mapping[str, float]) -> float:
    return amounts.get(GPU, 0.0)


def _allocation(share: QueueShare) -> str:
    allocated, requested = _gpus(share.allocated), _gpus(share.requested)
    maximum = share.maximum.get(GPU, math.inf)
    limit = "has no max" if math.isinf(maximum) else f"may have {format_amount(maximum)}"
    requests = (
        f"It requests {count_of(round(requested, 2), 'GPU')} and has {format_amount(allocated)}"
    )
    return f"{requests}; it deserves {format_amount(_gpus(share.deserved))} and {limit}."


def _entitlement(share: QueueShare) -> str:
    fair, allocated = _gpus(share.fair_share), _gpus(share.allocated)
    entitled = f"Its fair share is {format_amount(fair)}"
    if allocated > fair:
        return f"{entitled}: other queues may reclaim {format_amount(allocated - fair)}."
    if allocated < fair:
        return f"{entitled}: it is entitled to {format_amount(fair - allocated)} more."
    return f"{entitled}, and it has all of it." if fair else f"{entitled}: it requests none."


def _infeasible(share: QueueShare, plan: Plan) -> Iterator[str]:
    """The part of its requests that can never run: GPUs, or else other resources."""
    if not share.infeasible:
        return
    gpus = _gpus(share.infeasible)
    amount = count_of(round(gpus, 2), "GPU") if gpus else ", ".join(sorted(share.infeasible))
    gangs = [
        each.gang for each in plan.unplaced if each.queue == share.queue and each.is_infeasible
    ]
    named = f": {first_of(gangs, MAX_NAMED)}" if gangs else ""
    yield (
        f"Of what it requests, the nodes of this cluster can never serve {amount}, which do not "
        f"count as demand{named}."
    )


def _borrowing(share: QueueShare, plan: Plan, shows: Callable[[str], bool]) -> Iterator[str]:
    siblings = [each for each in plan.queues if each.parent == share.parent and each is not share]
    above = _gpus(share.allocated) - _gpus(share.deserved)
    if above > 0:
        lenders = {each.queue: _unused(each) for each in siblings if _unused(each) > 0}
        named, are_several = _named(lenders, shows)
        verbs = "deserve and do not use" if are_several else "deserves and does not use"
        source = f", of what {named} {verbs}" if lenders else ""
        yield f"It borrows {count_of(round(above, 2), 'GPU')}{source}."
    elif _unused(share) > 0:
        borrowers = {
            each.queue: _gpus(each.allocated) - _gpus(each.deserved)
            for each in siblings
            if _gpus(each.allocated) > _gpus(each.deserved)
        }
        if borrowers:
            named, are_several = _named(borrowers, shows)
            verbs = "borrow GPUs, and lose" if are_several else "borrows GPUs, and loses"
            yield f"{named} {verbs} them when this queue needs its own."


def _spares(share: QueueShare) -> Iterator[str]:
    if share.spares:
        named = first_of(share.spares)
        yield f"Spare nodes, which only repairs use: {named}."


def _unused(share: QueueShare) -> float:
    deserved = _gpus(share.deserved)
    return 0.0 if math.isinf(deserved) else max(0.0, deserved - _gpus(share.allocated))


def _named(amounts: dict[str, float], shows: Callable[[str], bool]) -> tuple[str, bool]:
    """Queues with their amounts, and whether they are several, as those of others are."""
    hidden = sum(amount for queue, amount in amounts.items() if not shows(queue))
    amounts = {queue: amount for queue, amount in amounts.items() if shows(queue)}
    if hidden:
        amounts["queues of others"] = hidden
    largest = sorted(amounts.items(), key=lambda each: (-each[1], each[0]))
    names = [f"{name} ({format_amount(amount)})" for name, amount in largest]
    return first_of(names, MAX_NAMED), len(names) > 1 or hidden > 0


def _changes(share: QueueShare, stages: Counter[str]) -> Iterator[str]:
    """Sentences on what would let its pending gangs start, by the stages that stop them."""
    if not stages:
        yield "None of its gangs is pending."
        return
    counted = ", ".join(f"{count} {stage}" for stage, count in sorted(stages.items()))
    yield f"Pending gangs: {counted}."
    limit, deserved = (
        QueueFields(share.api_version).path(GPU, bound).removeprefix("spec.")
        for bound in ("max", "deserved")
    )
    if Stage.QUEUE_MAX in stages:
        yield f"QueueMax: a larger {limit}, here or above, is what these need first."
    if stages.keys() & {Stage.FAIR_SHARE, Stage.NON_PREEMPTIBLE}:
        yield f"A larger {deserved} would raise what it may take from other queues."
    elif _gpus(share.allocated) < _gpus(share.fair_share):
        yield "`kai-py explain gang NAME` shows what keeps each from using the rest of its share."
