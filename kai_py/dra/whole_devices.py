"""Claims for whole devices of which any will do, so that counting the free ones is exact.

Such a claim has one request, for a number of devices, and no constraint between them. Each device
that it may get belongs to one node and is allocated whole: it is not shared, draws from no counter
and takes nothing else of its node. So a node has devices for as many claims as the number of its
free devices allows, whichever these are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from kai_py.api.records.resource import (
    MAX_RESULTS_PER_CLAIM,
    AllocationResult,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from kai_py.dra.device_accounting import DeviceAccounting
from kai_py.dra.free_devices import takes_fixed_number
from kai_py.dra.identity import PoolID
from kai_py.dra.rows import DeviceRow, names_identifier


class WholeDevices(NamedTuple):
    """Each claim needs ``per_claim`` devices of ``kinds`` (``DeviceRow.kind``).

    ``for_one``: the same claim for one device.
    """

    kinds: frozenset[str]
    per_claim: int
    for_one: ResourceClaimSpec


@dataclass(slots=True)
class WholeDeviceClaims:
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
