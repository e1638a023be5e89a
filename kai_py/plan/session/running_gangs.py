"""What a cycle found out about gangs that run: those on failing nodes, and those not ready.

``as_victim``: protected pods that were resized above what they were admitted with. A
non-preemptible pod is admitted only within what its queue deserves, so that no queue keeps what
others are entitled to. A resize in place asks no scheduler. So a gang with pods that have grown is
protected only while the non-preemptible pods of its queue stay within these bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from kai_py.grouping.admitted import RESIZABLE
from kai_py.plan.observations import (
    AvoidedDevice,
    AvoidedNode,
    CheckpointRequest,
    GangAtRisk,
    GangStarting,
)
from kai_py.plan.session.startups import FailedStart
from kai_py.plan.state.queues import Quota
from kai_py.policy.queue_limits import check_usage
from kai_py.snapshot.gangs import Gang


@dataclass
class RunningGangsReport:
    """Filled by ``leave_nodes`` and ``evict_unready``, for the plan and for later cycles."""

    at_risk: dict[str, GangAtRisk] = field(default_factory=dict)
    """Gangs on nodes that are about to go, by key."""
    checkpoints: list[CheckpointRequest] = field(default_factory=list)
    """Requests to save work."""
    checkpoint_ends: list[float] = field(default_factory=list)
    """Until when pods were asked before to save their work, seconds since the epoch."""
    starting: dict[str, GangStarting] = field(default_factory=dict)
    """Gangs whose pods are not ready, by key."""
    failed_starts: dict[str, FailedStart] = field(default_factory=dict)
    """Gangs that are evicted because their pods are not ready, by key."""
    avoided_nodes: tuple[AvoidedNode, ...] = ()
    """Nodes on which pods of several gangs did not get ready."""
    avoided_devices: tuple[AvoidedDevice, ...] = ()
    """Devices with which pods of several gangs did not get ready."""


ANY_AMOUNT: Mapping[str, float] = dict.fromkeys(RESIZABLE, 1.0)


def as_victim(gang: Gang, quota: Quota, queue: int) -> Gang:
    """An outgrown gang as it is protected; ``queue``: the position of its queue."""
    over = check_usage(quota.usage, queue, quota.cost_vector(ANY_AMOUNT), preemptible=False)
    return gang if over is None else replace(gang, preemptible=True, semi_preemptible=False)
