"""Which of the pods that share a claim pays for it, so that it is paid for once?

The first that has a node, before that the first that asks; it goes on paying until it leaves.
Whoever paid before has to be charged anew, and so has one of those who stay when a payer leaves.
O(1) for each pod.
"""

from collections.abc import Callable, Iterable

ClaimKey = tuple[str, ...]


class ChargedPods:
    """The payers of shared claims that are reserved for none of the pods themselves."""

    def __init__(self) -> None:
        """Nobody pays yet."""
        self._charged: dict[ClaimKey, str] = {}
        self._claims_of: dict[str, dict[ClaimKey, None]] = {}
        self._to_recharge: dict[str, None] = {}

    def is_charged(self, claim: ClaimKey, pod: str, is_unplaced: Callable[[str], bool]) -> bool:
        """Whether ``pod`` pays for ``claim`` from now on; ``waits``: a pod has no node."""
        before = self._charged.get(claim)
        if before == pod:
            return True
        if before is not None:
            if is_unplaced(pod) or not is_unplaced(before):
                return False
            del self._claims_of[before][claim]
            self._to_recharge[before] = None
        self._charged[claim] = pod
        self._claims_of.setdefault(pod, {})[claim] = None
        return True

    def remove(
        self, pod: str, users: Callable[[ClaimKey], Iterable[str]], charge: Callable[[str], None]
    ) -> None:
        """Let others pay for what a pod that is gone has paid for.

        ``sharers``: the pods that use a claim, those to ask first in front; ``charge`` asks one.
        """
        claims = tuple(self._claims_of.pop(pod, ()))
        for claim in claims:
            del self._charged[claim]
        for claim in claims:
            for uid in users(claim):
                if claim not in self._charged:
                    charge(uid)

    def take_to_recharge(self) -> tuple[str, ...]:
        """Pods to be charged anew since this was last asked."""
        relieved, self._to_recharge = tuple(self._to_recharge), {}
        return relieved
