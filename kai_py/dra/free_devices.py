"""Free devices by driver: an upper bound of what moving claims to other devices can gain.

A claim for a number of whole devices takes as many wherever it is allocated. So however claims are
moved, no more devices of a driver are free together than before, though others may be.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from weakref import ReferenceType, ref

from kai_py.api.records.resource import DeviceRequest, ResourceClaimSpec
from kai_py.dra.device_accounting import DeviceAccounting
from kai_py.dra.device_state import DeviceState, PoolUsage
from kai_py.snapshot.accounting import DeviceRequestSpec


@dataclass(slots=True)
class FreeDevices:
    """Counts the free devices of a state, once until it or the inventory changes. O(pools)."""

    costs: DeviceAccounting
    _counted: tuple[ReferenceType[DeviceState], int, int, Mapping[str, float]] | None = None

    def are_exceeded_by(self, specs: Iterable[ResourceClaimSpec], state: DeviceState) -> bool:
        """Whether claims together need more devices of a driver than are free."""
        needed = self._needed(specs)
        if not needed:
            return False
        free = self._by_driver(state)
        return any(devices > free.get(driver, 0.0) for driver, devices in needed.items())

    def _needed(self, specs: Iterable[ResourceClaimSpec]) -> Mapping[str, int]:
        """By driver, the least that the requests take; without those that several may serve."""
        needed = Counter[str]()
        known: dict[int, tuple[str, int]] = {}
        for request in (each for spec in specs for each in spec.devices.requests):
            if id(request) not in known:
                known[id(request)] = self._least(request)
            driver, devices = known[id(request)]
            needed[driver] += devices
        needed.pop("", None)
        return needed

    def _least(self, request: DeviceRequest) -> tuple[str, int]:
        """The only driver that serves a request, and the fewest devices that it takes."""
        exact = request.exactly
        if exact is not None and exact.admin_access:
            return "", 0
        options = request.first_available if exact is None else (exact,)
        drivers = {each for option in options for each in self._drivers(option.device_class_name)}
        if len(drivers) != 1:
            return "", 0
        return drivers.pop(), min(map(_fewest, options))

    def _drivers(self, device_class: str) -> frozenset[str]:
        return frozenset(kind.row.id.driver for kind in self.costs.kinds_of_class(device_class))

    def _by_driver(self, state: DeviceState) -> Mapping[str, float]:
        """By driver, how many devices are free; infinity where they are not allocated whole."""
        revision, changes = self.costs.inventory.revision, len(state.changes)
        counted = self._counted
        if counted is not None and counted[0]() is state and counted[1:3] == (revision, changes):
            return counted[3]
        free: dict[str, float] = {}
        for kind in self.costs.kinds.all().values():
            driver, shared = kind.row.id.driver, kind.row.cel.allow_multiple_allocations
            free[driver] = free.get(driver, 0.0) + (math.inf if shared else kind.devices)
        for device_class in self.costs.classes:
            drivers = self._drivers(device_class)
            if len(drivers) > 1:
                # A claim of this class may move from one driver to another.
                free |= dict.fromkeys(drivers, math.inf)
        for pool, usage in state.pools.items():
            if pool.driver in free:
                free[pool.driver] -= _listed(usage, self.costs.inventory.devices(pool))
        self._counted = ref(state), revision, changes, free
        return free


def takes_fixed_number(spec: ResourceClaimSpec) -> bool:
    """Whether a claim takes as many devices wherever it is allocated."""
    return all(
        each.exactly is not None and each.exactly.allocation_mode != "All"
        for each in spec.devices.requests
    )


def _fewest(request: DeviceRequestSpec) -> int:
    return 1 if request.allocation_mode == "All" else max(request.count, 1)


def _listed(usage: PoolUsage, devices: Mapping[str, object]) -> int:
    """How many of the allocated devices of a pool are listed by its slices."""
    allocated = usage.devices
    return (
        len(allocated)
        if allocated.keys() <= devices.keys()
        else len(allocated.keys() & devices.keys())
    )
