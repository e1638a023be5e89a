"""Sums of charges by queue and quota resource, without what is no longer charged.

Names of queues and resources are chosen by tenants, so entries are counted: with the last charge
goes the entry, and what rounding left in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.snapshot.gangs import Charge, Gang


@dataclass(slots=True)
class _Sum:
    """An amount, and in how many charges it occurs."""

    amount: float = 0.0
    charges: int = 0


@dataclass(slots=True)
class _Account:
    """What one queue is charged by resource, and in how many charges in all."""

    charges: int = 0
    sums: dict[str, _Sum] = field(default_factory=dict)


class QueueSums:
    """Charges that come and go; O(resources of the charge) each."""

    def __init__(self) -> None:
        """Nothing is charged."""
        self._accounts: dict[str, _Account] = {}

    def add(self, queue: str, charge: Mapping[str, float]) -> None:
        """Charge the queue, be it nothing."""
        account = self._accounts.get(queue)
        if account is None:
            account = self._accounts[queue] = _Account()
        account.charges += 1
        sums = account.sums
        for resource, amount in charge.items():
            known = sums.get(resource)
            if known is None:
                known = sums[resource] = _Sum()
            known.amount += amount
            known.charges += 1

    def remove(self, queue: str, charge: Mapping[str, float]) -> None:
        """Take back a charge that was added."""
        account = self._accounts[queue]
        account.charges -= 1
        for resource, amount in charge.items():
            known = account.sums[resource]
            if known.charges == 1:
                del account.sums[resource]
            else:
                known.charges -= 1
                known.amount -= amount
        if not account.charges:
            del self._accounts[queue]

    def snapshot(self) -> Mapping[str, Mapping[str, float]]:
        """The sums as they are now, by queue; a copy."""
        return {
            queue: {resource: known.amount for resource, known in account.sums.items()}
            for queue, account in self._accounts.items()
        }


QueueCharge = tuple[str, Charge]
"""A queue, and what something costs it."""


def charges_of(gang: Gang | None) -> tuple[QueueCharge | None, ...]:
    """What the gang has allocated, requests, has as non-preemptible, and is about to leave."""
    if gang is None:
        return None, None, None, None
    charges = gang.allocated, gang.requested, gang.non_preemptible, gang.leaving
    return tuple((gang.queue, charge) for charge in charges)
