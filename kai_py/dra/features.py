"""Which parts of Dynamic Resource Allocation are on, and how is a device chosen among many?

The switches carry the names that Kubernetes gives the parts of its allocator; a part that a
cluster has switched off shows as absent fields, so all on is safe for reading (KEP 4381 ff.).
"""

import enum
from dataclasses import dataclass, fields


class AllocationStrategy(enum.Enum):
    """Which of several sufficient allocations is taken, and how faults are read.

    ``FIRST_FIT`` answers what kube-scheduler answers, oddities included. ``BEST_FIT`` keeps whole
    devices whole, reads a fault of a pool or a selector as narrowly as it can, and prefers devices
    near each other.
    """

    FIRST_FIT = "first-fit"
    BEST_FIT = "best-fit"


@dataclass(frozen=True, slots=True)
class Features:
    """Switches of the allocator; everything is on unless said otherwise."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_binding_and_status: bool = True
    consumable_capacity: bool = True
    fractional_capacity_range: bool = True
    list_type_attributes: bool = True
    derived_attributes: bool = True
    compatibility_groups: bool = True
    optional_node_operations: bool = True

    @classmethod
    def only(cls, *names: str) -> "Features":
        """Switch on exactly the named features, all others off."""
        return cls(**{field.name: field.name in names for field in fields(cls)})


ALL_FEATURES = Features()
