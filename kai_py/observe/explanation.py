"""Explanation of a gang: why it is pending, or why it runs where it runs.

Made from a snapshot and the plan of its cycle, so that the command line, the HTTP endpoint and
tests agree. Queues' amounts are GPUs, and other resources that they limit; a maximum of None is no
limit.

Expected releases say which capacity becomes free when, from terminating pods and known runtimes:
GPUs of the whole cluster, without the names of workloads, as the reader may not be allowed to see
them. O(pods) per cycle that is explained.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from kai_py.api.choices import Subject
from kai_py.api.groups import grouped
from kai_py.api.node_departures import DepartureStage
from kai_py.api.texts import count_of, is_or_are
from kai_py.observe.claim_funnel import ClaimFunnel
from kai_py.observe.cluster_view import queue_positions
from kai_py.observe.decision_log import Decision
from kai_py.observe.gang_rows import (
    GangStates,
    below_min_member,
    starting_pods,
    terminating_pods,
)
from kai_py.observe.subject import claim_funnel_of, deleted_gang_key, gang_keys, misnamed_scheduler
from kai_py.observe.suggestion import Suggestion
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import (
    SHORT_OF_CAPACITY,
    Eviction,
    Plan,
    Protection,
    Shortage,
)
from kai_py.plan.victims.survival import effect_text
from kai_py.policy.queue_limits import display_unit
from kai_py.policy.runtime_history import ExpectedEnds
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

MAX_RELEASES = 3


class ExpectedRelease(Struct, frozen=True):
    """By ``at`` (seconds since the epoch) pods with ``gpus`` in total are expected to have ended.

    ``at`` is 0 for pods that are terminating already. ``is_observed``: some of the runtimes are not
    declared, but those of earlier pods of the same kind.
    """

    at: float
    gpus: float
    is_observed: bool = False


def expected_ends(snapshot: Snapshot, ends: ExpectedEnds) -> tuple[ExpectedRelease, ...]:
    """The GPUs of each pod that is about to end, the first end first; not summed up."""
    return tuple(sorted(_ends(snapshot, ends), key=lambda each: (each.at, each.gpus)))


def _ends(snapshot: Snapshot, ends: ExpectedEnds) -> Iterator[ExpectedRelease]:
    for member in snapshot.terminating:
        yield ExpectedRelease(0.0, member.charged_gpus)
    for gang in snapshot.gangs.values():
        for member in gang.bound:
            at = ends.end_of(gang, member)
            if snapshot.now < at < math.inf:
                declared = gang.expected_runtime
                is_observed = declared is None or at != member.bound_since + declared
                yield ExpectedRelease(at, member.charged_gpus, is_observed)


def releases_for(gang: Gang, ends: Sequence[ExpectedRelease]) -> tuple[ExpectedRelease, ...]:
    """Sums over the first ``ends`` until as many GPUs have ended as the gang waits for."""
    wanted = sum(member.charged_gpus for member in gang.pending)
    sums: dict[float, tuple[float, bool]] = {}
    ended, is_observed = 0.0, False
    for each in ends:
        if ended >= wanted and each.at not in sums:
            break
        ended += each.gpus
        is_observed |= each.is_observed
        if ended:
            sums[each.at] = ended, is_observed
    found = [ExpectedRelease(at, *known) for at, known in sums.items()]
    return (*found[: MAX_RELEASES - 1], *found[MAX_RELEASES - 1 :][-1:])


DELETED = "Deleted"
OTHER_SCHEDULER = "OtherScheduler"
"""Its pods name another scheduler than this one, almost."""
NO_PODS = "NoPods"


class QueueLevel(Struct, frozen=True):
    """A queue on the path from the gang's queue to the root; amounts in ``unit``.

    In JSON, null is no limit.
    """

    queue: str
    deserved: float | None
    maximum: float | None
    fair_share: float | None
    allocated: float
    requested: float
    unit: str = "GPUs"


class Explanation(Struct, frozen=True):
    """A gang as of one cycle.

    ``state`` is Running, Starting, Terminating, Deleted, OtherScheduler, NoPods or the stage that
    stops it; ``message`` says why, or what becomes of its pods. ``queue_position`` counts from 1
    among the ``queue_length`` pending gangs of the queue: higher priority first, with the
    ``ageing_points``, then older; 0 where the gang is not pending. A workload that is no gang of
    this scheduler has the defaults for the rest.
    """

    gang: str
    state: str
    message: str
    queue: str = ""
    priority: int = 0
    min_members: int = 0
    bound: int = 0
    pods: int = 0
    queue_position: int = 0
    queue_length: int = 0
    nodes: tuple[str, ...] = ()
    queues: tuple[QueueLevel, ...] = ()
    limited_resources: tuple[QueueLevel, ...] = ()
    """The same levels for each other requested resource that one of these queues limits."""
    started: float = 0.0
    """When the first of the running pods was bound, in seconds since the epoch; 0 if none runs."""
    shortage: Shortage | None = None
    """The best partial placement, if capacity is lacking."""
    protections: tuple[Protection, ...] = ()
    """Pods that keep the capacity it lacks, and the rule that protects them."""
    suggestions: tuple[Suggestion, ...] = ()
    """Changes with which it would start, each one simulated."""
    is_search_unfinished: bool = False
    """The time for suggestions was up before all changes were tried."""
    history: tuple[Decision, ...] = ()
    """Decisions about it or in its favour: placements, evictions, stages of waiting."""
    claim: ClaimFunnel | None = None
    """The device funnel of the claim that was asked about."""
    ageing_points: int = 0
    if_evicted: str = ""
    """What the eviction of all of its pods would do to its workload, as a clause."""
    running_pods: dict[str, str] = field(default_factory=dict)
    """Its pods on nodes, NAMESPACE/NAME to uid."""
    releases: tuple[ExpectedRelease, ...] = ()
    """What frees up when, where that is known and waiting can help."""
    is_infeasible: bool = False
    """It could not run even if nothing else did, as nodes and queues are now."""
    starting: int = 0
    """The number of its ``bound`` pods that have not started yet."""
    terminating: int = 0
    """The number of its pods that were deleted or evicted and are not gone yet."""


class ExplanationLine(Struct, frozen=True, kw_only=True):
    """A line of an answer: ``explained``, ``suggestion`` with its ``gang``, or ``finished``."""

    explained: list[Explanation] | None = None
    gang: str = ""
    suggestion: Suggestion | None = None
    finished: list[Explanation] | None = None


class Explainer(Struct, frozen=True, dict=True):
    """Explains the gangs of one cycle; what several gangs share is computed once."""

    snapshot: Snapshot
    plan: Plan
    ends: ExpectedEnds | None = None
    """When pods are expected to end; None: only as they declare."""

    def explain(self, key: str) -> Explanation | None:
        """Explain the gang ``key``; None if it does not exist."""
        gang = self.snapshot.gangs.get(key)
        if gang is None:
            return None
        unplaced = self._states.unplaced.get(key)
        position, waiting = self._positions.get(key, (0, self._pending_counts.get(gang.queue, 0)))
        return Explanation(
            gang=key,
            state=self._states.of(gang),
            message=unplaced.message if unplaced else self._note(gang),
            queue=gang.queue,
            priority=gang.priority,
            min_members=gang.tree.min_pods(),
            bound=len(gang.bound),
            pods=len(gang.members),
            queue_position=position,
            queue_length=waiting,
            nodes=tuple(dict.fromkeys(member.node for member in gang.bound)),
            queues=tuple(_level(share) for share in self._path(gang.queue)),
            limited_resources=tuple(self._limited_resources(gang)),
            started=gang.started,
            running_pods={
                f"{member.pod.namespace}/{member.pod.name}": member.pod.uid for member in gang.bound
            },
            shortage=unplaced.shortage if unplaced else None,
            protections=unplaced.protections if unplaced else (),
            ageing_points=unplaced.ageing_points if unplaced else 0,
            if_evicted=effect_text(gang, gang.bound) if gang.bound else "",
            releases=releases_for(gang, self._ends)
            if unplaced is not None
            and unplaced.stage in SHORT_OF_CAPACITY
            and not unplaced.is_infeasible
            else (),
            is_infeasible=unplaced is not None and unplaced.is_infeasible,
            starting=starting_pods(self.snapshot, gang),
            terminating=len(terminating_pods(gang)),
        )

    def _note(self, gang: Gang) -> str:
        """What becomes of the pods of a gang that is not pending; "" if nothing does."""
        if gang.key in self._notes:
            return self._notes[gang.key]
        evicted = self._evicted.get(gang.key)
        if evicted:
            pods = len(evicted)
            reason = evicted[0].reason
            return f"{count_of(pods, 'pod')} {is_or_are(pods)} being evicted: {reason}"
        gone = {
            member.node: self._lost[member.node]
            for member in gang.bound
            if member.node in self._lost
        }
        lost = "; ".join(f"node {node} {how}" for node, how in gone.items())
        return lost or below_min_member(gang)

    @cached_property
    def _evicted(self) -> Mapping[str, Sequence[Eviction]]:
        return grouped(self.plan.evictions, lambda eviction: eviction.gang)

    @cached_property
    def _lost(self) -> Mapping[str, str]:
        """Nodes whose pods run no more, and how these were lost."""
        departures = self.snapshot.nodes.departures.items()
        return {
            name: f"is lost ({each.signal}): the pods on it run no more"
            for name, each in departures
            if each.stage is DepartureStage.LOST
        } | dict.fromkeys(self.snapshot.deleted_nodes, "was deleted: the pods on it end")

    @cached_property
    def _ends(self) -> tuple[ExpectedRelease, ...]:
        return expected_ends(self.snapshot, self.ends or ExpectedEnds(now=self.snapshot.now))

    @cached_property
    def _states(self) -> GangStates:
        return GangStates(self.snapshot, self.plan)

    @cached_property
    def _notes(self) -> Mapping[str, str]:
        """States of running gangs: capacity held for them, pods not ready, nodes about to go."""
        held = {each.gang: each.message for each in self.plan.holds}
        at_risk = {each.gang: each.message for each in self.plan.at_risk}
        return {**held, **self._states.unready, **at_risk}

    @cached_property
    def _positions(self) -> Mapping[str, tuple[int, int]]:
        return queue_positions(self.snapshot, self.plan)

    @cached_property
    def _pending_counts(self) -> Mapping[str, int]:
        return Counter(unplaced.queue for unplaced in self.plan.unplaced)

    @cached_property
    def _shares(self) -> Mapping[str, QueueShare]:
        return {share.queue: share for share in self.plan.queues}

    def _path(self, queue: str) -> Iterator[QueueShare]:
        while queue in self._shares:
            yield self._shares[queue]
            queue = self._shares[queue].parent

    def _limited_resources(self, gang: Gang) -> Iterator[QueueLevel]:
        path = list(self._path(gang.queue))
        for resource in sorted(gang.requested.keys() - {GPU}):
            if any(_is_limited(share, resource) for share in path):
                yield from (_level(share, resource) for share in path)


def explain_subject(
    snapshot: Snapshot,
    plan: Plan,
    subject: Subject,
    name: str,
    *,
    decisions: Sequence[Decision],
    history: Callable[[str], tuple[Decision, ...]],
    limit: int | None = None,
    ends: ExpectedEnds | None = None,
) -> list[Explanation]:
    """The first ``limit`` gangs that ``name`` stands for; if there is none, why, or a deleted one.

    ``decisions``: those known, oldest first, by which deleted gangs are found; ``history`` returns
    those of a gang. A claim takes seconds in a cluster of ten thousand nodes, since the index of
    all devices is built for it.
    """
    explainer, claim = Explainer(snapshot, plan, ends), claim_funnel_of(snapshot, subject, name)
    keys = islice(gang_keys(snapshot, plan, subject, name), limit)
    found = [
        replace(each, claim=claim, history=history(each.gang))
        for each in map(explainer.explain, keys)
        if each is not None
    ]
    if found:
        return found
    misnamed = misnamed_scheduler(snapshot, subject, name)
    if misnamed is not None:
        key = "/".join((misnamed.pod.namespace, *misnamed.owner))
        return [Explanation(key, OTHER_SCHEDULER, misnamed.message)]
    key = deleted_gang_key(subject, name, decisions)
    return [explain_deleted(key, history(key))] if key else []


def explain_deleted(key: str, history: tuple[Decision, ...]) -> Explanation:
    """A gang that no longer exists, of which only decisions are known."""
    queue = next((each.queue for each in history if each.gang == key), "")
    return Explanation(key, DELETED, "", queue=queue, history=history)


def _is_limited(share: QueueShare, resource: str) -> bool:
    bounds = (share.maximum.get(resource, math.inf), share.deserved.get(resource, math.inf))
    return not all(map(math.isinf, bounds))


def _level(share: QueueShare, resource: str = GPU) -> QueueLevel:
    unit, per_unit = display_unit(resource)

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
