"""Index of claims by allocated device: the check between allocating and binding.

The API server does not compare one claim's allocation with another's, so another scheduler may
allocate the same device at the same moment. Watch events of one kind arrive in the order of their
writes: once the mirror shows our own allocation, it has shown every allocation written before it.
If by then another claim has one of the devices, ours is undone. The other side may not check, so
the subscriber is called for every device that is allocated to two claims.

Maintained from mirror events, O(devices of the claim) each. Results with ``adminAccess`` do not
count; two shares of one device do not exclude each other, a share and a whole allocation do.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from msgspec import Struct

from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.references import ClaimRef
from kai_py.commit.claims.reconcile import same_devices
from kai_py.snapshot.object_cache import DeviceKey


class OtherHolder(Struct, frozen=True):
    """A device that is allocated to another claim as well."""

    device: DeviceKey
    holder: ClaimRef

    def __str__(self) -> str:
        driver, pool, device = self.device
        return f"device {driver}/{pool}/{device} is also allocated to claim {self.holder}"


class DeviceConflict(Struct, frozen=True):
    """Two claims with one device; ``later`` was seen to have it after ``earlier``."""

    device: DeviceKey
    earlier: ClaimRef
    later: ClaimRef


def allocated_devices(allocation: AllocationResult | None) -> dict[DeviceKey, bool]:
    """The devices of an allocation, each with whether it is allocated as a whole."""
    if allocation is None:
        return {}
    return {
        (result.driver, result.pool, result.device): not result.share_id
        for result in allocation.devices.results
        if not result.admin_access
    }


class DeviceHolders:
    """Claims by the devices allocated to them."""

    def __init__(self) -> None:
        self._holders: dict[DeviceKey, dict[str, ClaimRef]] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._lost: dict[str, AllocationResult] = {}
        self._changes: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._on_conflict: Callable[[DeviceConflict], None] | None = None

    def apply(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Apply a change of a claim in the mirror; None stands for absent."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)
        self._note_lost(old, new)
        for claim in (old, new):
            changed = self._changes.get(claim.metadata.uid) if claim is not None else None
            if changed is not None:
                changed.set()
        if new is not None and self._on_conflict is not None:
            before = allocated_devices(old.status.allocation) if old is not None else {}
            for conflict in self._conflicts_of(new):
                if conflict.device not in before:
                    self._on_conflict(conflict)

    def subscribe(self, on_conflict: Callable[[DeviceConflict], None] | None) -> None:
        """Report every present conflict, then every new one; None unsubscribes."""
        self._on_conflict = on_conflict
        if on_conflict is None:
            return
        for uid in list(self._claims):
            for conflict in self._conflicts_of(self._claims[uid]):
                # Both claims report the pair: take only the report of the later one.
                if self._came_first(conflict):
                    on_conflict(conflict)

    def is_current(self, conflict: DeviceConflict) -> bool:
        """Whether both claims still have the device."""
        holders = self._holders.get(conflict.device, {})
        uids = (conflict.earlier.uid, conflict.later.uid)
        return all(uid in holders for uid in uids) and any(
            self._holds_exclusively(uid, conflict.device) for uid in uids
        )

    def claim(self, uid: str) -> ResourceClaim | None:
        """A claim as the mirror shows it."""
        return self._claims.get(uid)

    def lost_allocation(self, uid: str) -> AllocationResult | None:
        """The allocation that a claim had before it was cleared, if the mirror has shown it."""
        return self._lost.get(uid)

    def other_holders(self, claim: ClaimRef, allocation: AllocationResult) -> list[OtherHolder]:
        """Devices of ``allocation`` that other claims have too, where that excludes ``claim``."""
        return [
            OtherHolder(device, holder)
            for device, whole in allocated_devices(allocation).items()
            for uid, holder in sorted(self._holders.get(device, {}).items())
            if uid != claim.uid and (whole or self._holds_exclusively(uid, device))
        ]

    async def wait_until_seen(
        self, claim: ClaimRef, allocation: AllocationResult, within: float
    ) -> bool:
        """Wait until the mirror shows ``allocation``; False if not ``within`` seconds."""
        changed = self._changes.setdefault(claim.uid, asyncio.Event())
        try:
            async with asyncio.timeout(within):
                while not self._shows(claim.uid, allocation):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for_change(self, claim: ClaimRef, within: float) -> None:
        """Wait until the mirror shows any change of the claim, at most ``within`` seconds."""
        changed = self._changes.setdefault(claim.uid, asyncio.Event())
        changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await changed.wait()

    def _note_lost(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        before = old.status.allocation if old is not None else None
        for claim in (old, new):
            if claim is not None and (new is None or new.status.allocation is not None):
                self._lost.pop(claim.metadata.uid, None)
        if new is not None and new.status.allocation is None and before is not None:
            self._lost[new.metadata.uid] = before

    def _conflicts_of(self, claim: ResourceClaim) -> list[DeviceConflict]:
        meta, allocation = claim.metadata, claim.status.allocation
        if allocation is None:
            return []
        ref = ClaimRef.of(meta)
        return [
            DeviceConflict(each.device, each.holder, ref)
            for each in self.other_holders(ref, allocation)
        ]

    def _came_first(self, conflict: DeviceConflict) -> bool:
        order = list(self._holders[conflict.device])
        return order.index(conflict.earlier.uid) < order.index(conflict.later.uid)

    def _shows(self, uid: str, allocation: AllocationResult) -> bool:
        claim = self._claims.get(uid)
        current = claim.status.allocation if claim is not None else None
        return current is not None and same_devices(current, allocation)

    def _holds_exclusively(self, uid: str, device: DeviceKey) -> bool:
        return allocated_devices(self._claims[uid].status.allocation)[device]

    def _add(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        self._claims[uid] = claim
        ref = ClaimRef(claim.metadata.namespace, claim.metadata.name, uid)
        for device in allocated_devices(claim.status.allocation):
            self._holders.setdefault(device, {})[uid] = ref

    def _remove(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        self._claims.pop(uid, None)
        for device in allocated_devices(claim.status.allocation):
            holders = self._holders.get(device, {})
            holders.pop(uid, None)
            if not holders:
                self._holders.pop(device, None)
