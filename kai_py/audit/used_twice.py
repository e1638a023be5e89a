"""What is used twice: devices and what they are made of, host ports of a node, and volume claims.

The API server compares no claim with another. A device belongs to one claim, or to any number of
shares of a device that allows them as long as their capacity is enough; results with admin access
take nothing. Partitions exclude each other by the counters that they draw from a common set.
Capacity and counters are checked for pools whose slices are complete: while a driver publishes them
again nothing can be said. Sources: KEP-4381, KEP-4815, KEP-5075.

The kubelet refuses a pod whose host port another pod of its node uses. Addresses conflict as the
scheduler has it: if they are equal, or one of them means all. O(pods and their ports).

A PersistentVolumeClaim with the access mode ReadWriteOncePod is for one pod in the whole cluster. A
second pod on the same node does not start, and one on another node may write to the same volume.
Source: KEP-2485.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from kai_py.api.quantity import Quantity, QuantityError, parse_quantity
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import DeviceRequestAllocationResult, ResourceClaim
from kai_py.api.records.storage import READ_WRITE_ONCE_POD
from kai_py.api.texts import first_of
from kai_py.audit.finding import (
    AuditedCluster,
    AuditFinding,
    FindingKind,
    Steps,
    bound_since,
    is_unfinished,
    name_of,
)
from kai_py.dra.identity import PoolID
from kai_py.dra.rows import CounterID, DeviceRow, ParsedSlice
from kai_py.snapshot.pod_volumes import volume_claim_name
from kai_py.snapshot.shape import host_ports


class _Device(Struct):
    """The claims with one device: those with all of it, and those with a share."""

    whole: list[str] = field(default_factory=list)
    shares: list[str] = field(default_factory=list)
    share_ids: set[str] = field(default_factory=set)
    repeated_ids: set[str] = field(default_factory=set)
    consumed: dict[str, int] = field(default_factory=dict)

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.whole, *self.shares)))


_Pools = dict[PoolID, dict[str, _Device]]


def devices_used_twice(cluster: AuditedCluster) -> Steps:
    """Devices and counters that claims have beyond what exists of them."""
    pools: _Pools = {}
    for claim in cluster.claims:
        _take(claim, pools)
        yield None
    published = _slices_by_pool(cluster.slices)
    for pool in sorted(pools):
        devices = pools[pool]
        rows = _rows_of(published.get(pool, ()), devices)
        for name in sorted(devices):
            yield _device_finding(pool, name, devices[name], rows.get(name))
        yield from _overdrawn(pool, devices, rows, published.get(pool, ()))


def _take(claim: ResourceClaim, pools: _Pools) -> None:
    allocation = claim.status.allocation
    if allocation is None:
        return
    name = name_of(claim.metadata.namespace, claim.metadata.name)
    for result in allocation.devices.results:
        if result.admin_access:
            continue
        devices = pools.setdefault(PoolID(result.driver, result.pool), {})
        device = devices.setdefault(result.device, _Device())
        if result.share_id:
            ids = device.repeated_ids if result.share_id in device.share_ids else device.share_ids
            ids.add(result.share_id)
            device.shares.append(name)
            _add_consumed(device, result)
        else:
            device.whole.append(name)


def _add_consumed(device: _Device, result: DeviceRequestAllocationResult) -> None:
    for name, amount in result.consumed_capacity.items():
        try:
            nano = parse_quantity(amount).nano
        except QuantityError:
            continue
        device.consumed[name] = device.consumed.get(name, 0) + nano


def _device_finding(
    pool: PoolID, name: str, device: _Device, row: DeviceRow | None
) -> AuditFinding | None:
    claims = device.claims
    text = f"device {pool}/{name}"
    if len(device.whole) + bool(device.shares) > 1:
        twice = " twice" if len(claims) == 1 else ""
        return _finding(pool, name, claims, f"{text} is allocated to {_listed(claims)}{twice}")
    if device.repeated_ids:
        shown = first_of(sorted(device.repeated_ids))
        fault = f"{text} has share {shown} allocated twice, to {_listed(claims)}"
        return _finding(pool, name, claims, fault)
    if row is None or not device.shares:
        return None
    if not row.shareable and len(device.shares) > 1:
        fault = f"{text} allows one allocation only, but has shares of {_listed(claims)}"
        return _finding(pool, name, claims, fault)
    for capacity in row.capacities:
        consumed = Quantity(device.consumed.get(capacity.name, 0), capacity.format)
        if consumed.nano > capacity.value:
            of = Quantity(capacity.value, capacity.format)
            fault = f"{text}: {consumed} of {of} {capacity.name} are allocated to {_listed(claims)}"
            return _finding(pool, name, claims, fault)
    return None


def _overdrawn(
    pool: PoolID,
    devices: Mapping[str, _Device],
    rows: Mapping[str, DeviceRow],
    slices: Sequence[ParsedSlice],
) -> Iterator[AuditFinding]:
    """The counter sets of which the allocated devices draw more than there is."""
    available = {key: value for parsed in slices for key, value in parsed.counters.items()}
    drawn: dict[CounterID, int] = {}
    users: dict[CounterID, list[str]] = {}
    for name in sorted(rows):
        for consumption in rows[name].consumes:
            for counter, amount in consumption.counters:
                key = (consumption.counter_set, counter)
                drawn[key] = drawn.get(key, 0) + amount
                users.setdefault(key, []).extend(devices[name].claims)
    overdrawn: dict[str, str] = {}
    for (counter_set, counter), amount in sorted(drawn.items()):
        if amount > available.get((counter_set, counter), amount):
            overdrawn.setdefault(counter_set, counter)
    for counter_set, counter in overdrawn.items():
        key = (counter_set, counter)
        claims = tuple(dict.fromkeys(users[key]))
        fault = (
            f"counter {counter} of {pool}/{counter_set} is overdrawn: {Quantity(drawn[key])} of "
            f"{Quantity(available[key])} are allocated to {_listed(claims)}"
        )
        yield _finding(pool, counter_set, claims, fault)


def _finding(pool: PoolID, name: str, claims: tuple[str, ...], message: str) -> AuditFinding:
    objects = (f"Device {pool}/{name}", *(f"ResourceClaim {claim}" for claim in claims))
    return AuditFinding(FindingKind.DEVICE_USED_TWICE, objects, message)


def _listed(claims: tuple[str, ...]) -> str:
    noun = "claims" if len(claims) > 1 else "claim"
    return f"{noun} {first_of(claims)}"


def _slices_by_pool(slices: Iterable[ParsedSlice]) -> Mapping[PoolID, Sequence[ParsedSlice]]:
    """The slices of the newest generation of every pool that is complete."""
    pools: dict[PoolID, list[ParsedSlice]] = {}
    for parsed in slices:
        newest = pools.setdefault(parsed.pool_id, [])
        generation = parsed.slice.spec.pool.generation
        if newest and generation > newest[0].slice.spec.pool.generation:
            newest.clear()
        if not newest or generation == newest[0].slice.spec.pool.generation:
            newest.append(parsed)
    return {
        pool: newest
        for pool, newest in pools.items()
        if len(newest) == newest[0].slice.spec.pool.resource_slice_count
    }


def _rows_of(
    slices: Sequence[ParsedSlice], devices: Mapping[str, _Device]
) -> Mapping[str, DeviceRow]:
    """The allocated ones of the pool's devices, by name."""
    return {
        row.id.device: row for parsed in slices for row in parsed.rows if row.id.device in devices
    }


