"""Why does a gang wait, or why does it run where it runs? One record for people and machines.

Made from a snapshot and the plan of its cycle, so the command line, the HTTP endpoint and tests
read the same. GPUs stand for queues' amounts; a maximum of None is no limit.
"""

import enum
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from kai_py.observe.claim_funnel import ClaimFunnel, claim_funnel
from kai_py.observe.decision_log import Decision, decisions_about
from kai_py.observe.suggestion import Suggestion
from kai_py.plan.decisions import Plan, Protection, QueueShare, Shortage, Unplaced
from kai_py.policy.limits import units_of
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot


class Subject(enum.StrEnum):
    """What can be explained."""

    GANG = "gang"
    POD = "pod"
    JOB = "job"
    CLAIM = "claim"
    QUEUE = "queue"


GONE = "Gone"
RUNNING = "Running"
STARTING = "Starting"


@dataclass(frozen=True, slots=True)
class QueueLevel:
    """A queue on the way from the gang's queue to the root, in GPUs or what ``unit`` says."""

    queue: str
    deserved: float
    maximum: float | None
    fair_share: float
    allocated: float
    requested: float
    unit: str = "GPUs"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A gang as of one cycle.

    ``state`` is Running, Starting, Gone or the stage that stops it; ``message`` says why.
    ``position`` counts from 1 among the ``waiting`` gangs of the queue: higher priority first, with
    the points ``gained`` by waiting, then older; 0 where the gang does not wait.
    """

    gang: str
    state: str
    message: str
    queue: str
    priority: int
    floor: int
    bound: int
    pods: int
    position: int
    waiting: int
    nodes: tuple[str, ...]
    queues: tuple[QueueLevel, ...]
    rationed: tuple[QueueLevel, ...] = ()
    """The same for what else the gang asks for and one of these queues rations."""
    started: float = 0.0
    """When the first of the pods that run was bound, in seconds since the epoch; 0 if none runs."""
    shortage: Shortage | None = None
    """The best partial placement, where room is what lacks."""
    protections: tuple[Protection, ...] = ()
    """Who keeps the room that it lacks, and by which rule."""
    suggestions: tuple[Suggestion, ...] = ()
    """Changes with which it would start, each one simulated."""
    history: tuple[Decision, ...] = ()
    """What was decided about it or in its favour: why it is where it is, who evicted it, when."""
    claim: ClaimFunnel | None = None
    """What becomes of the devices for the claim that was asked about."""
    gained: int = 0


@dataclass(frozen=True)
class Explainer:
    """Explains the gangs of one cycle; what holds for several is found out once."""

    snapshot: Snapshot
    plan: Plan

    def explain(self, key: str) -> Explanation | None:
        """Explain the gang called ``key``; None if there is none."""
        gang = self.snapshot.gangs.get(key)
        if gang is None:
            return None
        unplaced = self._unplaced.get(key)
        position, waiting = self._positions.get(key, (0, self._waiting.get(gang.queue, 0)))
        running = STARTING if key in self._starting else RUNNING
        return Explanation(
            gang=key,
            state=unplaced.stage.value if unplaced else running,
            message=unplaced.message if unplaced else "",
            queue=gang.queue,
            priority=gang.priority,
            floor=gang.tree.floor(),
            bound=len(gang.bound),
            pods=len(gang.members),
            position=position,
            waiting=waiting,
            nodes=tuple(dict.fromkeys(member.node for member in gang.bound)),
            queues=tuple(_level(share) for share in self._path(gang.queue)),
            rationed=tuple(self._rationed(gang)),
            started=gang.started,
            shortage=unplaced.shortage if unplaced else None,
            protections=unplaced.protections if unplaced else (),
            gained=unplaced.gained if unplaced else 0,
        )

    @cached_property
    def _unplaced(self) -> Mapping[str, Unplaced]:
        return {each.gang: each for each in self.plan.unplaced}

    @cached_property
    def _starting(self) -> frozenset[str]:
        return frozenset(placement.gang for placement in self.plan.placements)

    @cached_property
    def _positions(self) -> Mapping[str, tuple[int, int]]:
        return places_in_line(self.snapshot, self.plan)

    @cached_property
    def _waiting(self) -> Mapping[str, int]:
        return Counter(unplaced.queue for unplaced in self.plan.unplaced)

    @cached_property
    def _shares(self) -> Mapping[str, QueueShare]:
        return {share.queue: share for share in self.plan.queues}

    def _path(self, queue: str) -> Iterator[QueueShare]:
        while queue in self._shares:
            yield self._shares[queue]
            queue = self._shares[queue].parent

    def _rationed(self, gang: Gang) -> Iterator[QueueLevel]:
        path = list(self._path(gang.queue))
        for resource in sorted(gang.requested.keys() - {GPU}):
            if any(_rations(share, resource) for share in path):
                yield from (_level(share, resource) for share in path)


def explained(
    snapshot: Snapshot,
    plan: Plan,
    subject: Subject,
    name: str,
    *,
    decisions: Sequence[Decision],
    history: Callable[[str], tuple[Decision, ...]],
    most: int | None = None,
) -> list[Explanation]:
    """The first ``most`` gangs that ``name`` stands for; where there is none, one that is gone.

    ``decisions``: those known, oldest first, by which gangs are found that are gone; ``history``
    gives those to tell of a gang. A claim takes seconds in a cluster of ten thousand nodes: all its
    devices are lined up anew.
    """
    explainer, claim = Explainer(snapshot, plan), asked_claim(snapshot, subject, name)
    keys = islice(gang_keys(snapshot, plan, subject, name), most)
    found = [
        replace(each, claim=claim, history=history(each.gang))
        for each in map(explainer.explain, keys)
        if each is not None
    ]
    if not found and (key := key_of_gone(subject, name, decisions)):
        return [gone(key, history(key))]
    return found


def key_of_gone(subject: Subject, name: str, decisions: Sequence[Decision]) -> str:
    """The gang that existed, of which ``decisions`` tell; "" if none does."""
    namespace, _, own_name = name.rpartition("/")
    full = f"{namespace or 'default'}/{own_name}"
    if subject is Subject.POD:
        return next((each.gang for each in reversed(decisions) if full in each.pods), "")
    key = f"{namespace or 'default'}/Job/{own_name}" if subject is Subject.JOB else name
    return key if decisions_about(key, decisions) else ""


def gone(key: str, history: tuple[Decision, ...]) -> Explanation:
    """A gang that exists no longer, of which only decisions are known."""
    return Explanation(
        gang=key,
        state=GONE,
        message="",
        queue=next((each.queue for each in history if each.gang == key), ""),
        priority=0,
        floor=0,
        bound=0,
        pods=0,
        position=0,
        waiting=0,
        nodes=(),
        queues=(),
        history=history,
    )


def gang_of_pod(snapshot: Snapshot, namespace: str, name: str) -> Gang | None:
    """The gang that a pod belongs to."""
    for gang in snapshot.gangs.values():
        if any((m.pod.namespace, m.pod.name) == (namespace, name) for m in gang.members):
            return gang
    return None


def gangs_of_claim(snapshot: Snapshot, namespace: str, name: str) -> tuple[Gang, ...]:
    """The gangs whose pods use a ResourceClaim, by key."""
    return tuple(
        gang
        for _, gang in sorted(snapshot.gangs.items())
        if any(
            (claim.namespace, claim.name) == (namespace, name)
            for member in gang.members
            for claim in member.claims
        )
    )


def gangs_of_queue(snapshot: Snapshot, plan: Plan, queue: str) -> list[str]:
    """The gangs of a queue itself: those that wait first, in the order of the line."""
    gangs = [gang for gang in snapshot.gangs.values() if gang.queue == queue]
    gangs.sort(key=lambda gang: (not gang.pending, -gang.priority, gang.created, gang.key))
    line = _waiting_lines(snapshot, plan).get(queue, ())
    return list(dict.fromkeys((*line, *(gang.key for gang in gangs))))


def gang_keys(snapshot: Snapshot, plan: Plan, subject: Subject, name: str) -> Iterator[str]:
    """The gangs that ``name`` stands for; a namespace left out is ``default``."""
    namespace, _, own_name = name.rpartition("/")
    namespace = namespace or "default"
    match subject:
        case Subject.GANG:
            yield name
        case Subject.JOB:
            yield f"{namespace}/Job/{own_name}"
        case Subject.POD:
            gang = gang_of_pod(snapshot, namespace, own_name)
            if gang is not None:
                yield gang.key
        case Subject.CLAIM:
            yield from (gang.key for gang in gangs_of_claim(snapshot, namespace, own_name))
        case Subject.QUEUE:
            yield from gangs_of_queue(snapshot, plan, name)


def asked_claim(snapshot: Snapshot, subject: Subject, name: str) -> ClaimFunnel | None:
    """What becomes of the devices for the claim that was asked about, if it was one."""
    if subject is not Subject.CLAIM:
        return None
    namespace, _, own_name = name.rpartition("/")
    return claim_funnel(snapshot, namespace or "default", own_name)


def _waiting_lines(snapshot: Snapshot, plan: Plan) -> Mapping[str, Sequence[str]]:
    """Per queue the keys of the gangs that wait in it: higher priority first, then older."""
    lines: dict[str, list[tuple[int, float, str]]] = {}
    for unplaced in plan.unplaced:
        gang = snapshot.gangs.get(unplaced.gang)
        if gang is not None:
            rank = (-gang.priority - unplaced.gained, gang.created, gang.key)
            lines.setdefault(unplaced.queue, []).append(rank)
    return {queue: [key for *_, key in sorted(line)] for queue, line in lines.items()}


def places_in_line(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[int, int]]:
    """Waiting gang to its place in the line of its queue, from 1, and the line's length."""
    return {
        key: (place, len(line))
        for line in _waiting_lines(snapshot, plan).values()
        for place, key in enumerate(line, start=1)
    }


def _rations(share: QueueShare, resource: str) -> bool:
    bounds = (share.maximum.get(resource, math.inf), share.deserved.get(resource, math.inf))
    return not all(map(math.isinf, bounds))


def _level(share: QueueShare, resource: str = GPU) -> QueueLevel:
    unit, per_unit = units_of(resource)

    def amount(amounts: Mapping[str, float]) -> float:
        return amounts.get(resource, 0.0) / per_unit

    maximum = share.maximum.get(resource, math.inf)
    return QueueLevel(
        queue=share.queue,
        deserved=amount(share.deserved),
        maximum=None if math.isinf(maximum) else maximum / per_unit,
        fair_share=amount(share.fair_share),
        allocated=amount(share.allocated),
        requested=amount(share.requested),
        unit=unit,
    )
