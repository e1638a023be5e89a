"""Allocations of the devices that one node sees, by position in the node's view instead of name.

Nodes with equal views and equal usage have equal results.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.dra.counters import (
    CounterLayout,
    CounterSetID,
    counters_left,
    groups_in_use,
    overdrawn_pools,
)
from kai_py.dra.device_state import FREE_DEVICE, DeviceAllocation, PoolUsage
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.identity import PoolID
from kai_py.dra.inventory import NodeDevices


@dataclass(frozen=True, slots=True, eq=False)
class DeviceUsage:
    """What is allocated before a search begins; immutable."""

    devices: tuple[DeviceAllocation, ...]
    """Per device of the view."""
    counters_left: tuple[int, ...]
    """Per counter what is left of it, in nano-units; negative where it is overdrawn."""
    groups: Mapping[CounterSetID, frozenset[str]] = field(default_factory=dict)
    overdrawn: frozenset[int] = frozenset()
    """Positions of pools whose partitions are refused because some counter is overdrawn."""


def device_usage(
    view: NodeDevices,
    layout: CounterLayout,
    usage: Mapping[PoolID, PoolUsage],
    strategy: AllocationStrategy,
) -> DeviceUsage:
    """Look up what is allocated of the devices and counters of ``view``."""
    devices = [FREE_DEVICE] * len(view.rows)
    for pool, positions in zip(view.pools, view.positions, strict=True):
        pool_usage = usage.get(pool.id)
        for name, allocation in pool_usage.devices.items() if pool_usage is not None else ():
            if name in positions:
                devices[positions[name]] = allocation
    left = counters_left(layout, view, usage)
    return DeviceUsage(
        devices=tuple(devices),
        counters_left=tuple(left),
        groups=groups_in_use(view, usage) if layout.has_groups else {},
        overdrawn=overdrawn_pools(layout, left)
        if strategy is AllocationStrategy.FIRST_FIT
        else frozenset(),
    )
