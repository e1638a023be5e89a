"""Which of the pods that share a claim pays for it, so that it is paid for once?

The first that has a node, before that the first that asks; it goes on paying until it leaves.
Whoever paid before has to be charged anew, and so has one of those who stay when a payer leaves.
O(1) for each pod.
"""

from collections.abc import Callable, Iterable

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

    def leave(
        self, pod: str, sharers: Callable[[ClaimKey], Iterable[str]], charge: Callable[[str], None]
    ) -> None:
        """Let others pay for what a pod that is gone has paid for.

        ``sharers``: the pods that use a claim, those to ask first in front; ``charge`` asks one.
        """
        claims = tuple(self._paid.pop(pod, ()))
        for claim in claims:
            del self._payers[claim]
        for claim in claims:
            for uid in sharers(claim):
                if claim not in self._payers:
                    charge(uid)

    def relieved(self) -> tuple[str, ...]:
        """Pods to be charged anew since this was last asked."""
        relieved, self._relieved = tuple(self._relieved), {}
        return relieved