_Users = dict[str, dict[str, None]]
"""The pods that use a port, by address; the empty one means all addresses."""


def host_ports_used_twice(cluster: AuditedCluster) -> Steps:
    """Ports of nodes that several bound pods use at the same address."""
    used: dict[tuple[str, str, int], _Users] = {}
    for pod in cluster.pods:
        ports = host_ports(pod)
        if ports and is_unfinished(pod) and cluster.is_settled(bound_since(pod)):
            name = name_of(pod.metadata.namespace, pod.metadata.name)
            for address, protocol, port in ports:
                users = used.setdefault((pod.spec.node_name, protocol, port), {})
                users.setdefault(address, {})[name] = None
        yield None
    for (node, protocol, port), users in sorted(used.items()):
        pods = _in_conflict(users)
        yield _port_finding(node, f"{port}/{protocol}", pods) if pods else None


def _in_conflict(users: _Users) -> list[str]:
    """The pods, sorted, that use the port at an address where another pod does."""
    everyone = {pod: None for pods in users.values() for pod in pods}
    if "" in users:
        return sorted(everyone) if len(everyone) > 1 else []
    shared = {pod: None for pods in users.values() if len(pods) > 1 for pod in pods}
    return sorted(shared)


def _port_finding(node: str, port: str, pods: list[str]) -> AuditFinding:
    return AuditFinding(
        FindingKind.NODE_OVER_CAPACITY,
        (f"Node {node}", f"Port {port}", *(f"Pod {pod}" for pod in pods)),
        f"host port {port} of node {node} is used by {len(pods)} pods: {first_of(pods)}",
    )


def volumes_used_twice(cluster: AuditedCluster) -> Steps:
    """ReadWriteOncePod claims that several bound pods use."""
    users: dict[tuple[str, str], dict[str, None]] = {}
    for claim in cluster.volume_claims:
        if READ_WRITE_ONCE_POD in claim.spec.access_modes:
            users[claim.metadata.namespace, claim.metadata.name] = {}
        yield None
    for pod in cluster.pods if users else ():
        if pod.spec.volumes and is_unfinished(pod) and cluster.is_settled(bound_since(pod)):
            _add(pod, users)
        yield None
    for (namespace, name), pods in sorted(users.items()):
        yield _claim_finding(name_of(namespace, name), sorted(pods)) if len(pods) > 1 else None


def _add(pod: Pod, users: dict[tuple[str, str], dict[str, None]]) -> None:
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        pods = users.get((namespace, volume_claim_name(pod, volume)))
        if pods is not None:
            pods[name_of(namespace, pod.metadata.name)] = None


def _claim_finding(claim: str, pods: list[str]) -> AuditFinding:
    return AuditFinding(
        FindingKind.VOLUME_USED_TWICE,
        (f"PersistentVolumeClaim {claim}", *(f"Pod {pod}" for pod in pods)),
        f"volume claim {claim} is for one pod only (ReadWriteOncePod), but {len(pods)} pods use "
        f"it: {first_of(pods)}",
    )
