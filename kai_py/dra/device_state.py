"""Allocation state: devices allocated whole, shares of devices, and counters drawn on.

Every allocation in the cluster counts, whichever scheduler wrote it; results with admin access
allocate nothing. A result with a share id is a share and consumes capacity, any other takes the
whole device. A device that is removed while allocated keeps its name and the counters it last drew
on.

``mark_allocated`` and ``release`` are exact inverses on integers, so a trial is undone by the
opposite call in any order. Usage per pool is an immutable value: a copy of the state costs one dict
copy.

``ReleasedAllocation``: a claim that released its devices can have them back while neither they nor
the counters they draw on were allocated since.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec
from msgspec import Struct

from kai_py.api.quantity import QuantityError, parse_quantity
from kai_py.api.records.resource import AllocationResult, DeviceRequestAllocationResult
from kai_py.dra.identity import DeviceID, PoolID
from kai_py.dra.rows import Consumption, CounterID, DeviceRow

FindDevice = Callable[[DeviceID], DeviceRow | None]
"""Returns a listed device, None when no slice lists it."""

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """How one device is allocated."""

    exclusive_holders: int = 0
    """Claims with the whole device; more than one means that two schedulers clashed."""
    shares: int = 0
    consumed: tuple[tuple[str, int], ...] = ()
    """Capacity consumed by all shares together, in nano-units, by name; no zeros."""
    consumes: tuple[Consumption, ...] = field(default=(), compare=False)

    @property
    def is_free(self) -> bool:
        """Whether nothing of the device is allocated."""
        return not self.exclusive_holders and not self.shares and not self.consumed


class PoolUsage(Struct, frozen=True):
    """What is allocated of one pool; immutable."""

    devices: Mapping[str, DeviceAllocation] = msgspec.field(default_factory=dict)
    counters: Mapping[CounterID, int] = msgspec.field(default_factory=dict)
    """What all allocated devices draw, each counted once, in nano-units."""

    def device(self, device: str) -> DeviceAllocation:
        """How a device of the pool is allocated."""
        return self.devices.get(device, FREE_DEVICE)

    def with_device(self, device: str, allocation: DeviceAllocation) -> "PoolUsage":
        """The usage with ``allocation`` in place of the device's previous one."""
        before = self.device(device)
        devices = {**self.devices, device: allocation}
        if allocation.is_free:
            del devices[device]
        counters = self.counters
        if before.is_free != allocation.is_free and (before.consumes or allocation.consumes):
            consumes, sign = (
                (before.consumes, -1) if allocation.is_free else (allocation.consumes, 1)
            )
            counters = _with_counters(counters, consumes, sign)
        return PoolUsage(devices, counters)

    def with_consumption(self, device: str, consumes: tuple[Consumption, ...]) -> "PoolUsage":
        """The usage with an allocated device drawing ``consumes`` instead of what it drew."""
        before = self.device(device)
        counters = _with_counters(self.counters, before.consumes, -1)
        devices = {**self.devices, device: replace(before, consumes=consumes)}
        return PoolUsage(devices, _with_counters(counters, consumes, 1))


FREE_DEVICE = DeviceAllocation()
UNUSED_POOL = PoolUsage()


@dataclass(slots=True, eq=False, weakref_slot=True)
class DeviceState:
    """The allocation state of all pools; pools without allocations have no entry."""

    find_device: FindDevice
    pools: dict[PoolID, PoolUsage] = field(default_factory=dict)
    changes: list[PoolID] = field(default_factory=list)
    """Pools in the order in which their usage changed, for observers of the state."""
    origin: "DeviceState | None" = None
    """The state of which this one is a copy."""
    forked_at: int = 0
    """How many changes ``origin`` had when it was copied."""

    @classmethod
    def of(cls, find: FindDevice, allocations: Iterable[AllocationResult]) -> "DeviceState":
        """Build the state from everything that is allocated or about to be."""
        state = cls(find)
        for allocation in allocations:
            state.mark_allocated(allocation)
        return state

    def usage(self, pool: PoolID) -> PoolUsage:
        """What is allocated of ``pool``."""
        return self.pools.get(pool, UNUSED_POOL)

    def device_allocation(self, device: DeviceID) -> DeviceAllocation:
        """How ``device`` is allocated."""
        return self.usage(device.pool_id).device(device.device)

    def copy(self) -> "DeviceState":
        """A copy that changes independently."""
        return DeviceState(
            self.find_device, dict(self.pools), origin=self, forked_at=len(self.changes)
        )

    def mark_allocated(self, allocation: AllocationResult) -> Undo:
        """Mark the devices of ``allocation`` as allocated; returns the undo."""
        self._apply(allocation, 1)
        return lambda: self._apply(allocation, -1)

    def release(self, allocation: AllocationResult) -> Undo:
        """Release the devices of ``allocation``; returns the undo."""
        self._apply(allocation, -1)
        return lambda: self._apply(allocation, 1)

    def mark_needed_by_admins(self, allocation: AllocationResult) -> Undo:
        """Mark what devices with admin access need to be free, which they do not allocate.

        That is the capacity of shares, and what counters are drawn on; returns the undo.
        """
        needed = tuple(
            msgspec.structs.replace(each, admin_access=False)
            for each in allocation.devices.results
            if each.admin_access
            and (each.share_id or self._consumes(PoolID(each.driver, each.pool), each.device))
        )
        if not needed:
            return _nothing
        devices = msgspec.structs.replace(allocation.devices, results=needed)
        return self.mark_allocated(msgspec.structs.replace(allocation, devices=devices))

    def refresh_pool(self, pool: PoolID) -> None:
        """Apply changed slices of a pool to what its allocated devices draw."""
        for name, allocation in self.usage(pool).devices.items():
            row = self.find_device(DeviceID(pool.driver, pool.pool, name))
            if row is not None and row.consumes != allocation.consumes:
                self.pools[pool] = self.usage(pool).with_consumption(name, row.consumes)
                self.changes.append(pool)

    def _apply(self, allocation: AllocationResult, sign: int) -> None:
        by_pool: dict[PoolID, list[DeviceRequestAllocationResult]] = {}
        for result in allocation.devices.results:
            if not result.admin_access:
                by_pool.setdefault(PoolID(result.driver, result.pool), []).append(result)
        # All of it is computed before any of it is stored: a failure leaves the state as it was.
        usages = {pool: self._with_results(pool, each, sign) for pool, each in by_pool.items()}
        for pool, usage in usages.items():
            self._put(pool, usage)

    def _with_results(
        self, pool: PoolID, results: Iterable[DeviceRequestAllocationResult], sign: int
    ) -> PoolUsage:
        """The usage of ``pool`` with results allocated, or with -1 released."""
        usage = self.usage(pool)
        devices, counters = dict(usage.devices), usage.counters
        for result in results:
            before = devices.get(result.device, FREE_DEVICE)
            consumes = self._consumes(pool, result.device) if before.is_free else before.consumes
            after = _with_result(before, result, sign, consumes)
            if after.is_free:
                devices.pop(result.device, None)
            else:
                devices[result.device] = after
            if consumes and before.is_free != after.is_free:
                counters = _with_counters(counters, consumes, -1 if after.is_free else 1)
        return PoolUsage(devices, counters)

    def _consumes(self, pool: PoolID, device: str) -> tuple[Consumption, ...]:
        row = self.find_device(DeviceID(pool.driver, pool.pool, device))
        return () if row is None else row.consumes

    def _store(self, device: DeviceID, device_allocation: DeviceAllocation) -> None:
        pool = device.pool_id
        self._put(pool, self.usage(pool).with_device(device.device, device_allocation))

    def _put(self, pool: PoolID, usage: PoolUsage) -> None:
        self.changes.append(pool)
        if usage.devices:
            self.pools[pool] = usage
        else:
            self.pools.pop(pool, None)


