"""The list of devices and their holders for people, one entry per device.

A device is

    Allocated           allocated to a claim as a whole
    Shared              allocated in shares, with or without capacity left
    CountersExhausted   free itself, but other partitions have used up the counters it draws on
    Tainted             closed to claims that do not tolerate its taint
    Unavailable         in a pool that is incomplete or invalid
    Removed             allocated, but no slice lists it any more
    Free                otherwise

A partition is listed with its parent, the whole GPU. Complexity: O(devices + results of claims).
"""

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from kai_py.api.groups import grouped
from kai_py.api.records.node import HARD_EFFECTS, Node, taint_text
from kai_py.api.records.resource import DeviceRequestAllocationResult, ResourceClaim
from kai_py.dra.device_state import DeviceState, PoolUsage
from kai_py.dra.identity import DeviceID
from kai_py.dra.inventory import Inventory
from kai_py.dra.pools import Pool, PoolStatus
from kai_py.dra.rows import DeviceRow
from kai_py.snapshot.gangs import Gang


class DeviceStatus(enum.Enum):
    """What a new claim would find."""

    FREE = "Free"
    ALLOCATED = "Allocated"
    SHARED = "Shared"
    COUNTERS_EXHAUSTED = "CountersExhausted"
    TAINTED = "Tainted"
    UNAVAILABLE = "Unavailable"
    REMOVED = "Removed"


class Holder(Struct, frozen=True):
    """A claim to which a device is allocated, with the consumers it is reserved for."""

    claim: str
    """namespace/name"""
    pods: tuple[str, ...]
    gang: str
    queue: str
    consumed: Mapping[str, str]
    """The capacity that it consumes, if it is a share."""
    admin_access: bool
    """Has admin access, which allocates nothing."""
    units: int = 0
    """How many devices of a device plugin it has, which have no names; 0 for a claim."""


class DeviceEntry(Struct, frozen=True):
    """One device."""

    node: str
    """Empty for devices that several nodes may use."""
    driver: str
    pool: str
    device: str
    product: str
    kind: str
    """The profile of a partition, else the type."""
    parent: str
    """The device of which a partition is part."""
    status: DeviceStatus
    detail: str
    """The taint, or the problem of the pool."""
    claims: tuple[Holder, ...]
    count: int = 1
    """Devices that the entry stands for: those of a device plugin have no names of their own."""


def list_devices(
    inventory: Inventory,
    state: DeviceState,
    nodes: Sequence[Node],
    claims: Iterable[ResourceClaim],
    gangs: Mapping[str, Gang],
) -> list[DeviceEntry]:
    """All devices that ``nodes`` see, by node, pool and position; then those that were removed."""
    holders = device_holders(claims, gangs)
    pools = {pool.id: pool for node in nodes for pool in inventory.view(node).pools}
    entries = [
        entry
        for pool in pools.values()
        for entry in _pool_entries(pool, state.usage(pool.id), holders)
    ]
    listed = {DeviceID(each.driver, each.pool, each.device) for each in entries}
    entries += [
        _removed_device(device, holders[device]) for device in sorted(holders.keys() - listed)
    ]
    return sorted(entries, key=lambda each: (each.node, each.driver, each.pool))


def device_holders(
    claims: Iterable[ResourceClaim], gangs: Mapping[str, Gang]
) -> dict[DeviceID, tuple[Holder, ...]]:
    """The holders of each device, in the order of the claims' names."""
    consumers = _consumers(gangs)
    holders: dict[DeviceID, tuple[Holder, ...]] = {}
    for claim in sorted(claims, key=lambda c: (c.metadata.namespace, c.metadata.name)):
        allocation = claim.status.allocation
        for result in () if allocation is None else allocation.devices.results:
            device = DeviceID(result.driver, result.pool, result.device)
            holders[device] = (*holders.get(device, ()), _holder(claim, result, consumers))
    return holders


class _Consumer(Struct):
    """The gang of a consumer of claims, a pod or a PodGroup, with its pods on nodes."""

    gang: Gang
    pods: list[str]


