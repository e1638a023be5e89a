"""Events of a running demo; each is one line of ``kai-py demo --json``.

``time`` is in seconds since the demo began. A gang is named by its key, ``namespace/Kind/name``;
events on one kind of object are in the order of its changes in the API.
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec


class PodChange(StrEnum):
    """Kind of a change of a pod."""

    CREATED = "created"
    BOUND = "bound"
    RUNNING = "running"
    TERMINATING = "terminating"
    """It is being deleted: evicted, or its Job is deleted."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"


class ClaimChange(StrEnum):
    """Kind of a change of a ResourceClaim."""

    ALLOCATED = "allocated"
    RELEASED = "released"


class DemoEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Any event of the demo."""

    time: float


class StepStarted(DemoEvent, frozen=True, tag="step"):
    """A step of the script began: ``number`` of ``total``; the names are Jobs."""

    number: int
    total: int
    title: str
    submitted: tuple[str, ...]
    ended: tuple[str, ...]


class PodChanged(DemoEvent, frozen=True, tag="pod"):
    """A pod changed; ``node`` is empty until it is bound."""

    change: PodChange
    pod: str
    gang: str
    queue: str
    node: str


class ClaimChanged(DemoEvent, frozen=True, tag="claim"):
    """A claim was allocated or released devices, each ``pool/device``."""

    change: ClaimChange
    claim: str
    devices: tuple[str, ...]


class JobCompleted(DemoEvent, frozen=True, tag="completed"):
    """All pods of a Job succeeded."""

    gang: str


class EventSeen(DemoEvent, frozen=True, tag="event"):
    """The cluster has a new Event; ``gang`` and ``node`` where it regards a known pod."""

    level: str
    reason: str
    kind: str
    name: str
    note: str
    gang: str
    node: str


class QueueGpus(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs of a queue."""

    queue: str
    deserved: float
    fair_share: float
    allocated: float
    maximum: float | None
    pending_gangs: int


class QueuesChanged(DemoEvent, frozen=True, tag="queues"):
    """Shares or usage of queues changed."""

    queues: tuple[QueueGpus, ...]


class EvictionDecided(DemoEvent, frozen=True, tag="eviction"):
    """The scheduler decided to evict a pod; ``action`` is ``preempt``, ``reclaim``…"""

    action: str
    pod: str
    gang: str
    preemptor: str
    reason: str


class LogLine(DemoEvent, frozen=True, tag="log"):
    """The scheduler logged a warning or an error."""

    level: str
    message: str


class DemoSummary(DemoEvent, frozen=True, tag="summary"):
    """The end: sentences on what was shown and what is missing, and the counts."""

    shown: tuple[str, ...]
    missing: tuple[str, ...]
    pods_bound: int
    gangs_started: int
    preemptions: int
    reclaims: int
    jobs_completed: int


AnyDemoEvent: TypeAlias = (
    StepStarted
    | PodChanged
    | ClaimChanged
    | JobCompleted
    | EventSeen
    | QueuesChanged
    | EvictionDecided
    | LogLine
    | DemoSummary
)
