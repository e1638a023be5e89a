"""The charge of each pod to its queue, computed once per shape where that is enough, and the sums.

A claim that pods share is charged to one of them: to the first for which it is reserved, else to
the first that has a node, before that to the first that asks, a gated one last. It stays charged to
that pod until the pod ends; then one of those that remain is charged. O(claims of the pod).

While that pod waits, another one may start first. The claim then counts for the queue of that other
pod as well, which could otherwise exceed its limit. The same applies if the charged pod belongs to
another queue: this queue is charged with the claim once the other's pods have ended
(``Member.relies_on``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.grouping.composite_groups import Key
from kai_py.snapshot.accounting import Accounting, total
from kai_py.snapshot.dependencies import Dependencies
from kai_py.snapshot.gangs import Charge, Gang, JoinedClaim
from kai_py.snapshot.pod_demand import PodDemand
from kai_py.snapshot.settings import DeviceRegistry
from kai_py.snapshot.tables.gpu_nodes import PLUGIN_GPUS, GpuMemory

if TYPE_CHECKING:
    from kai_py.snapshot.shape import Shape

ClaimKey = tuple[str, ...]


class Standing(IntEnum):
    """What a pod is to its queue; of pods that share a claim, a lower one is charged."""

    PLACED = 0
    WAITS = 1
    REQUESTS_NOTHING = 2
    """It is gated, or terminates without ever having had a node."""


class ChargedPods:
    """The pods to which shared claims are charged."""

    def __init__(self) -> None:
        """Start empty."""
        self._charged: dict[ClaimKey, str] = {}
        self._claims_of: dict[str, dict[ClaimKey, None]] = {}
        self._to_recharge: dict[str, None] = {}

    def is_charged(self, claim: ClaimKey, pod: str, standing: Callable[[str], Standing]) -> bool:
        """Whether ``claim`` is charged to ``pod`` from now on."""
        before = self._charged.get(claim)
        if before is None or standing(pod) < standing(before):
            self.charge(claim, pod)
        return self._charged[claim] == pod

    def charge(self, claim: ClaimKey, pod: str) -> None:
        """Charge ``claim`` to ``pod`` from now on."""
        before = self._charged.get(claim)
        if before == pod:
            return
        if before is not None:
            del self._claims_of[before][claim]
            self._to_recharge[before] = None
        self._charged[claim] = pod
        self._claims_of.setdefault(pod, {})[claim] = None

    def charged_with(self, claim: ClaimKey) -> str | None:
        """The pod that is charged with a claim."""
        return self._charged.get(claim)

    def remove(self, pod: str, users: Callable[[ClaimKey], Iterable[str]]) -> Iterator[str]:
        """Charge others with the claims of a pod that has ended; ``users``: in order of preference.

        Returns the pods to derive, lazily: the first of them that really uses a claim is charged
        with it, so that no more of its users are named.
        """
        claims = tuple(self._claims_of.pop(pod, ()))
        for claim in claims:
            del self._charged[claim]
        return (uid for claim in claims for uid in users(claim) if claim not in self._charged)

    def offer(self, pods: Iterable[str]) -> None:
        """Have pods derived again, as they come before one that is charged with their claim."""
        self._to_recharge.update(dict.fromkeys(pods))

    def take_to_recharge(self) -> tuple[str, ...]:
        """The pods whose claims other pods were or may be charged with since the last call."""
        pods, self._to_recharge = tuple(self._to_recharge), {}
        return pods


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
        """``pods``: all by uid; ``is_unplaced``: whether a pod, by uid, has no node."""
        self._devices = devices
        self._pods = pods
        self._dependencies = dependencies
        self._gpu_memory = gpu_memory
        self._is_unplaced = is_unplaced
        self._by_shape: WeakKeyDictionary[Shape, dict[str, float]] = WeakKeyDictionary()
        self._charged_pods = ChargedPods()

    def charge_of(self, pod: Pod, demand: PodDemand, node: str) -> dict[str, float]:
        """The charge of the pod on ``node``, or without one, by quota resource."""
        replicas = self._gpu_memory.replicas(demand.shape.requests, node)
        by_shape = demand.charged_by_shape and replicas == 1.0
        known = self._by_shape.get(demand.shape) if by_shape else None
        if known is not None:
            return known
        cost = charge(
            demand,
            self._devices.accounting,
            gpu_memory=self._gpu_memory.on_node(node),
            is_charged=lambda claim: self._is_charged(pod, claim),
            replicas=replicas,
        )
        if by_shape:
            self._by_shape[demand.shape] = cost
        return cost

    def remove(self, uid: str) -> Iterator[str]:
        """The pod has ended; lazily, the pods to derive, to which its claims may be charged."""
        return self._charged_pods.remove(uid, self._claim_users)

    def take_to_recharge(self) -> tuple[str, ...]:
        """The pods to derive again: others were charged with their claims since the last call."""
        return self._charged_pods.take_to_recharge()

    def relies_on(self, pod: Pod, demand: PodDemand) -> tuple[JoinedClaim, ...]:
        """The claims of ``pod`` that other pods are charged with."""
        if demand.charged_by_shape:
            return ()
        found: list[JoinedClaim] = []
        for claim in [use.claim for use in demand.claims.uses if use.claim is not None]:
            reserved_for = self._reserved_for(claim)
            other = reserved_for or self._charged_pods.charged_with(_key(claim))
            if other is not None and other != pod.metadata.uid:
                waits = reserved_for is None and self._is_unplaced(other)
                charged = self._devices.accounting.claim(claim)
                found.append(JoinedClaim(claim.metadata.uid, other, charged, waits))
        return tuple(found)

    def _is_charged(self, pod: Pod, claim: ResourceClaim) -> bool:
        reserved_for = self._reserved_for(claim)
        if reserved_for is not None:
            if reserved_for == pod.metadata.uid:
                self._charged_pods.charge(_key(claim), reserved_for)
            return reserved_for == pod.metadata.uid
        key, uid = _key(claim), pod.metadata.uid
        is_charged = self._charged_pods.is_charged(key, uid, self._standing)
        if is_charged and self._standing(uid) is Standing.REQUESTS_NOTHING:
            users = self._dependencies.dependents((key,))
            self._charged_pods.offer(
                each for each in users if self._standing(each) < Standing.REQUESTS_NOTHING
            )
        return is_charged

    def _standing(self, uid: str) -> Standing:
        if not self._is_unplaced(uid):
            return Standing.PLACED
        pod = self._pods.get(uid)
        requests = pod and not pod.spec.scheduling_gates and not pod.metadata.deletion_timestamp
        return Standing.WAITS if requests else Standing.REQUESTS_NOTHING

    def _reserved_for(self, claim: ResourceClaim) -> str | None:
        """The first pod, by uid, that has not ended of those for which a claim is reserved."""
        known = ((each.uid, self._pods.get(each.uid)) for each in claim.status.reserved_for)
        return next((uid for uid, pod in known if pod and not is_finished(pod)), None)

    def _claim_users(self, claim: Key) -> list[str]:
        return sorted(self._dependencies.dependents((claim,)), key=self._standing)


def _key(claim: ResourceClaim) -> ClaimKey:
    return "resourceclaims", claim.metadata.namespace, claim.metadata.name


def charge(
    demand: PodDemand,
    accounting: Accounting,
    *,
    gpu_memory: float,
    is_charged: Callable[[ResourceClaim], bool],
    replicas: float = 1.0,
) -> dict[str, float]:
    """What the pod costs its queue where a GPU has ``gpu_memory`` MiB, by quota resource.

    ``is_charged``: whether this pod, of those that share a claim, is charged with it. ``replicas``:
    how many pods a device plugin gives each of its GPUs.
    """
    requests = demand.shape.requests
    costs = [accounting.requests(_with_replicas(requests, replicas) if replicas > 1 else requests)]
    if demand.charged_by_shape:
        return costs[0]
    costs.append(accounting.requests(demand.unrequested_mig))
    costs.append(accounting.extended(demand.shape.extended.requests))
    if demand.shape.gpu_share is not None:
        costs.append(accounting.gpu_share(demand.shape.gpu_share, gpu_memory))
    for use in demand.claims.uses:
        if use.claim is None:
            costs.append(accounting.claim_spec(use.spec))
        elif is_charged(use.claim):
            costs.append(accounting.claim(use.claim))
    return total(costs)


def _with_replicas(requests: Mapping[str, float], replicas: float) -> dict[str, float]:
    """``requests`` with replicas of GPUs as the parts of GPUs that they are."""
    gpus = sum(requests.get(name, 0.0) for name in PLUGIN_GPUS) / replicas
    others = {name: amount for name, amount in requests.items() if name not in PLUGIN_GPUS}
    return others | {GPU_RESOURCE: gpus}


class _Sum(Struct):
    """An amount, and in how many charges it occurs."""

    amount: float = 0.0
    charges: int = 0


class _Account(Struct):
    """What one queue is charged by resource, and in how many charges in all."""

    charges: int = 0
    sums: dict[str, _Sum] = field(default_factory=dict)


class QueueSums:
    """Sums of charges by queue and quota resource; O(resources of the charge) for each that comes.

    Names of queues and resources are chosen by tenants, so entries are counted: with the last
    charge goes the entry, and what rounding left in it.
    """

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
