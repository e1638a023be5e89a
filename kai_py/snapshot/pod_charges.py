"""What does each pod cost its queue?

Kept once per shape where that is enough. A claim that pods share is paid for by one of them: the
first for which it is reserved, else as ``payers`` says. O(claims of the pod).
"""

from collections.abc import Callable, Mapping

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.dependencies import Dependencies
from kai_py.snapshot.derivation import Demand, charge
from kai_py.snapshot.gpu_holdings import CardMemory
from kai_py.snapshot.object_cache import Key
from kai_py.snapshot.payers import ClaimPayers
from kai_py.snapshot.settings import DeviceBook


class PodCharges:
    """The costs of pods, by shape or one by one."""

    def __init__(
        self,
        devices: DeviceBook,
        pods: Mapping[str, Pod],
        dependencies: Dependencies,
        card_memory: CardMemory,
        waits: Callable[[str], bool],
    ) -> None:
        """``pods``: all there are, by uid; ``waits``: whether a pod, by uid, has no node."""
        self._devices = devices
        self._pods = pods
        self._dependencies = dependencies
        self._card_memory = card_memory
        self._waits = waits
        self._by_shape: dict[int, dict[str, float]] = {}
        self._payers = ClaimPayers()

    def of(self, pod: Pod, asks: Demand, node: str) -> dict[str, float]:
        """What the pod costs on ``node``, or without one."""
        number = asks.shape.number
        known = self._by_shape.get(number) if asks.costs_by_shape else None
        if known is not None:
            return known
        cost = charge(
            asks,
            self._devices.accounting,
            card_memory=self._card_memory.at(node),
            pays_for=lambda claim: self._pays_for(pod, claim),
        )
        if asks.costs_by_shape:
            self._by_shape[number] = cost
        return cost

    def leave(self, uid: str, charge_again: Callable[[str], None]) -> None:
        """A pod is gone: others, by uid, pay for what it has paid for."""
        self._payers.leave(uid, self._sharers, charge_again)

    def relieved(self) -> tuple[str, ...]:
        """Pods to be charged anew since this was last asked."""
        return self._payers.relieved()

    def _pays_for(self, pod: Pod, claim: ResourceClaim) -> bool:
        for consumer in claim.status.reserved_for:
            if consumer.uid in self._pods:
                return consumer.uid == pod.metadata.uid
        key = ("resourceclaims", claim.metadata.namespace, claim.metadata.name)
        return self._payers.pays(key, pod.metadata.uid, self._waits)

    def _sharers(self, claim: Key) -> list[str]:
        return sorted(self._dependencies.of((claim,)), key=self._waits)
