"""Sums of charges by queue and quota resource, without what is no longer charged.

Names of queues and resources are chosen by tenants, so entries are counted: with the last charge
goes the entry, and what rounding left in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Account:
    """What one queue is charged, in how many charges, and in how many each resource occurs."""

    total: int = 0
    amounts: dict[str, float] = field(default_factory=dict)
    charges: dict[str, int] = field(default_factory=dict)


class QueueSums:
    """Charges that come and go; O(resources of the charge) each."""

    def __init__(self) -> None:
        """Nothing is charged."""
        self._accounts: dict[str, _Account] = {}

    def add(self, queue: str, charge: Mapping[str, float]) -> None:
        """Charge the queue, be it nothing."""
        account = self._accounts.setdefault(queue, _Account())
        account.total += 1
        for resource, amount in charge.items():
            account.amounts[resource] = account.amounts.get(resource, 0.0) + amount
            account.charges[resource] = account.charges.get(resource, 0) + 1

    def remove(self, queue: str, charge: Mapping[str, float]) -> None:
        """Take back a charge that was added."""
        account = self._accounts[queue]
        account.total -= 1
        for resource, amount in charge.items():
            if account.charges[resource] == 1:
                del account.charges[resource], account.amounts[resource]
            else:
                account.charges[resource] -= 1
                account.amounts[resource] -= amount
        if not account.total:
            del self._accounts[queue]

    def snapshot(self) -> Mapping[str, Mapping[str, float]]:
        """The sums as they are now, by queue; a copy."""
        return {queue: dict(account.amounts) for queue, account in self._accounts.items()}