def _consumers(gangs: Mapping[str, Gang]) -> dict[str, _Consumer]:
    """Consumers by uid."""
    consumers: dict[str, _Consumer] = {}
    for gang in gangs.values():
        for member in gang.members:
            consumers[member.pod.uid] = _Consumer(gang, [member.pod.name])
            if member.group_reservation is not None:
                consumer = consumers.setdefault(
                    member.group_reservation.group.uid, _Consumer(gang, [])
                )
                consumer.pods += [member.pod.name] if member.node else []
    return consumers


def _holder(
    claim: ResourceClaim,
    result: DeviceRequestAllocationResult,
    consumers_by_uid: Mapping[str, _Consumer],
) -> Holder:
    consumers = claim.status.reserved_for
    gang = next(
        (consumers_by_uid[each.uid].gang for each in consumers if each.uid in consumers_by_uid),
        None,
    )
    pods = (
        consumers_by_uid[each.uid].pods if each.uid in consumers_by_uid else [each.name]
        for each in consumers
    )
    return Holder(
        claim=f"{claim.metadata.namespace}/{claim.metadata.name}",
        pods=tuple(chain.from_iterable(pods)),
        gang="" if gang is None else gang.key,
        queue="" if gang is None else gang.queue,
        consumed={key: str(value) for key, value in sorted(result.consumed_capacity.items())},
        admin_access=bool(result.admin_access),
    )


def _pool_entries(
    pool: Pool, usage: PoolUsage, holders: Mapping[DeviceID, tuple[Holder, ...]]
) -> Iterator[DeviceEntry]:
    parents = _parents(pool.rows)
    for row in pool.rows:
        own = holders.get(row.id, ())
        status, detail = _status(pool, usage, row, own)
        yield DeviceEntry(
            node=row.reach.node_name,
            driver=row.id.driver,
            pool=row.id.pool,
            device=row.id.device,
            product=row.text("productName") or row.text("model"),
            kind=row.text("profile") or row.text("type"),
            parent=parents.get(row.id.device, ""),
            status=status,
            detail=detail,
            claims=own,
        )


def _status(
    pool: Pool, usage: PoolUsage, row: DeviceRow, holders: Sequence[Holder]
) -> tuple[DeviceStatus, str]:
    if any(not holder.admin_access for holder in holders):
        return (DeviceStatus.SHARED if row.shareable else DeviceStatus.ALLOCATED), ""
    if pool.status is not PoolStatus.READY:
        return DeviceStatus.UNAVAILABLE, f"pool {pool.status.value}: {pool.detail}"
    taint = next((each for each in row.taints if each.effect in HARD_EFFECTS), None)
    if taint is not None:
        return DeviceStatus.TAINTED, taint_text(taint)
    if _is_blocked(pool, usage, row):
        return DeviceStatus.COUNTERS_EXHAUSTED, ""
    return DeviceStatus.FREE, ""


def _is_blocked(pool: Pool, usage: PoolUsage, row: DeviceRow) -> bool:
    return any(
        pool.counters.get((each.counter_set, name), 0)
        - usage.counters.get((each.counter_set, name), 0)
        < amount
        for each in row.consumes
        for name, amount in each.counters
    )


def _parents(rows: Sequence[DeviceRow]) -> dict[str, str]:
    """Parents by partition: the device named by uuid, else the one that draws most on the set."""
    by_uuid = {uuid: row.id.device for row in rows if (uuid := row.text("uuid"))}
    consuming = (row for row in rows if row.consumes)
    by_counter_set = grouped(consuming, lambda row: row.consumes[0].counter_set)
    parents: dict[str, str] = {}
    for members in by_counter_set.values():
        draws = [len(row.consumes[0].counters) for row in members]
        whole = members[draws.index(max(draws))].id.device
        if max(draws) > min(draws):
            parents |= {row.id.device: whole for row in members if row.id.device != whole}
    named = {row.id.device: by_uuid.get(row.text("parentUUID")) for row in rows}
    return parents | {device: parent for device, parent in named.items() if parent is not None}


def _removed_device(device: DeviceID, holders: tuple[Holder, ...]) -> DeviceEntry:
    return DeviceEntry(
        node="",
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        product="",
        kind="",
        parent="",
        status=DeviceStatus.REMOVED,
        detail="allocated, but in no ResourceSlice",
        claims=holders,
    )
