"""What a cycle found out about gangs that run: those on failing nodes, and those not ready."""

from dataclasses import dataclass, field

from kai_py.plan.observations import (
    AvoidedDevice,
    AvoidedNode,
    CheckpointRequest,
    GangAtRisk,
    GangStarting,
)
from kai_py.plan.session.startups import FailedStart


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
