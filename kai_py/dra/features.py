"""Features of Dynamic Resource Allocation, and the strategy by which devices are chosen.

The switches have the names that Kubernetes gives the features of its allocator. An API server drops
the fields of a feature that is disabled (KEP-4381 and later), so the scheduler has all enabled;
only comparisons with kube-scheduler switch any off.
"""

import enum

from msgspec import Struct


class AllocationStrategy(enum.Enum):
    """Which of several sufficient allocations is chosen, and how faults are treated.

    ``FIRST_FIT`` gives what kube-scheduler gives, quirks included. ``BEST_FIT`` keeps whole devices
    whole, confines a fault of a pool or a selector as far as it can, and prefers devices near each
    other.
    """

    FIRST_FIT = "first-fit"
    BEST_FIT = "best-fit"


class Features(Struct, frozen=True):
    """Switches of the allocator; everything is enabled by default."""

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
        """Enable exactly the named features."""
        return cls(**{name: name in names for name in cls.__struct_fields__})


ALL_FEATURES = Features()
