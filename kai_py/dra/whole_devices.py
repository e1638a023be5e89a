"""Claims for whole devices of which any will do, so that counting the free ones is exact.

Such a claim has one request, for a number of devices, and no constraint between them. Each device
that it may get belongs to one node and is allocated whole: it is not shared, draws from no counter
and takes nothing else of its node. So a node has devices for as many claims as the number of its
free devices allows, whichever these are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from kai_py.api.records.resource import AllocationResult, ExactDeviceRequest, ResourceClaimSpec
from kai_py.dra.device_accounting import DeviceAccounting
from kai_py.dra.device_kinds import selector_texts
from kai_py.dra.identity import PoolID
from kai_py.dra.rows import DeviceRow, names_identifier

MAX_KNOWN = 4096
"""Requests whose kinds of devices are kept."""


class WholeDevices(NamedTuple):
    """Each claim needs ``per_claim`` devices of ``kinds`` (``DeviceRow.kind``).

    ``for_one``: the same claim for one device.
    """

    kinds: frozenset[str]
    per_claim: int
    for_one: ResourceClaimSpec


@dataclass(slots=True)
class WholeDeviceClaims:
    """Finds out what a claim needs; kinds are kept as long as the inventory stays the same."""

    costs: DeviceAccounting
    _revision: int = -1
    _known: dict[tuple[Sequence[str], ...], frozenset[str] | None] = field(default_factory=dict)

    def needed(self, spec: ResourceClaimSpec) -> WholeDevices | None:
        """What a claim needs; None if counting free devices is not exact for it."""
        request = _only_request(spec)
        if request is None:
            return None
        device_class = self.costs.classes.get(request.device_class_name)
        if device_class is None:
            return None
        kinds = self._kinds_of(
            tuple(selector_texts(device_class.spec.selectors)),
            tuple(selector_texts(request.selectors)),
        )
        if kinds is None:
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

    def _kinds_of(self, of_class: Sequence[str], own: Sequence[str]) -> frozenset[str] | None:
        revision = self.costs.inventory.revision
        if self._revision != revision or len(self._known) >= MAX_KNOWN:
            self._revision = revision
            self._known.clear()
        key = of_class, own
        if key not in self._known:
            self._known[key] = self._whole_kinds(of_class, own)
        return self._known[key]

    def _whole_kinds(self, of_class: Sequence[str], own: Sequence[str]) -> frozenset[str] | None:
        if any(map(names_identifier, (*of_class, *own))):
            return None  # It may get some devices of a kind, but not others.
        kinds = self.costs.kinds.matching(of_class, own)
        if kinds is None or not all(_is_whole(row) for kind in kinds for row in kind.rows):
            return None
        return frozenset(kind.row.kind for kind in kinds)


def _only_request(spec: ResourceClaimSpec) -> ExactDeviceRequest | None:
    """The only request of a claim, if it is for a number of whole devices; else None."""
    devices = spec.devices
    request = devices.requests[0].exactly if len(devices.requests) == 1 else None
    if request is None or devices.constraints or request.capacity.requests:
        return None
    return None if request.admin_access or request.allocation_mode == "All" else request


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
