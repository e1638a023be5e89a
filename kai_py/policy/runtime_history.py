"""Observed runtimes: how long pods of each kind ran until they left their nodes by themselves.

Pods of one kind belong to the same queue and kind of owner, to gangs of the same minMember, and
cost the same. Pods whose owners have the same name except for its numbers (``train-7``,
``train-8``) come first, and of these a single observation is enough. Where a queue has too few
observations of a kind, those of all queues count. A pod that has run for a time is compared only
with those that ran longer; it is expected to end when ``QUANTILE`` of them had ended. A declared
runtime comes before what was observed.

Only pods that succeeded count: pods that were deleted or evicted, that failed, or that were lost
with their node did not run to their own end. Pods that serve requests do not count. Nothing is kept
across a restart: an empty history expects no end. O(gangs that changed) per cycle, O(samples of a
kind) per question.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import Struct

from kai_py.snapshot.gang_changes import NOTHING_KNOWN, GangChanges
from kai_py.snapshot.gangs import Gang, Member

MAX_SAMPLES = 16
"""Runtimes that are kept of each kind of pods; the oldest are dropped first."""

MIN_SAMPLES, MIN_NAMED_SAMPLES = 3, 1
"""Fewer runtimes longer than the age of a pod say nothing about its end."""

MAX_KINDS = 8192
"""The kinds that were observed the longest ago go first."""

QUANTILE = 0.75

NUMBERS = re.compile(r"[0-9]+")

SERVICE_KINDS = frozenset(
    {"DaemonSet", "Deployment", "ReplicaSet", "Service", "StatefulSet", "RayService"}
    | {"InferenceService", "LLMInferenceService", "LeaderWorkerSet", "Notebook", "PodCliqueSet"}
    | {"DynamoGraphDeployment", "RoleBasedGroup", "StormService"}
)
"""Kinds of owners whose pods serve until they are deleted."""


def is_service(gang: Gang) -> bool:
    """Whether the gang serves requests: it does not end, and users wait while it is down."""
    return gang.owner.kind in SERVICE_KINDS


class PodKind(NamedTuple):
    """Pods that are compared: of one ``queue`` and ``name``, "" for all of them."""

    queue: str
    name: str
    owner_kind: str
    min_members: int
    cost: tuple[tuple[str, float], ...]

    @property
    def min_samples(self) -> int:
        """How many runtimes it takes to expect an end."""
        return MIN_NAMED_SAMPLES if self.name else MIN_SAMPLES


def pod_kinds(gang: Gang, member: Member) -> tuple[PodKind, ...]:
    """The kinds of a pod: by its name in its queue, in its queue, and in all queues."""
    owner, cost = gang.owner, tuple(sorted(member.charge.items()))
    name, min_pods = NUMBERS.sub("#", owner.name), gang.tree.min_pods()
    return (
        PodKind(gang.queue, name, owner.kind, min_pods, cost),
        PodKind(gang.queue, "", owner.kind, min_pods, cost),
        PodKind("", "", owner.kind, min_pods, cost),
    )


@dataclass
class RuntimeHistory:
    """Runtimes in seconds by kind, the latest last."""

    _samples: dict[PodKind, list[float]] = field(default_factory=dict)
    _gangs: Mapping[str, Gang] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything was observed."""
        return bool(self._samples)

    def observe(
        self,
        gangs: Mapping[str, Gang],
        completed: Collection[str],
        now: float,
        changes: GangChanges = NOTHING_KNOWN,
    ) -> None:
        """Record what has ended since the last call; ``completed``: pods that succeeded, by uid."""
        before, self._gangs = self._gangs, gangs
        for key in changes.between(before, gangs):
            gang = before.get(key)
            if gang is not None and gang.bound and not is_service(gang):
                self._record_ended(gang, completed, now)

    def expected_runtime(self, gang: Gang, member: Member, age: float = 0.0) -> float | None:
        """Seconds from its start to the end of a pod that has run for ``age``; None: unknown."""
        declared = gang.expected_runtime
        if declared is not None and declared > age:
            return declared
        if not self._samples or is_service(gang):
            return None
        for kind in pod_kinds(gang, member):
            samples = self._samples.get(kind, ())
            if len(samples) < kind.min_samples:
                continue
            longer = sorted(each for each in samples if each > age)
            if len(longer) >= kind.min_samples:
                return longer[math.ceil(QUANTILE * len(longer)) - 1]
        return None

    def _record_ended(self, gang: Gang, completed: Collection[str], now: float) -> None:
        ended: dict[PodKind, float] = {}
        for member in gang.bound:
            if member.pod.uid in completed and member.bound_since:
                for kind in pod_kinds(gang, member):
                    ended[kind] = now - member.bound_since
        for kind, runtime in ended.items():
            samples = self._samples.pop(kind, [])
            self._samples[kind] = [*samples[1 - MAX_SAMPLES :], runtime]
        while len(self._samples) > MAX_KINDS:
            del self._samples[next(iter(self._samples))]


class ExpectedEnds(Struct, frozen=True):
    """When pods are expected to end, as known at ``now`` (seconds since the epoch)."""

    history: RuntimeHistory = msgspec.field(default_factory=RuntimeHistory)
    now: float = 0.0

    def end_of(self, gang: Gang, member: Member) -> float:
        """The expected end of a running pod, seconds since the epoch; inf where it is unknown."""
        if not member.bound_since:
            return math.inf
        runtime = self.history.expected_runtime(gang, member, self.now - member.bound_since)
        return math.inf if runtime is None else member.bound_since + runtime

    def ends_of(self, gang: Gang) -> Iterator[tuple[Member, float]]:
        """The bound pods of a gang, each with its expected end; those alike are looked up once."""
        known: dict[tuple[int, float], float] = {}
        for member in gang.bound:
            key = id(member.charge), member.bound_since
            at = known.get(key)
            if at is None:
                at = known[key] = self.end_of(gang, member)
            yield member, at

    def known_of(self, gangs: Iterable[Gang]) -> list[Gang]:
        """The gangs of whose pods an end may be known."""
        if not self.history:
            return [gang for gang in gangs if gang.expected_runtime is not None]
        return [g for g in gangs if g.expected_runtime is not None or not is_service(g)]

    def will_end(self, gang: Gang, member: Member) -> bool:
        """Whether a running pod is one that ends by itself, as it declares or as such pods did."""
        return math.isfinite(self.end_of(gang, member))

    def runtime_of(self, gang: Gang) -> float | None:
        """How long the pods of a gang that start now run at most; None where that is unknown."""
        if gang.expected_runtime is not None:
            return gang.expected_runtime
        longest = 0.0
        charges: list[int] = []
        for member in gang.pending or gang.members:
            if id(member.charge) in charges:
                continue
            charges.append(id(member.charge))
            runtime = self.history.expected_runtime(gang, member)
            if runtime is None:
                return None
            longest = max(longest, runtime)
        return longest
