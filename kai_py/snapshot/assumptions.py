"""What is being written but not yet seen: bindings, allocations, evictions, promised room.

A cycle must count on what the last one decided, or it would decide it again. Each assumption ends
when the watch shows the outcome, or when commit takes it back.

Which pods should have been gone long ago?

A pod's ``deletionTimestamp`` is when its grace ends. One that is still there ``OVERDUE_SECONDS``
later (a finalizer nobody removes, a node that is gone) holds its room, and nobody counts on it.
Cost of a look: O(pods that leave).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.snapshot.snapshot import NominatedNode

SUCCEEDED = "Succeeded"
FINISHED_PHASES = (SUCCEEDED, "Failed")


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where a pod is: as the API has it, and as what is being written will make it.

    ``promised`` names the node whose room is kept for it; "" in both names means none. ``gpus``:
    the shared GPUs that it is being given a part of. ``overdue``: it should have left long ago.
    """

    node: str
    nominated: str = ""
    terminating: bool = False
    gpus: tuple[SharedGpu, ...] = ()
    stuck_terminating: bool = False


class Assumptions:
    """Assumptions by pod uid, allocations by claim uid."""

    def __init__(self, nomination_seconds: float) -> None:
        """``hold_seconds``: how long promised room is kept."""
        self._nomination_seconds = nomination_seconds
        self._nodes: dict[str, str] = {}
        self._gpus: dict[str, tuple[SharedGpu, ...]] = {}
        self._new_claims: dict[str, ResourceClaim] = {}
        self._claims: dict[str, tuple[str, AllocationResult]] = {}
        self._evicted: dict[str, None] = {}
        self._nominations: dict[str, NominatedNode] = {}
        self._backoff_until: dict[str, float] = {}

    def bind(
        self,
        pod_uid: str,
        node: str,
        claims: Mapping[str, AllocationResult],
        gpus: tuple[SharedGpu, ...],
        new_claim: ResourceClaim | None = None,
    ) -> None:
        """The pod goes to ``node`` with these new allocations, by claim uid, and shared GPUs.

        ``making``: a claim that does not exist yet.
        """
        self._nodes[pod_uid] = node
        if new_claim is not None:
            self._new_claims[pod_uid] = new_claim
        self._gpus[pod_uid] = gpus
        self._nominations.pop(pod_uid, None)
        self._claims.update((uid, (pod_uid, found)) for uid, found in claims.items())

    def evict(self, pod_uid: str) -> None:
        """The pod is being evicted."""
        self._evicted[pod_uid] = None

    def cancel_eviction(self, pod_uid: str) -> bool:
        """The pod stays after all; whether it was assumed to leave."""
        return self._evicted.pop(pod_uid, pod_uid) is None

    def nominate(self, pod_uid: str, node: str, now: float) -> None:
        """Keep room on ``node``; the time runs from the first promise of that node."""
        known = self._nominations.get(pod_uid)
        if known is None or known.node != node:
            self._nominations[pod_uid] = NominatedNode(node, now + self._nomination_seconds)

    def back_off(self, gang: str, until: float) -> None:
        """Carrying out a decision about the gang failed; it gets no room before ``until``."""
        self._backoff_until[gang] = until

    def in_backoff(self, now: float) -> frozenset[str]:
        """The gangs that get no room at ``now``."""
        for gang, until in list(self._backoff_until.items()):
            if until <= now:
                del self._backoff_until[gang]
        return frozenset(self._backoff_until)

    def observe_pod(self, pod: Pod) -> None:
        """Drop what the watch shows now; take over a promise made before a restart."""
        uid = pod.metadata.uid
        if pod.spec.node_name or pod.status.phase in FINISHED_PHASES:
            self._nodes.pop(uid, None)
            self._gpus.pop(uid, None)
            self._nominations.pop(uid, None)
        elif pod.status.nominated_node_name and uid not in self._nominations:
            self._nominations[uid] = NominatedNode(pod.status.nominated_node_name, 0.0)

    def forget(self, pod_uid: str) -> tuple[str, ...]:
        """Drop the assumed binding; returns the claims whose assumed allocation went with it."""
        self._nodes.pop(pod_uid, None)
        self._gpus.pop(pod_uid, None)
        self._new_claims.pop(pod_uid, None)
        claims = tuple(uid for uid, (pod, _) in self._claims.items() if pod == pod_uid)
        for uid in claims:
            del self._claims[uid]
        return claims

    def remove_pod(self, pod_uid: str) -> tuple[str, ...]:
        """The pod is gone; returns claims as ``forget`` does."""
        self._nominations.pop(pod_uid, None)
        self._evicted.pop(pod_uid, None)
        return self.forget(pod_uid)

    def confirm_claim(self, claim_uid: str) -> None:
        """The API has an allocation for the claim."""
        self._claims.pop(claim_uid, None)

    def placement(self, pod: Pod) -> PodPlacement:
        """Where ``pod`` is; it leaves when it is terminating or being evicted."""
        uid = pod.metadata.uid
        hold = self._nominations.get(uid)
        return PodPlacement(
            node=pod.spec.node_name or self._nodes.get(uid, ""),
            nominated=hold.node if hold else "",
            terminating=pod.metadata.deletion_timestamp is not None or uid in self._evicted,
            gpus=self._gpus.get(uid, ()),
        )

    def new_claim(self, pod_uid: str) -> ResourceClaim | None:
        """The claim that is being made for the pod."""
        return self._new_claims.get(pod_uid)

    def allocation(self, claim_uid: str) -> AllocationResult | None:
        """The allocation that is being written."""
        known = self._claims.get(claim_uid)
        return None if known is None else known[1]

    def nominations(self, now: float) -> Mapping[str, NominatedNode]:
        """The promises that stand at ``now``; those from before a restart begin to run."""
        for uid, hold in list(self._nominations.items()):
            if hold.expires == 0.0:
                self._nominations[uid] = NominatedNode(hold.node, now + self._nomination_seconds)
            elif hold.expires <= now:
                del self._nominations[uid]
        return dict(self._nominations)


STUCK_AFTER_SECONDS = 120.0


class StuckTerminations:
    """Leaving pods by uid, and those of them that are overdue."""

    def __init__(self) -> None:
        """Start empty."""
        self._due: dict[str, float] = {}
        self._stuck: dict[str, None] = {}

    def set_pod(self, pod: Pod) -> None:
        """Take in a pod as it is now."""
        uid, leaves = pod.metadata.uid, pod.metadata.deletion_timestamp
        if leaves is not None and uid not in self._stuck:
            self._due[uid] = leaves.timestamp() + STUCK_AFTER_SECONDS

    def remove_pod(self, uid: str) -> None:
        """The pod is gone."""
        self._due.pop(uid, None)
        self._stuck.pop(uid, None)

    def newly_stuck(self, now: float) -> tuple[str, ...]:
        """The pods that have become overdue by ``now`` since the last look."""
        found = tuple(uid for uid, due in self._due.items() if due <= now)
        for uid in found:
            del self._due[uid]
            self._stuck[uid] = None
        return found

    def __contains__(self, uid: str) -> bool:
        """Whether the pod was noticed to be overdue."""
        return uid in self._stuck
