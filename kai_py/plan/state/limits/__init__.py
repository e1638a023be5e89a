"""Node limits beside resources: host ports, disks, NUMA zones, volumes, shared GPUs.

New limits are added here.
"""

from kai_py.plan.state.limits.base import NodeLimits
from kai_py.plan.state.limits.conflicts import disks, host_ports
from kai_py.plan.state.limits.numa import NumaZones
from kai_py.plan.state.limits.volumes import (
    AssumedVolumes,
    AttachedVolumes,
    ExclusiveVolumes,
    StorageCapacity,
)
from kai_py.snapshot.snapshot import Snapshot


def node_limits(snapshot: Snapshot, volumes: AssumedVolumes, numa_zones: NumaZones) -> NodeLimits:
    """What bounds the pods of a node beside its resources."""
    limits = (
        host_ports(snapshot),
        disks(snapshot),
        AttachedVolumes(snapshot),
        ExclusiveVolumes(snapshot),
        volumes,
        StorageCapacity(snapshot),
    )
    if numa_zones.can_refuse:
        return NodeLimits((*limits, numa_zones))
    return NodeLimits(limits, (numa_zones,))
