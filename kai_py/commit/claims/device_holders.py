"""Who holds a device, as far as the mirror knows: the check between allocating and binding.

The API server does not compare one claim's allocation with another's, so another scheduler may
give away the same device in the same moment. Watch events of one kind arrive in the order of their
writes: once the mirror shows our own allocation, it has shown every allocation written before it.
If by then another claim holds one of the devices, ours is undone; the other side may not check,
so whoever listens is told of every device that a claim is seen to hold beside another.

Kept up by mirror events, O(devices of the claim) each. Results with ``adminAccess`` hold nothing;
two shares of one device do not exclude each other, a share and a whole allocation do.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.references import ClaimRef
from kai_py.commit.claims.reconcile import same_devices

DeviceKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class OtherHolder:
    """A device that another claim holds as well."""

    device: DeviceKey
    holder: ClaimRef

    def __str__(self) -> str:
        driver, pool, device = self.device
        return f"device {driver}/{pool}/{device} is also allocated to claim {self.holder}"


@dataclass(frozen=True, slots=True)
class DeviceConflict:
    """Two claims that hold one device; ``later`` was seen to hold it after ``earlier``."""

    device: DeviceKey
    earlier: ClaimRef
    later: ClaimRef


def allocated_devices(allocation: AllocationResult | None) -> dict[DeviceKey, bool]:
    """The devices an allocation holds, each with whether it is held whole."""
    if allocation is None:
        return {}
    return {
        (result.driver, result.pool, result.device): not result.share_id
        for result in allocation.devices.results
        if not result.admin_access
    }


class DeviceHolders:
    """Claims by the devices they hold."""

    def __init__(self) -> None:
        self._holders: dict[DeviceKey, dict[str, ClaimRef]] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._changes: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._on_conflict: Callable[[DeviceConflict], None] | None = None

    def apply(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Take over a change that the mirror saw."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)
        for claim in (old, new):
            waiting = self._changes.get(claim.metadata.uid) if claim is not None else None
            if waiting is not None:
                waiting.set()
        if new is not None and self._on_conflict is not None:
            before = allocated_devices(old.status.allocation) if old is not None else {}
            for clash in self._conflicts_of(new):
                if clash.device not in before:
                    self._on_conflict(clash)

    def subscribe(self, on_conflict: Callable[[DeviceConflict], None] | None) -> None:
        """Tell of every clash there is, and from then on of every new one; None: of none."""
        self._on_conflict = on_conflict
        if on_conflict is None:
            return
        for uid in list(self._claims):
            for clash in self._conflicts_of(self._claims[uid]):
                if self._came_first(clash):
                    on_conflict(clash)

    def is_current(self, conflict: DeviceConflict) -> bool:
        """Whether both claims still hold the device."""
        held = self._holders.get(conflict.device, {})
        uids = (conflict.earlier.uid, conflict.later.uid)
        return all(uid in held for uid in uids) and any(
            self._holds_exclusively(uid, conflict.device) for uid in uids
        )

    def claim(self, uid: str) -> ResourceClaim | None:
        """A claim as the mirror shows it."""
        return self._claims.get(uid)

    def other_holders(self, claim: ClaimRef, allocation: AllocationResult) -> list[OtherHolder]:
        """Devices of ``allocation`` that other claims hold too, where that excludes ``claim``."""
        return [
            OtherHolder(device, holder)
            for device, whole in allocated_devices(allocation).items()
            for uid, holder in sorted(self._holders.get(device, {}).items())
            if uid != claim.uid and (whole or self._holds_exclusively(uid, device))
        ]

    async def wait_until_seen(
        self, claim: ClaimRef, allocation: AllocationResult, within: float
    ) -> bool:
        """Wait until the mirror shows ``allocation``; False when it does not ``within`` seconds."""
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
        held = claim.status.allocation if claim is not None else None
        return held is not None and same_devices(held, allocation)

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
