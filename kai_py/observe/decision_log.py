"""Log of the last decisions, numbered, in memory.

A cycle's decisions are those in its plan that the plan before did not have: gangs placed, pods
evicted and for which gang, nominations, and gangs that begin to wait, wait at another stage, or
were deleted. Numbers grow by one, so a reader can tell whether it missed any.
"""

import asyncio
import enum
import math
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.resource_names import BASE_RESOURCES
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Action, Eviction, GangPlacement, Plan, Unplaced
from kai_py.policy.queue_limits import display_unit
from kai_py.snapshot.accounting import GPU

MAX_DECISIONS = 5000
_PLACEMENT_REASONS = {
    Action.ALLOCATE: "it fits into idle capacity",
    Action.CONSOLIDATE: "other gangs were relocated for it",
    Action.RECLAIM: "capacity was reclaimed from queues above their fair share",
    Action.PREEMPT: "gangs of lower priority in its queue were preempted",
    Action.STALE: "it fits into idle capacity",
    Action.DEPARTURE: "it fits into idle capacity",
}


class DecisionKind(enum.StrEnum):
    """Kind of a decision."""

    PLACED = "placed"
    EVICTED = "evicted"
    NOMINATED = "nominated"
    PENDING = "pending"
    DELETED = "deleted"
    """The gang was pending and has been deleted."""


class Decision(Struct, frozen=True, kw_only=True):
    """One decision about a gang; ``time`` in seconds since the epoch.

    ``stage`` and ``message`` say why it waits, ``previous_stage`` what stopped it before ("" if
    nothing did). Of an eviction, ``action`` is the rule and ``message`` the text of the event. Of a
    placement, ``message`` says how capacity was obtained, and the usage of its queue.
    """

    kind: DecisionKind
    gang: str
    queue: str
    number: int = 0
    time: float = 0.0
    action: str = ""
    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    stage: str = ""
    previous_stage: str = ""
    message: str = ""
    preemptor: str = ""
    preemptor_queue: str = ""


class DecisionLog:
    """The last ``size`` decisions; belongs to one event loop.

    ``before``: numbers left free for decisions of earlier leaders, which ``recall`` adds.
    """

    def __init__(self, size: int = MAX_DECISIONS, before: int = 0) -> None:
        self._decisions: deque[Decision] = deque(maxlen=size)
        self._before = before
        self._last_plan = Plan()
        self._changed = asyncio.Event()
        self.cycle = 0

    @property
    def newest(self) -> int:
        """Number of the last decision, or the last that is left free before the first."""
        return self._decisions[-1].number if self._decisions else self._before

    def recall(self, decisions: Sequence[Decision]) -> None:
        """Put those of earlier leaders, oldest first, before all others; to be called once."""
        first = self._decisions[0].number if self._decisions else self._before + 1
        size = self._decisions.maxlen or len(decisions)
        space = min(size - len(self._decisions), first - 1)
        newest = decisions[len(decisions) - min(space, len(decisions)) :]
        for back, decision in enumerate(reversed(newest), start=1):
            self._decisions.appendleft(replace(decision, number=first - back))

    def record(self, plan: Plan, gangs: Container[str], now: float) -> tuple[Decision, ...]:
        """Add a cycle's decisions and return them; ``gangs``: keys of the gangs that exist."""
        before = self.newest
        for decision in new_decisions(self._last_plan, plan, gangs):
            number = self.newest + 1
            self._decisions.append(replace(decision, number=number, time=now))
        self._last_plan = plan
        self.cycle += 1
        # Wakes the present waiters only: later ones wait on the next cycle's event.
        self._changed.set()
        self._changed = asyncio.Event()
        return self.since(before)

    def since(self, number: int) -> tuple[Decision, ...]:
        """Decisions after ``number``, oldest first, as far as they are kept."""
        first = self._decisions[0].number if self._decisions else self._before + 1
        return tuple(islice(self._decisions, max(number - first + 1, 0), None))

    def made_after(self, time: float) -> tuple[Decision, ...]:
        """Decisions made after ``time``, in seconds since the epoch."""
        return tuple(decision for decision in self._decisions if decision.time > time)

    async def cycle_after(self, cycle: int) -> int:
        """Wait for a cycle later than ``cycle``; returns the number of the last one."""
        while self.cycle <= cycle:
            await self._changed.wait()
        return self.cycle