def _nothing() -> None:
    """Undo nothing."""


def _with_result(
    before: DeviceAllocation,
    result: DeviceRequestAllocationResult,
    sign: int,
    consumes: tuple[Consumption, ...],
) -> DeviceAllocation:
    # A share that cannot be read counts as the whole device.
    amounts = _consumed_capacity(result) if result.share_id else None
    if amounts is None:
        return DeviceAllocation(
            before.exclusive_holders + sign, before.shares, before.consumed, consumes
        )
    consumed = dict(before.consumed)
    for name, amount in amounts.items():
        consumed[name] = consumed.get(name, 0) + sign * amount
    left = tuple(sorted((name, amount) for name, amount in consumed.items() if amount))
    return DeviceAllocation(before.exclusive_holders, before.shares + sign, left, consumes)


def _consumed_capacity(result: DeviceRequestAllocationResult) -> dict[str, int] | None:
    """What the share consumes, in nano-units; None if that cannot be read."""
    try:
        return {name: parse_quantity(text).nano for name, text in result.consumed_capacity.items()}
    except QuantityError:
        return None


def unreadable_shares(allocation: AllocationResult) -> tuple[str, ...]:
    """The devices whose consumed capacity cannot be read: they count as allocated whole."""
    results = allocation.devices.results
    return tuple(each.device for each in results if _consumed_capacity(each) is None)


def _with_counters(
    counters: Mapping[CounterID, int], consumes: Iterable[Consumption], sign: int
) -> dict[CounterID, int]:
    drawn = dict(counters)
    for consumption in consumes:
        for name, amount in consumption.counters:
            key = (consumption.counter_set, name)
            amount_drawn = drawn.get(key, 0) + sign * amount
            drawn[key] = amount_drawn
            if not amount_drawn:
                del drawn[key]
    return drawn


Key = TypeVar("Key")


class ReleasedAllocation(Struct, frozen=True):
    """A released allocation, and the usage of its pools right after the release."""

    allocation: AllocationResult
    usages: Mapping[PoolID, PoolUsage]

    @classmethod
    def capture(cls, allocation: AllocationResult, state: DeviceState) -> "ReleasedAllocation":
        """Record the state after the release."""
        pools = dict.fromkeys(device.pool_id for device in _devices(allocation))
        return cls(allocation, {pool: state.usage(pool) for pool in pools})

    def can_restore(self, state: DeviceState) -> bool:
        """Whether the allocation may be restored."""
        return all(
            _not_more_consumed(state.usage(pool).counters, usage.counters)
            for pool, usage in self.usages.items()
        ) and all(
            _not_more_allocated(
                state.device_allocation(device), self.usages[device.pool_id].device(device.device)
            )
            for device in _devices(self.allocation)
        )


def _devices(allocation: AllocationResult) -> list[DeviceID]:
    results = allocation.devices.results
    return [DeviceID(each.driver, each.pool, each.device) for each in results]


def _not_more_allocated(now: DeviceAllocation, before: DeviceAllocation) -> bool:
    return now.exclusive_holders <= before.exclusive_holders and _not_more_consumed(
        dict(now.consumed), dict(before.consumed)
    )


def _not_more_consumed(now: Mapping[Key, int], before: Mapping[Key, int]) -> bool:
    return all(amount <= before.get(key, 0) for key, amount in now.items())
