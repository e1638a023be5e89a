"""Counting devices: of which any will do for a claim, and how many are free.

A claim for whole devices has one request, for a number of devices, and no constraint between them.
Each device that it may get belongs to one node and is allocated whole: it is not shared, draws from
no counter and takes nothing else of its node. So a node has devices for as many claims as the
number of its free devices allows, whichever these are (``WholeDeviceClaims``).

Such a claim takes as many devices wherever it is allocated. So however claims are moved, no more
devices of a driver are free together than before, though others may be: an upper bound of what
moving them can gain (``FreeDevices``).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple
from weakref import ReferenceType, ref

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.resource import (
    MAX_RESULTS_PER_CLAIM,
    AllocationResult,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from kai_py.dra.device_accounting import DeviceAccounting
from kai_py.dra.device_state import DeviceState, PoolUsage
from kai_py.dra.identity import PoolID
from kai_py.dra.rows import DeviceRow, names_identifier
from kai_py.snapshot.accounting import DeviceRequestSpec


class FreeDevices(Struct):
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


class WholeDevices(NamedTuple):
    """Each claim needs ``per_claim`` devices of ``kinds`` (``DeviceRow.kind``).

    ``for_one``: the same claim for one device.
    """

    kinds: frozenset[str]
    per_claim: int
    for_one: ResourceClaimSpec


class WholeDeviceClaims(Struct):
    """Finds out what claims need of the kinds of devices that are allocated whole."""

    costs: DeviceAccounting
    _cached: tuple[int, frozenset[str]] | None = None

    def needed(self, spec: ResourceClaimSpec) -> WholeDevices | None:
        """What a claim needs; None if counting free devices is not exact for it."""
        request = _only_request(spec)
        selectors = None if request is None else self.costs.selectors_of(request)
        if request is None or selectors is None:
            return None
        if any(map(names_identifier, chain(*selectors))):
            return None  # It may get some devices of a kind, but not others.
        found = self.costs.kinds.matching(*selectors)
        if found is None:
            return None
        kinds = frozenset(each.row.kind for each in found)
        if not kinds <= self._whole_kinds():
            return None
        return WholeDevices(kinds, max(request.count, 1), _for_one(spec, request))

    def by_kind(self, allocations: Iterable[AllocationResult]) -> Mapping[str, int]:
        """How many devices of each kind these allocations have, of those that slices list."""
        found: dict[str, int] = {}
        for result in (each for allocation in allocations for each in allocation.devices.results):
            devices = self.costs.inventory.devices(PoolID(result.driver, result.pool))
            row = devices.get(result.device)
            if row is not None and not result.admin_access:
                found[row.kind] = found.get(row.kind, 0) + 1
        return found

    def _whole_kinds(self) -> frozenset[str]:
        """The kinds of which every device is whole; O(devices) once per change of the inventory."""
        revision = self.costs.inventory.revision
        if self._cached is None or self._cached[0] != revision:
            kinds = self.costs.kinds.all().items()
            whole = frozenset(name for name, each in kinds if all(map(_is_whole, each.rows)))
            self._cached = revision, whole
        return self._cached[1]


def _only_request(spec: ResourceClaimSpec) -> ExactDeviceRequest | None:
    """The only request of a claim, if it is for a number of whole devices; else None."""
    devices = spec.devices
    if len(devices.requests) != 1 or devices.constraints or not takes_fixed_number(spec):
        return None
    request = devices.requests[0].exactly
    if request is None or request.admin_access or request.capacity.requests:
        return None
    # A claim for more is refused, however many are free.
    return request if request.count <= MAX_RESULTS_PER_CLAIM else None


def _for_one(spec: ResourceClaimSpec, request: ExactDeviceRequest) -> ResourceClaimSpec:
    one = replace(spec.devices.requests[0], exactly=replace(request, count=1))
    return replace(spec, devices=replace(spec.devices, requests=(one,)))


def _is_whole(row: DeviceRow) -> bool:
    device = row.device
    return (
        bool(row.reach.node_name)
        and not row.shareable
        and not row.consumes
        and not row.taints
        and not device.binding_conditions
        and not device.takes_node_resources
    )
