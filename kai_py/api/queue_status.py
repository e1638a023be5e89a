"""The status of a Queue, written by the scheduler only."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from kai_py.api.duration import Duration
from kai_py.api.model import Amount, ApiModel, list_map

READY, OVER_DESERVED, OVER_MAX, ORPHAN = "Ready", "OverDeserved", "OverMax", "Orphan"
"""Condition types of a queue."""


class PendingReason(ApiModel):
    """How much of the queue waits for one reason."""

    reason: Annotated[str, Field(max_length=64)]
    """Stage that stops the gangs, as in their explanation."""
    gangs: Annotated[int, Field(ge=0)] = 0
    """Gangs waiting for this reason."""
    pods: Annotated[int, Field(ge=0)] = 0
    """Pods of these gangs."""


class RecordedUsage(ApiModel):
    """Past usage: sums over time in which older seconds count less, halved every half-life."""

    observed_at: datetime
    """When the sums were last brought up to date."""
    half_life: Duration
    """Half-life the sums were made with."""
    used: Annotated[dict[str, float], Field(max_length=64, default_factory=dict)]
    """Resource-seconds used by the queue, by resource; GPU-seconds under gpus."""
    capacity: Annotated[dict[str, float], Field(max_length=64, default_factory=dict)]
    """Resource-seconds the cluster had in the same time."""


class PastEviction(ApiModel):
    """Pods of one workload that were evicted for others at one time."""

    workload: Annotated[str, Field(max_length=512)]
    """Namespace, kind and name of the workload."""
    at: datetime
    """When."""
    pods: Annotated[int, Field(ge=1)]
    """How many."""


class QueueStatusCondition(ApiModel):
    """A condition as of metav1."""

    type: Annotated[str, Field(max_length=316)]
    """Ready, OverDeserved, OverMax or Orphan."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=1024)]
    """One word for programs."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """A sentence for people."""
    last_transition_time: datetime
    """When status last changed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the queue that this condition describes."""


Amounts = Annotated[dict[str, Amount], Field(max_length=64)]


class QueueStatus(ApiModel):
    """What the scheduler last saw of the queue, its children included."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the queue that this status describes."""
    allocated: Amounts = Field(default_factory=dict)
    """In use, by resource; GPUs of every kind together under gpus."""
    requested: Amounts = Field(default_factory=dict)
    """In use and asked for by pending pods, by resource."""
    fair_share: Amounts = Field(default_factory=dict)
    """What the queue is entitled to at the present demand, by resource."""
    pending_gangs: Annotated[int, Field(ge=0)] = 0
    """Gangs that wait."""
    pending: Annotated[
        tuple[PendingReason, ...],
        Field(
            max_length=64,
            json_schema_extra=list_map("reason"),
        ),
    ] = ()
    """Waiting gangs by reason."""
    usage: RecordedUsage | None = None
    """Past usage, kept here so that it outlives the scheduler."""
    evictions: Annotated[tuple[PastEviction, ...], Field(max_length=128)] = ()
    """Evictions that limits still count, kept here so that a restart does not forget them."""
    conditions: Annotated[
        tuple[QueueStatusCondition, ...],
        Field(
            max_length=16,
            json_schema_extra=list_map("type"),
        ),
    ] = ()
    """Ready, OverDeserved, OverMax, Orphan."""
