"""What devices cost: as GPUs, as devices of a class, and towards the limits of queues.

``DeviceAccounting.accounting`` is the accounting of the whole scheduler, for shares, statuses and
metrics alike. What a device counts as follows from the published devices, the DeviceClasses and the
limits of queues; it is cached until one of them changes.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from kai_py.api.bounded import remember
from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.resource import (
    AllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from kai_py.dra.class_info import NO_CLASS, ClassInfo, GpuDefinition, class_info
from kai_py.dra.device_kinds import (
    DeviceKind,
    DeviceKinds,
    devices_by_node,
    max_on_one_node,
    selector_texts,
)
from kai_py.dra.device_limits import DeviceLimits
from kai_py.dra.gpu_weight import requested_share, share_of
from kai_py.dra.identity import DeviceID
from kai_py.dra.inventory import Inventory
from kai_py.snapshot.accounting import DEVICE_CLASS, Accounting, DeviceRequestSpec
from kai_py.snapshot.quarantine import Quarantine
from kai_py.snapshot.tables.queues import DeviceLimit

COUNTING = "counting its devices"
"""What fails where a DeviceClass is set aside."""
MAX_REQUESTS = 4_096
"""Requests for which the resources that their devices count as are cached."""


KindsOfCost = tuple[Sequence[str], float, tuple[str, ...]]
"""Kinds of devices that cost the same: the GPUs of one, and the limits that it counts towards."""


@dataclass
class DeviceAccounting:
    """The rules of accounting, with what they need to know of classes, devices and limits."""

    definition: GpuDefinition
    inventory: Inventory
    kinds: DeviceKinds
    quarantine: Quarantine
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    _class_infos: dict[str, ClassInfo] = field(default_factory=dict)
    _weights_of_requests: dict[Hashable, tuple[float, ...]] = field(default_factory=dict)
    _kinds_of_requests: dict[Hashable, tuple[KindsOfCost, ...]] = field(default_factory=dict)
    _limits: DeviceLimits = field(default_factory=DeviceLimits)
    _limits_of_requests: dict[Hashable, tuple[tuple[str, ...], tuple[str, ...]]] = field(
        default_factory=dict
    )
    _limits_seen: tuple[object, ...] = ((), frozenset(), frozenset())
    _limits_seen_with: tuple[object, ...] = ()
    """The revision of the inventory and the limits at that time."""

    def __post_init__(self) -> None:
        self.accounting = Accounting(
            request_weight=lambda request: max(self._request_weights(request)),
            device_weight=self._device_gpus,
            class_resource=lambda name: self._class_info(name).plugin_resource,
            gpu_resources=self.definition.resources,
            mig_slices_per_gpu=self.definition.mig_slices_per_gpu,
            device_count=self._device_count,
            request_quota_resources=self._possible_quota_resources,
            request_device_limit=lambda each: float(max_on_one_node(self._requested_kinds(each))),
            least_weight=lambda request: min(self._request_weights(request)),
            certain_quota_resources=self._certain_quota_resources,
            devices_by_node=lambda request: devices_by_node(self._requested_kinds(request)),
            device_quota_resources=self._device_quota_resources,
            request_kinds=self._request_kinds,
            device_resource=self._device_resource,
        )

    def start_cycle(self) -> None:
        """What may be spent on selectors is whole again."""
        self.kinds.start_cycle()
        self._limits.start_cycle()

    def set_limits(self, limits: Iterable[DeviceLimit]) -> None:
        """Count devices by these limits from the next ``limits_changed`` on."""
        self._limits.replace(limits)
        self._limits_of_requests.clear()
        self._kinds_of_requests.clear()

    def limits_changed(self) -> bool:
        """Whether devices may count otherwise than at the last call, by limits."""
        before, limits = self._limits_seen, self._limits.limits
        inputs = self.inventory.revision, limits
        if inputs == self._limits_seen_with:
            return False
        kinds = self.kinds.all() if limits else {}
        devices = self._limits.counted_by_identifier(kinds.values())
        self._limits_seen = limits, frozenset(kinds), frozenset(devices)
        self._limits_seen_with = inputs
        return before != self._limits_seen

    def replace_classes(self, classes: Mapping[str, DeviceClass]) -> None:
        """Take in classes and slices that changed, before ``count_classes``."""
        self.classes = classes
        self._weights_of_requests.clear()
        self._limits_of_requests.clear()
        self._kinds_of_requests.clear()
        self.kinds.weights.forget(self.inventory.pools())

    def count_classes(self) -> bool:
        """Count the devices of every class; returns whether any counts otherwise than before."""
        before = self._class_infos
        self._class_infos = {name: self._count_class(name) for name in self.classes}
        return before != self._class_infos

    def _count_class(self, name: str) -> ClassInfo:
        device_class = self.classes[name]
        try:
            found = class_info(name, device_class, self.kinds_of_class(name), self.definition)
        except Exception as error:
            self.quarantine.report_record("deviceclasses", device_class, COUNTING, error)
            return NO_CLASS
        self.quarantine.clear_record("deviceclasses", device_class, COUNTING)
        return found

    def refund(self, spec: ResourceClaimSpec, allocation: AllocationResult) -> dict[str, float]:
        """By how much the devices that a claim got cost less than the most it could get."""
        if self.has_fixed_charge(spec):
            return {}
        allocated = ResourceClaim(spec=spec, status=ResourceClaimStatus(allocation=allocation))
        highest, actual = self.accounting.claim_spec(spec), self.accounting.claim(allocated)
        difference = {
            name: highest.get(name, 0.0) - actual.get(name, 0.0) for name in {**highest, **actual}
        }
        return {name: amount for name, amount in difference.items() if amount}

    def has_fixed_charge(self, spec: ResourceClaimSpec) -> bool:
        """Whether a claim costs the same whichever devices it gets."""
        return not self._limits.limits and all(
            request.exactly is not None
            and request.exactly.allocation_mode != "All"
            and len(self._request_weights(request.exactly)) == 1
            for request in spec.devices.requests
        )

    def kinds_of_class(self, name: str) -> Sequence[DeviceKind]:
        """The kinds of devices that a class selects; none for a class that does not exist."""
        device_class = self.classes.get(name)
        if device_class is None:
            return ()
        return self.kinds.selected_by(selector_texts(device_class.spec.selectors))

    def classes_of_driver(self, driver: str) -> Iterator[str]:
        """The classes that select devices of a driver or, without any, name it."""
        return (name for name, info in self._class_infos.items() if driver in info.drivers)

    def selectors_of(self, request: DeviceRequestSpec) -> tuple[list[str], list[str]] | None:
        """The selectors of the class of a request, and its own; None if the class is missing."""
        device_class = self.classes.get(request.device_class_name)
        if device_class is None:
            return None
        return selector_texts(device_class.spec.selectors), selector_texts(request.selectors)

    def _requested_kinds(self, request: DeviceRequestSpec) -> list[DeviceKind]:
        """Device kinds a request can get; all of its class if its selectors match none."""
        selectors = self.selectors_of(request)
        return [] if selectors is None else self.kinds.requested(*selectors)

    def _class_info(self, name: str) -> ClassInfo:
        return self._class_infos.get(name, NO_CLASS)

    def _device_resource(self, driver: str, device_class: str) -> str:
        """The resource by which a device plugin would report a device of a driver; "" if none."""
        found = self.classes.get(device_class)
        named = "" if found is None else found.spec.extended_resource_name
        return named or self.definition.plugin_resources.get(driver, "")

    def _request_weights(self, request: DeviceRequestSpec) -> tuple[float, ...]:
        """What the devices that a request can get count as, in GPUs, ascending.

        Where its class matches no device yet it counts by the drivers that the selectors name.
        """
        name, key = request.device_class_name, _request_key(request)
        known = self._weights_of_requests.get(key)
        if known is not None:
            return known
        requested = _requested_capacity(request)
        kinds = self._requested_kinds(request)
        gpus = [kind for kind in kinds if self.definition.counts(kind.row.id.driver, name)]
        found = {kind.gpus * requested_share(kind.row, requested) for kind in gpus}
        if not found:
            found.add(self._class_info(name).gpus)
        elif len(gpus) < len(kinds):
            found.add(0.0)
        weights = tuple(sorted(found))
        remember(self._weights_of_requests, key, weights, MAX_REQUESTS)
        return weights

    def _request_kinds(self, request: DeviceRequestSpec) -> Sequence[KindsOfCost]:
        """As ``RequestKinds``; a limit by identifiers counts where each device of a kind does."""
        key = _request_key(request)
        known = self._kinds_of_requests.get(key)
        if known is not None:
            return known
        requested = _requested_capacity(request)
        kinds: dict[tuple[float, tuple[str, ...]], list[str]] = {}
        for kind in self._requested_kinds(request):
            is_gpu = self.definition.counts(kind.row.id.driver, request.device_class_name)
            gpus = kind.gpus * requested_share(kind.row, requested) if is_gpu else 0.0
            counted = tuple(
                limit.resource
                for limit in self._limits.limits
                if self._limits.counted(kind, limit) == kind.devices
            )
            kinds.setdefault((gpus, counted), []).append(kind.row.kind)
        found = tuple((names, gpus, counted) for (gpus, counted), names in kinds.items())
        remember(self._kinds_of_requests, key, found, MAX_REQUESTS)
        return found

    def _device_gpus(self, result: DeviceRequestAllocationResult, device_class: str) -> float:
        """GPUs that an allocated device, or share of it, counts as; a removed one by its driver."""
        if not self.definition.counts(result.driver, device_class):
            return 0.0
        row = self.inventory.device(DeviceID(result.driver, result.pool, result.device))
        return 1.0 if row is None else self.kinds.weights.of(row) * share_of(row, result)

    def _device_count(self, quota_resource: str, without: Set[str]) -> float:
        """Devices that count towards a quota resource; every possible partition does.

        ``without``: nodes of which none count.
        """
        if quota_resource.startswith(DEVICE_CLASS):
            kinds = self.kinds_of_class(quota_resource.removeprefix(DEVICE_CLASS))
            return float(sum(kind.devices_beside(without) for kind in kinds))
        limits = (each for each in self._limits.limits if each.resource == quota_resource)
        limit = next(limits, None)
        if limit is None:
            return 0.0
        every = self.kinds.all().values()
        return float(sum(self._limits.counted(kind, limit, without) for kind in every))

    def _possible_quota_resources(self, request: DeviceRequestSpec) -> tuple[str, ...]:
        """Quota resources towards which a device of the request may count."""
        return self._quota_resources(request)[0]

    def _certain_quota_resources(self, request: DeviceRequestSpec) -> tuple[str, ...]:
        """Quota resources towards which every device of the request counts."""
        return self._quota_resources(request)[1]

    def _quota_resources(
        self, request: DeviceRequestSpec
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The resources towards which any, and towards which every device of the request counts."""
        if not self._limits.limits:
            return (), ()
        key = request.device_class_name, *selector_texts(request.selectors)
        known = self._limits_of_requests.get(key)
        if known is None:
            kinds = self._requested_kinds(request)
            devices = sum(kind.devices for kind in kinds)
            counted = {
                limit.resource: sum(self._limits.counted(kind, limit) for kind in kinds)
                for limit in self._limits.limits
            }
            known = (
                tuple(name for name, count in counted.items() if count),
                tuple(name for name, count in counted.items() if count == devices > 0),
            )
            remember(self._limits_of_requests, key, known, MAX_REQUESTS)
        return known

    def _device_quota_resources(self, driver: str, pool: str, device: str) -> tuple[str, ...]:
        """Quota resources towards which a device counts; none once it is removed."""
        row = self.inventory.device(DeviceID(driver, pool, device)) if self._limits.limits else None
        return () if row is None else self._limits.resources_of(row)


def _request_key(request: DeviceRequestSpec) -> Hashable:
    """What the devices that a request can get, and their cost, depend on."""
    amounts = sorted((name, str(value)) for name, value in request.capacity.requests.items())
    return request.device_class_name, *selector_texts(request.selectors), tuple(amounts)


def _requested_capacity(request: DeviceRequestSpec) -> dict[str, int]:
    """What a request names of each capacity, in nano-units; nothing if that can't be read."""
    try:
        amounts = request.capacity.requests.items()
        return {name: parse_quantity(value).nano for name, value in amounts}
    except QuantityError:
        return {}
