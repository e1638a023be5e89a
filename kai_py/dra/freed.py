"""Can a claim that gave up its devices have them back?

It can while nobody took any of them, nor of the counters they draw on, since they were free.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from kai_py.api.records.resource import AllocationResult
from kai_py.dra.holdings import DeviceAllocation, DeviceState, PoolUsage
from kai_py.dra.identity import DeviceID, PoolID

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class ReleasedAllocation:
    """An allocation that was released, and what was held of its pools right after that."""

    allocation: AllocationResult
    usages: Mapping[PoolID, PoolUsage]

    @classmethod
    def capture(cls, allocation: AllocationResult, state: DeviceState) -> "ReleasedAllocation":
        """Note the state after the release."""
        pools = dict.fromkeys(device.pool_id for device in _devices(allocation))
        return cls(allocation, {pool: state.usage(pool) for pool in pools})

    def can_restore(self, state: DeviceState) -> bool:
        """Tell whether the allocation may be held again."""
        return all(
            _not_more_consumed(state.usage(pool).counters, usage.counters)
            for pool, usage in self.usages.items()
        ) and all(
            _not_more_allocated(state.device_allocation(device), self._usage_at_release(device))
            for device in _devices(self.allocation)
        )

    def _usage_at_release(self, device: DeviceID) -> DeviceAllocation:
        return self.usages[device.pool_id].device(device.device)


def _devices(allocation: AllocationResult) -> list[DeviceID]:
    results = allocation.devices.results
    return [DeviceID(each.driver, each.pool, each.device) for each in results]


def _not_more_allocated(now: DeviceAllocation, before: DeviceAllocation) -> bool:
    return now.exclusive_holders <= before.exclusive_holders and _not_more_consumed(
        dict(now.consumed), dict(before.consumed)
    )


def _not_more_consumed(now: Mapping[Key, int], before: Mapping[Key, int]) -> bool:
    return all(amount <= before.get(key, 0) for key, amount in now.items())
