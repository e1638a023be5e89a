"""Can a claim that gave up its devices have them back?

It can while nobody took any of them, nor of the counters they draw on, since they were free.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from kai_py.api.records.resource import AllocationResult
from kai_py.dra.holdings import DeviceState, Holding, PoolUsage
from kai_py.dra.identity import DeviceID, PoolID

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Freed:
    """An allocation that was released, and what was held of its pools right after that."""

    allocation: AllocationResult
    usages: Mapping[PoolID, PoolUsage]

    @classmethod
    def after(cls, allocation: AllocationResult, state: DeviceState) -> "Freed":
        """Note the state after the release."""
        pools = dict.fromkeys(device.pool_id for device in _devices(allocation))
        return cls(allocation, {pool: state.usage(pool) for pool in pools})

    def still_free(self, state: DeviceState) -> bool:
        """Tell whether the allocation may be held again."""
        return all(
            _no_less_free(state.usage(pool).counters, usage.counters)
            for pool, usage in self.usages.items()
        ) and all(
            _no_more_held(state.holding(device), self._before(device))
            for device in _devices(self.allocation)
        )

    def _before(self, device: DeviceID) -> Holding:
        return self.usages[device.pool_id].holding(device.device)


def _devices(allocation: AllocationResult) -> list[DeviceID]:
    results = allocation.devices.results
    return [DeviceID(each.driver, each.pool, each.device) for each in results]


def _no_more_held(now: Holding, before: Holding) -> bool:
    return now.whole <= before.whole and _no_less_free(dict(now.consumed), dict(before.consumed))


def _no_less_free(now: Mapping[Key, int], before: Mapping[Key, int]) -> bool:
    return all(amount <= before.get(key, 0) for key, amount in now.items())
