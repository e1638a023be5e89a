"""Accounting of pods and claims in quota resources; shares, status and metrics all use it.

Quota resources are ``gpu`` (devices), ``cpu`` (millicores), ``memory`` (bytes), any other resource
by its own name, ``deviceclass/NAME``: devices that claims request through a DeviceClass, and
``deviceattribute/NAME=VALUES``: devices that a queue limits by an attribute. A pod is charged with
its requests and the devices of its claims. A claim is charged once, however many pods share it:
with its devices once it is allocated, before that with the most that it may get. Devices with admin
access are free of charge.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from msgspec import Struct

from kai_py.api.gpu_share import GpuShare
from kai_py.api.records.resource import (
    MAX_RESULTS_PER_CLAIM,
    AllocationResult,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kai_py.snapshot.extended_resources import ExtendedRequest

GPU = "gpu"
DEVICE_CLASS = "deviceclass/"
MIG_RESOURCE = re.compile(r"^nvidia\.com/mig-(\d+)g\.")
MIG_SLICES_PER_GPU = 7.0
MAX_MIG_SLICES = 16
"""More slices than a profile of any GPU has; the name of a resource may say 10**40."""


ClassResource = Callable[[str], str]
"""The resource by which a device plugin would report the devices of a DeviceClass; "" if none."""

DeviceResource = Callable[[str, str], str]
"""The same for a device of a driver that was claimed through a DeviceClass."""

DeviceCount = Callable[[str, Set[str]], float]
"""Devices of the cluster that count in a row of devices, without those of nodes, by name."""

DeviceRequestSpec = ExactDeviceRequest | DeviceSubRequest

RequestQuotaResources = Callable[[DeviceRequestSpec], Iterable[str]]
"""Rows by attribute in which a device of a request may count."""

RequestDeviceLimit = Callable[[DeviceRequestSpec], float]
"""The most devices that a request for all of them can get."""

DevicesByNode = Callable[[DeviceRequestSpec], Mapping[str, int]]
"""What a request for all devices gets on each node that has any, by the name of the node."""

DeviceQuotaResources = Callable[[str, str, str], Iterable[str]]
"""Rows by attribute in which (driver, pool, device) counts."""

RequestWeight = Callable[[DeviceRequestSpec], float]
"""The most GPUs that one device of a request stands for."""

RequestKinds = Callable[[DeviceRequestSpec], Iterable[tuple[Sequence[str], float, Iterable[str]]]]
"""Kinds of devices that a request can get: those that cost the same, GPUs, rows of a device."""

DeviceWeight = Callable[[DeviceRequestAllocationResult, str], float]
"""GPUs that an allocated device, or share of one, of a DeviceClass stands for."""


class Accounting(Struct, frozen=True):
    """The rules of accounting.

    ``gpu_resources``: extended resources that count as whole GPUs, by full name or by ``*/suffix``.
    ``mig_slices_per_gpu``: compute slices of the MIG profiles of a device plugin that make a GPU.
    ``least_weight``, ``certain_quota_resources``: as ``request_weight`` and
    ``request_quota_resources``, of the device that costs least, and of every device.
    """

    request_weight: RequestWeight
    device_weight: DeviceWeight
    class_resource: ClassResource
    gpu_resources: tuple[str, ...] = ("*/gpu",)
    mig_slices_per_gpu: float = MIG_SLICES_PER_GPU
    device_count: DeviceCount = lambda _name, _without: 0.0
    request_quota_resources: RequestQuotaResources = lambda _: ()
    request_device_limit: RequestDeviceLimit = lambda _: 1.0
    least_weight: RequestWeight = lambda _: 0.0
    certain_quota_resources: RequestQuotaResources = lambda _: ()
    devices_by_node: DevicesByNode = lambda _: {}
    request_kinds: RequestKinds = lambda _: ()
    device_resource: DeviceResource = lambda *_: ""
    device_quota_resources: DeviceQuotaResources = lambda *_: ()

    def requests(self, requests: Mapping[str, float]) -> dict[str, float]:
        """The cost of resource requests given in row units."""
        cost: dict[str, float] = {}
        for name, amount in requests.items():
            gpus = self.gpus_per_unit(name)
            if gpus:
                cost[GPU] = cost.get(GPU, 0.0) + gpus * amount
            else:
                cost[name] = cost.get(name, 0.0) + amount
        return cost

    def extended(self, requests: Iterable[ExtendedRequest]) -> dict[str, float]:
        """The cost that is added to that of ``requests`` where a DeviceClass serves them.

        It is the same whether a device plugin or a claim serves them: devices of the class, and
        GPUs where the resource itself does not count as GPUs. Parts of GPUs are charged as such
        (``gpu_share``).
        """
        costs = []
        for request in requests:
            # Not limited to a claim's devices: a device plugin may have more.
            device_request = ExactDeviceRequest(device_class_name=request.device_class)
            cost = self._cost_of_devices(device_request, float(request.count))
            if request.part is not None or self.gpus_per_unit(request.resource):
                cost.pop(GPU, None)
            costs.append(cost)
        return total(costs)

    def gpu_share(self, share: GpuShare, gpu_memory: float) -> dict[str, float]:
        """The cost of a part of a GPU, where a GPU has ``gpu_memory`` MiB."""
        return {GPU: share.gpus(gpu_memory)}

    def gpus_per_unit(self, resource: str) -> float:
        """How many GPUs one unit of an extended resource stands for."""
        mig = MIG_RESOURCE.match(resource)
        if mig:
            return min(int(mig.group(1)), MAX_MIG_SLICES) / self.mig_slices_per_gpu
        suffix = "*/" + resource.rpartition("/")[2] if "/" in resource else ""
        return 1.0 if resource in self.gpu_resources or suffix in self.gpu_resources else 0.0

    def claim(self, claim: ResourceClaim) -> dict[str, float]:
        """The cost of a claim: by its devices once allocated, by the worst case before."""
        allocation = claim.status.allocation
        if allocation is None:
            return self.claim_spec(claim.spec)
        classes = _classes(claim.spec)
        return total(
            _cost(
                self.device_weight(result, classes.get(result.request, "")),
                classes.get(result.request, ""),
                self.device_quota_resources(result.driver, result.pool, result.device),
                1.0,
            )
            for result in allocation.devices.results
            if not result.admin_access
        )

    def claim_spec(self, spec: ResourceClaimSpec) -> dict[str, float]:
        """The most an unallocated claim can cost."""
        return total(self._request(request) for request in spec.devices.requests)

    def least_of_claim(self, spec: ResourceClaimSpec) -> dict[str, float]:
        """By quota resource, the least that an unallocated claim can cost."""
        return total(map(self.least_of, spec.devices.requests))

    def least_of(self, request: DeviceRequest) -> dict[str, float]:
        """By quota resource, the least that a request can cost with any of its alternatives."""
        exact = request.exactly
        if exact is not None:
            return {} if exact.admin_access else self.least_of_alternative(exact)
        costs = [self.least_of_alternative(each) for each in request.first_available]
        shared = set.intersection(*map(set, costs)) if costs else set()
        return {name: min(cost[name] for cost in costs) for name in sorted(shared)}

    def least_of_alternative(
        self, request: DeviceRequestSpec, devices: float | None = None
    ) -> dict[str, float]:
        """The least that ``devices`` of a request, as many as it needs by default, can cost."""
        if devices is None:
            by_node = self.devices_by_node(request) if request.allocation_mode == "All" else {}
            devices = float(min(by_node.values())) if by_node else _listed_devices(request)
        return _cost(
            self.least_weight(request) * devices,
            request.device_class_name,
            self.certain_quota_resources(request),
            devices,
        )

    def costs_by_kind(
        self, request: DeviceRequestSpec
    ) -> list[tuple[Sequence[str], dict[str, float]]]:
        """What one device of a request costs: kinds of equal cost, and that cost."""
        return [
            (kinds, _cost(gpus, request.device_class_name, rows, 1.0))
            for kinds, gpus, rows in self.request_kinds(request)
        ]

    def plugin_equivalents(
        self, spec: ResourceClaimSpec, allocation: AllocationResult | None = None
    ) -> dict[str, float]:
        """What a claim takes of resources that a device plugin may report for the same devices.

        That is the most it may take without an ``allocation``, and as much as this says with one.
        """
        if allocation is not None:
            classes = _classes(spec)
            results = (each for each in allocation.devices.results if not each.admin_access)
            names = (
                self.device_resource(each.driver, classes.get(each.request, "")) for each in results
            )
            return {name: float(count) for name, count in Counter(names).items() if name}
        equivalents: dict[str, float] = {}
        for request in spec.devices.requests:
            exact = request.exactly
            if exact is not None and exact.admin_access:
                continue
            alternatives = request.first_available if exact is None else (exact,)
            most = max(alternatives, key=self._max_devices, default=None)
            resource = self.class_resource(most.device_class_name) if most is not None else ""
            if resource and most is not None:
                equivalents[resource] = equivalents.get(resource, 0.0) + self._max_devices(most)
        return equivalents

    def _request(self, request: DeviceRequest) -> dict[str, float]:
        exact = request.exactly
        if exact is not None:
            return {} if exact.admin_access else self._exact_request(exact)
        most: dict[str, float] = {}
        for alternative in request.first_available:
            cost = self._exact_request(alternative)
            for name, amount in cost.items():
                most[name] = max(most.get(name, 0.0), amount)
        return most

    def _exact_request(self, request: DeviceRequestSpec) -> dict[str, float]:
        return self._cost_of_devices(request, self._max_devices(request))

    def _cost_of_devices(self, request: DeviceRequestSpec, devices: float) -> dict[str, float]:
        gpus = self.request_weight(request) * devices
        return _cost(
            gpus, request.device_class_name, self.request_quota_resources(request), devices
        )

    def _max_devices(self, request: DeviceRequestSpec) -> float:
        """The most devices that a request gets."""
        if request.allocation_mode == "All":
            return max(self.request_device_limit(request), 1.0)
        return _listed_devices(request)


def _listed_devices(request: DeviceRequestSpec) -> float:
    """The count of a request, at most what a claim can hold.

    The API accepts any count. A sum that had 2**62 devices in it would lose all other charges.
    """
    return float(min(max(request.count, 1), MAX_RESULTS_PER_CLAIM))


def _cost(
    gpus: float, device_class: str, quota_resources: Iterable[str], devices: float
) -> dict[str, float]:
    cost = dict.fromkeys(quota_resources, devices)
    if gpus:
        cost[GPU] = gpus
    if device_class:
        cost[DEVICE_CLASS + device_class] = devices
    return cost


def _classes(spec: ResourceClaimSpec) -> dict[str, str]:
    """Request, or request/alternative, as results name it, to the class it asks for."""
    found: dict[str, str] = {}
    for request in spec.devices.requests:
        if request.exactly is not None:
            found[request.name] = request.exactly.device_class_name
        for each in request.first_available:
            found[f"{request.name}/{each.name}"] = each.device_class_name
    return found


NO_COST: Mapping[str, float] = {}
MAX_EXACT = 2.0**53
"""Up to this, sums of whole numbers are exact, whichever way they are added."""


def total(costs: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sum of costs per quota resource, in their order."""
    summed: dict[str, float] = {}
    last, repeated = NO_COST, 0
    for cost in costs:
        # Pods of a shape share their cost, so mostly one object comes again and again.
        if cost is last:
            repeated += 1
            continue
        if repeated:
            _add_repeatedly(summed, last, repeated)
        for name, amount in cost.items():
            summed[name] = summed.get(name, 0.0) + amount
        last, repeated = cost, 0
    if repeated:
        _add_repeatedly(summed, last, repeated)
    return summed


def _add_repeatedly(summed: dict[str, float], cost: Mapping[str, float], count: int) -> None:
    """Add ``cost`` again, ``count`` times."""
    for name, amount in cost.items():
        value, product = summed[name], amount * count
        if amount % 1 == value % 1 == 0 and abs(value) + abs(product) <= MAX_EXACT:
            summed[name] = value + product
            continue
        # One by one: a product would round differently.
        for _ in range(count):
            value += amount
        summed[name] = value
