"""Which of the pods that share a claim pays for it, so that it is paid for once?

The first that has a node, before that the first that asks; it goes on paying until it leaves.
Whoever paid before has to be charged anew, and so has one of those who stay when a payer leaves.
O(1) for each pod.
"""

from collections.abc import Callable

ClaimKey = tuple[str, ...]


class ClaimPayers:
    """The payers of shared claims that are reserved for none of the pods themselves."""

    def __init__(self) -> None:
        """Nobody pays yet."""
        self._payers: dict[ClaimKey, str] = {}
        self._paid: dict[str, dict[ClaimKey, None]] = {}
        self._relieved: dict[str, None] = {}

    def pays(self, claim: ClaimKey, pod: str, waits: Callable[[str], bool]) -> bool:
        """Whether ``pod`` pays for ``claim`` from now on; ``waits``: a pod has no node."""
        before = self._payers.get(claim)
        if before == pod:
            return True
        if before is not None:
            if waits(pod) or not waits(before):
                return False
            del self._paid[before][claim]
            self._relieved[before] = None
        self._payers[claim] = pod
        self._paid.setdefault(pod, {})[claim] = None
        return True

    def is_paid(self, claim: ClaimKey) -> bool:
        """Whether anybody pays."""
        return claim in self._payers

    def leave(self, pod: str) -> tuple[ClaimKey, ...]:
        """The pod is gone; gives the claims that nobody pays for now."""
        claims = tuple(self._paid.pop(pod, ()))
        for claim in claims:
            del self._payers[claim]
        return claims

    def relieved(self) -> tuple[str, ...]:
        """Pods to be charged anew since this was last asked."""
        relieved, self._relieved = tuple(self._relieved), {}
        return relieved
