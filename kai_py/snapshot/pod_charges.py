"""What does each pod cost its queue?

Kept once per shape where that is enough. A claim that pods share is paid for by one of them: the
first for which it is reserved, else as ``payers`` says. O(claims of the pod).
"""

from collections.abc import Callable, Mapping

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.dependencies import Dependencies
from kai_py.snapshot.derivation import PodDemand, charge
from kai_py.snapshot.gpu_holdings import GpuMemory
from kai_py.snapshot.object_cache import Key
from kai_py.snapshot.payers import ChargedPods
from kai_py.snapshot.settings import DeviceRegistry


class PodCharges:
    """The costs of pods, by shape or one by one."""

    def __init__(
        self,
        devices: DeviceRegistry,
        pods: Mapping[str, Pod],
        dependencies: Dependencies,
        gpu_memory: GpuMemory,
        is_unplaced: Callable[[str], bool],
    ) -> None:
        """``pods``: all there are, by uid; ``waits``: whether a pod, by uid, has no node."""
        self._devices = devices
        self._pods = pods
        self._dependencies = dependencies
        self._gpu_memory = gpu_memory
        self._is_unplaced = is_unplaced
        self._by_shape: dict[int, dict[str, float]] = {}
        self._charged_pods = ChargedPods()

    def charge_of(self, pod: Pod, demand: PodDemand, node: str) -> dict[str, float]:
        """What the pod costs on ``node``, or without one."""
        number = demand.shape.number
        known = self._by_shape.get(number) if demand.charged_by_shape else None
        if known is not None:
            return known
        cost = charge(
            demand,
            self._devices.accounting,
            gpu_memory=self._gpu_memory.on_node(node),
            is_charged=lambda claim: self._is_charged(pod, claim),
        )
        if demand.charged_by_shape:
            self._by_shape[number] = cost
        return cost

    def remove(self, uid: str, recharge: Callable[[str], None]) -> None:
        """A pod is gone: others, by uid, pay for what it has paid for."""
        self._charged_pods.remove(uid, self._claim_users, recharge)

    def take_to_recharge(self) -> tuple[str, ...]:
        """Pods to be charged anew since this was last asked."""
        return self._charged_pods.take_to_recharge()

    def _is_charged(self, pod: Pod, claim: ResourceClaim) -> bool:
        for consumer in claim.status.reserved_for:
            if consumer.uid in self._pods:
                return consumer.uid == pod.metadata.uid
        key = ("resourceclaims", claim.metadata.namespace, claim.metadata.name)
        return self._charged_pods.is_charged(key, pod.metadata.uid, self._is_unplaced)

    def _claim_users(self, claim: Key) -> list[str]:
        return sorted(self._dependencies.dependents((claim,)), key=self._is_unplaced)
