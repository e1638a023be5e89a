"""Readiness of a claim's devices: the binding conditions that drivers set (KEP-5007).

A result may carry ``bindingConditions`` (fabric-attached devices, for example). Before a pod is
bound, ``claim.status.devices[]`` must show all of them True for that device and none of its
``bindingFailureConditions`` True. A failure or a time-out undoes the gang, so that the next attempt
can choose other devices. The timeout counts from the allocation's timestamp, so that a restarted
scheduler continues it.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from kai_py.api.records.resource import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kai_py.api.references import ClaimRef
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.claims.reconcile import same_devices
from kai_py.snapshot.object_cache import DeviceKey
from kai_py.watch.errors import ApiError

API_TIME_RESOLUTION = 1.0
"""Seconds: the API keeps times in whole seconds."""


class ReadinessPolicy(Struct, frozen=True):
    """Read the claim when it changes or after ``interval`` seconds, at most for ``timeout``."""

    interval: float = 5.0
    timeout: float = 600.0


DeviceCondition = tuple[DeviceKey, str]
"""A device, and its missing condition or the condition that reports its failure."""


class Readiness(Struct, frozen=True):
    """Conditions still missing, and failure conditions that are True."""

    missing: tuple[DeviceCondition, ...] = ()
    failed: tuple[DeviceCondition, ...] = ()


class DevicesNotReady(Struct, frozen=True):
    """The reason why devices of a claim can't be used, and these devices."""

    reason: str
    devices: tuple[DeviceCondition, ...] = ()


def readiness(claim: ResourceClaim) -> Readiness:
    """The state of the devices allocated to ``claim``, as their drivers report it."""
    if claim.status.allocation is None:
        return Readiness()
    missing: list[DeviceCondition] = []
    failed: list[DeviceCondition] = []
    for result in claim.status.allocation.devices.results:
        true = _true_conditions(claim.status.devices, result)
        device = (result.driver, result.pool, result.device)
        missing += [(device, c) for c in result.binding_conditions if c not in true]
        failed += [(device, c) for c in result.binding_failure_conditions if c in true]
    return Readiness(tuple(missing), tuple(failed))


def _true_conditions(
    devices: tuple[AllocatedDeviceStatus, ...], result: DeviceRequestAllocationResult
) -> frozenset[str]:
    key = (result.driver, result.pool, result.device, result.share_id)
    return frozenset(
        condition.type
        for device in devices
        if (device.driver, device.pool, device.device, device.share_id) == key
        for condition in device.conditions
        if condition.status == "True"
    )


async def wait_until_ready(
    access: ApiAccess, holders: DeviceHolders, claim: ResourceClaim, policy: ReadinessPolicy
) -> DevicesNotReady | None:
    """Wait until the claim's devices are ready; None when they are."""
    meta, allocation = claim.metadata, claim.status.allocation
    ref = ClaimRef.of(meta)
    state = readiness(claim)
    try:
        async with asyncio.timeout(
            _remaining_seconds(allocation, policy.timeout, access.client.machine.utc_now())
        ):
            while state.missing and not state.failed:
                await holders.wait_for_change(ref, policy.interval)
                current = await access.read_claim(ref)
                if not _is_unchanged(current, ref, allocation):
                    return DevicesNotReady(
                        f"claim {ref}: was deallocated because its devices were not ready"
                    )
                state = readiness(current)
    except TimeoutError:
        return _late(ref, state, policy.timeout)
    except ApiError as error:
        return DevicesNotReady(f"claim {ref}: {error}")
    return _failed(ref, state) if state.failed else None


def never_ready(claim: ResourceClaim, timeout: float, now: datetime) -> DevicesNotReady | None:
    """Why waiting for the claim's devices has ended without success; None if it has not."""
    ref, state = ClaimRef.of(claim.metadata), readiness(claim)
    if state.failed:
        return _failed(ref, state)
    is_late = _remaining_seconds(claim.status.allocation, timeout, now) <= 0
    return _late(ref, state, timeout) if state.missing and is_late else None


def _failed(ref: ClaimRef, state: Readiness) -> DevicesNotReady:
    conditions = format_conditions(state.failed)
    return DevicesNotReady(f"claim {ref}: binding failed: {conditions}", state.failed)


def _late(ref: ClaimRef, state: Readiness, timeout: float) -> DevicesNotReady:
    conditions = format_conditions(state.missing)
    return DevicesNotReady(
        f"claim {ref}: not ready within {timeout:g} s: {conditions}", state.missing
    )


def format_conditions(lacking: Iterable[DeviceCondition]) -> str:
    """Devices and their conditions for a message: ``gpu-0: Attached``."""
    return ", ".join(f"{device[2]}: {condition}" for device, condition in lacking)


def _remaining_seconds(allocation: AllocationResult | None, timeout: float, now: datetime) -> float:
    """Seconds left of ``timeout``, counted from the allocation's timestamp."""
    since = allocation.allocation_timestamp if allocation is not None else None
    if since is None:
        return timeout
    age = (now - since).total_seconds()
    # The timestamp is truncated to seconds: never cut the timeout short because of that.
    return timeout - max(0.0, age - API_TIME_RESOLUTION)


def _is_unchanged(claim: ResourceClaim, ref: ClaimRef, allocation: AllocationResult | None) -> bool:
    current = claim.status.allocation
    if claim.metadata.uid != ref.uid or current is None or allocation is None:
        return False
    return same_devices(current, allocation)