def decisions_about(gang: str, decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Decisions about ``gang`` or in its favour."""
    return tuple(each for each in decisions if gang in (each.gang, each.preemptor))


def new_decisions(before: Plan, plan: Plan, gangs: Container[str]) -> Iterator[Decision]:
    """Decisions in ``plan`` that are not in ``before``."""
    placed = {_identity(gang) for gang in before.placements}
    for gang in plan.placements:
        if _identity(gang) not in placed:
            yield Decision(
                kind=DecisionKind.PLACED,
                gang=gang.gang,
                queue=gang.queue,
                action=gang.action.value,
                pods=tuple(str(pod.pod) for pod in gang.pods),
                nodes=tuple(dict.fromkeys(pod.node for pod in gang.pods)),
                message=_placement_message(plan, gang),
            )
    yield from _evicted(before, plan)
    yield from _nominated(before, plan)
    yield from _waiting(before, plan, gangs)


def placement_reason(action: Action) -> str:
    """Text on how an action obtained capacity for a gang."""
    return _PLACEMENT_REASONS[action]


def _placement_message(plan: Plan, gang: GangPlacement) -> str:
    """Text on how capacity was obtained, and the usage of the gang's queue with it."""
    reason = _PLACEMENT_REASONS[gang.action]
    share = next((share for share in plan.queues if share.queue == gang.queue), None)
    if share is None:
        return reason
    usage = ", ".join(_usage(share, name) for name in _told(gang.charge, share.allocated))
    return f"{reason}; queue {gang.queue} then has {usage}" if usage else reason


def _told(charge: Mapping[str, float], counted: Container[str]) -> list[str]:
    """The devices of a charge, GPUs first; what every pod has, like CPU, where there are none."""
    charged = sorted(
        (name for name, amount in charge.items() if amount and name in counted),
        key=lambda name: (name != GPU, name),
    )
    return [name for name in charged if name not in BASE_RESOURCES] or charged


def _usage(share: QueueShare, resource: str) -> str:
    unit, size = display_unit(resource)
    allocated = share.allocated.get(resource, 0.0) / size
    fair = share.fair_share.get(resource, math.inf) / size
    text = f"{round(allocated, 2):g} {unit} allocated"
    return f"{text}, fair share {round(fair, 2):g}" if math.isfinite(fair) else text


def _identity(gang: GangPlacement) -> tuple[str, ...]:
    return (gang.gang, *(f"{pod.pod.uid} {pod.node}" for pod in gang.pods))


def _evicted(before: Plan, plan: Plan) -> Iterator[Decision]:
    known = {eviction.pod.uid for eviction in before.evictions}
    grouped: dict[tuple[str, ...], list[Eviction]] = {}
    for eviction in plan.evictions:
        if eviction.pod.uid not in known:
            key = (eviction.gang, eviction.action, eviction.preemptor, eviction.reason)
            grouped.setdefault(key, []).append(eviction)
    for evictions in grouped.values():
        first = evictions[0]
        yield Decision(
            kind=DecisionKind.EVICTED,
            gang=first.gang,
            queue=first.queue,
            action=first.action.value,
            pods=tuple(str(each.pod) for each in evictions),
            nodes=tuple(dict.fromkeys(each.node for each in evictions)),
            message=first.reason,
            preemptor=first.preemptor,
            preemptor_queue=first.preemptor_queue,
        )


def _nominated(before: Plan, plan: Plan) -> Iterator[Decision]:
    known = {(each.pod.uid, each.node) for each in before.nominations}
    queues = {each.gang: each.queue for each in plan.unplaced}
    grouped: dict[str, list[tuple[str, str]]] = {}
    for each in plan.nominations:
        if (each.pod.uid, each.node) not in known:
            grouped.setdefault(each.gang, []).append((str(each.pod), each.node))
    for gang, nominated in grouped.items():
        yield Decision(
            kind=DecisionKind.NOMINATED,
            gang=gang,
            queue=queues.get(gang, ""),
            pods=tuple(pod for pod, _ in nominated),
            nodes=tuple(dict.fromkeys(node for _, node in nominated)),
        )


def _waiting(before: Plan, plan: Plan, gangs: Container[str]) -> Iterator[Decision]:
    previous = {each.gang: each for each in before.unplaced}
    for each in plan.unplaced:
        earlier = previous.pop(each.gang, None)
        if earlier is None or earlier.stage is not each.stage:
            yield Decision(
                kind=DecisionKind.PENDING,
                gang=each.gang,
                queue=each.queue,
                stage=each.stage.value,
                previous_stage="" if earlier is None else earlier.stage.value,
                message=each.message,
            )
    for each in previous.values():
        if each.gang not in gangs:
            yield _deleted(each)


def _deleted(unplaced: Unplaced) -> Decision:
    return Decision(
        kind=DecisionKind.DELETED,
        gang=unplaced.gang,
        queue=unplaced.queue,
        previous_stage=unplaced.stage.value,
    )
