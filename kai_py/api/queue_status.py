"""The status of a Queue, written by the scheduler only."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from kai_py.api.model import Amount, ApiModel, list_map
from kai_py.api.times import Duration

READY, OVER_DESERVED, OVER_MAX, ORPHAN = "Ready", "OverDeserved", "OverMax", "Orphan"
"""Condition types of a queue."""


class PendingReason(ApiModel):
    """Pending gangs and pods of one stage."""

    reason: Annotated[str, Field(max_length=64)]
    """Stage at which the gangs are pending, as in their explanation."""
    gangs: Annotated[int, Field(ge=0)] = 0
    """Pending gangs of this stage."""
    pods: Annotated[int, Field(ge=0)] = 0
    """Pods of these gangs."""


class RecordedUsage(ApiModel):
    """Past usage: sums over time in which older seconds count less, halved every half-life."""

    observed_at: datetime
    """When the sums were last updated."""
    half_life: Duration
    """Half-life with which the sums were computed."""
    used: Annotated[dict[str, float], Field(max_length=64, default_factory=dict)]
    """Resource-seconds allocated to the queue, by resource; GPU-seconds under gpus."""
    capacity: Annotated[dict[str, float], Field(max_length=64, default_factory=dict)]
    """Resource-seconds the cluster had in the same time."""


class PastEviction(ApiModel):
    """Pods of one workload that were evicted for others at one time."""

    workload: Annotated[str, Field(max_length=512)]
    """Namespace, kind and name of the workload."""
    at: datetime
    """Time of the evictions."""
    pods: Annotated[int, Field(ge=1)]
    """Number of pods."""
    within_queue: bool = False
    """Whether a workload of the same queue preempted them; these evictions protect the pods of the
    queue from such workloads only."""


class QueueStatusCondition(ApiModel):
    """A condition as of metav1."""

    type: Annotated[str, Field(max_length=316)]
    """Ready, OverDeserved, OverMax or Orphan."""
    status: Literal["True", "False", "Unknown"]
    """Status of the condition: True, False or Unknown."""
    reason: Annotated[str, Field(max_length=1024)]
    """Reason, one word."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Human-readable message."""
    last_transition_time: datetime
    """When status last changed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the queue that this condition describes."""


Amounts = Annotated[dict[str, Amount], Field(max_length=64)]


class QueueStatus(ApiModel):
    """Status of the queue as last reported by the scheduler, its children included."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the queue that this status describes."""
    allocated: Amounts = Field(default_factory=dict)
    """Allocated, by resource; GPUs of every kind together under gpus."""
    requested: Amounts = Field(default_factory=dict)
    """Allocated, and requested by pending pods, by resource."""
    infeasible: Amounts = Field(default_factory=dict)
    """Part of requested that the nodes of this cluster can never serve: not counted as demand."""
    fair_share: Amounts = Field(default_factory=dict)
    """Fair share: entitlement at the present demand, by resource."""
    pending_gangs: Annotated[int, Field(ge=0)] = 0
    """Number of pending gangs."""
    pending: Annotated[
        tuple[PendingReason, ...],
        Field(
            max_length=64,
            json_schema_extra=list_map("reason"),
        ),
    ] = ()
    """Pending gangs by stage."""
    usage: RecordedUsage | None = None
    """Past usage, stored here so that it survives a restart of the scheduler."""
    evictions: Annotated[tuple[PastEviction, ...], Field(max_length=128)] = ()
    """Evictions that limits still count, kept here so that they survive a restart."""
    conditions: Annotated[
        tuple[QueueStatusCondition, ...],
        Field(
            max_length=16,
            json_schema_extra=list_map("type"),
        ),
    ] = ()
    """Ready, OverDeserved, OverMax, Orphan."""
