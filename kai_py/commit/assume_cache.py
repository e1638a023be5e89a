"""The assume cache: what commit tells the snapshot builder before the watch shows it."""

from typing import Protocol

from kai_py.plan.plan import Placement
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.object_cache import DeviceKey


class AssumeCache(Protocol):
    """The operations on the snapshot builder that commit needs."""

    def assume(self, binding: AssumedBinding) -> None:
        """Count a pod as bound and its claims and GPU shares as allocated from now on."""

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


def assumed_binding(placement: Placement) -> AssumedBinding:
    """What is to be assumed while a placement is carried out."""
    new_claim = placement.create_claim
    return AssumedBinding(
        pod_uid=placement.pod.uid,
        node=placement.node,
        claims={new.claim.uid: new.allocation for new in placement.allocate},
        gpus=placement.gpus,
        new_claim=new_claim.claim if new_claim is not None else None,
        volumes=tuple(volume for _, volume in placement.volumes),
        node_amounts=placement.node_amounts,
    )
