"""What does each pod cost its queue?

Kept once per shape where that is enough. A claim that pods share is paid for by one of them: the
first for which it is reserved, else as ``payers`` says. O(claims of the pod).

Which of the pods that share a claim pays for it, so that it is paid for once?

The first that has a node, before that the first that asks; it goes on paying until it leaves.
Whoever paid before has to be charged anew, and so has one of those who stay when a payer leaves.
O(1) for each pod.
"""

from collections.abc import Callable, Iterable, Mapping

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.snapshot.dependencies import Dependencies
from kai_py.snapshot.derivation import GpuMemory, PodDemand, charge
from kai_py.snapshot.object_cache import Key
from kai_py.snapshot.settings import DeviceRegistry

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
