"""The assume cache: what commit tells the snapshot builder before the watch shows it."""

from collections.abc import Mapping
from typing import Protocol

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.references import PodRef
from kai_py.snapshot.object_cache import DeviceKey


class AssumeCache(Protocol):
    """The operations on the snapshot builder that commit needs."""

    def assume(
        self,
        pod: PodRef,
        node: str,
        claims: Mapping[str, AllocationResult] | None = None,
        gpus: tuple[SharedGpu, ...] = (),
        new_claim: ResourceClaim | None = None,
        *,
        volumes: tuple[str, ...] = (),
        node_amounts: Mapping[str, float] | None = None,
    ) -> None:
        """Count the pod as bound and its claims and GPU shares as allocated from now on.

        ``new_claim``: a claim that does not exist yet, as it will be. ``volumes``: the volumes
        chosen for its volume claims. ``node_amounts``: what its claims take of the node beside its
        requests.
        """

    def forget(self, pod_uid: str) -> None:
        """Undo ``assume``."""

    def assumed_pods(self) -> frozenset[str]:
        """Uids of the pods that count as bound, while the watch does not show it."""

    def back_off(self, gang: str, until: float, reason: str) -> None:
        """Do not place the gang before ``until``, seconds since the epoch; ``reason`` is shown."""

    def avoid_device(self, device: DeviceKey, reason: str, seconds: float) -> None:
        """Do not allocate a device for some seconds; ``reason`` is shown to users."""

    def expect_eviction(self, pod_uid: str) -> None:
        """Count a pod as terminating: its eviction is being written."""

    def cancel_eviction(self, pod_uid: str) -> None:
        """Undo ``expect_eviction``: the eviction was refused."""

    def nominate(self, pod_uid: str, node: str, now: float) -> None:
        """Reserve capacity for a nominated pod; ``now`` in seconds since the epoch."""
