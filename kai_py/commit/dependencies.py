"""Dependencies that the parts of the executor share: the client, views of the cluster, settings.

Objects of the mirror are found by the references that decisions carry.
"""

from collections.abc import Callable

from msgspec import Struct

from kai_py.api.records.core import Pod
from kai_py.api.records.node import Node
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess, CallLimit
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.events import queue_reference
from kai_py.commit.gpu_reservations import SharedGpuGroups
from kai_py.commit.settings import CommitSettings
from kai_py.grouping.gang import Owner
from kai_py.observe.failures import Failures
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Placement
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.snapshot.pod_claims import pod_claims
from kai_py.snapshot.tables.ended_pods import ReleasableClaims
from kai_py.watch.client import Client
from kai_py.watch.freshness import Freshness
from kai_py.watch.kinds import NODES, PODS, QUEUES, RESOURCE_CLAIMS, WatchedQueue
from kai_py.watch.mirror import Mirror


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


class ExecutorDependencies(Struct, frozen=True):
    """Inputs of an executor.

    ``wake`` requests a cycle in that many seconds; ``identity`` names this process in events;
    ``failures`` contains exceptions about single objects.
    """

    client: Client
    mirror: Mirror
    freshness: Freshness
    assume_cache: SnapshotBuilder
    claiming_groups: ReleasableClaims
    holders: DeviceHolders
    gpu_groups: SharedGpuGroups
    metrics: Metrics
    settings: CommitSettings
    identity: str
    wake: Callable[[float], None]
    failures: Failures

    @property
    def is_fresh(self) -> bool:
        """Whether no view is silent or behind, so that what it lacks is really gone."""
        return not self.freshness.silent() and not self.freshness.behind()

    def access(self, concurrency: int) -> ApiAccess:
        """Access to the API server with at most ``concurrency`` calls about one namespace."""
        return ApiAccess(
            client=self.client,
            pods=PODS.at(),
            served_claims=lambda: self.mirror.served(RESOURCE_CLAIMS) or RESOURCE_CLAIMS.at(),
            limiter=CallLimit(concurrency),
            retry=self.settings.retry,
            settle_pause=self.settings.settle_pause,
        )

    def count_repair(self, outcome: str) -> None:
        """Count the end of a repair in the metrics."""
        self.metrics.repairs.labels(outcome).inc()


class Lookups(Struct, frozen=True):
    """Each is None, or empty, where the mirror has no such object or one of another uid."""

    mirror: Mirror

    def node(self, name: str) -> Node | None:
        """A node."""
        return self.mirror.objects(NODES).get(("", name))

    def pod(self, ref: PodRef) -> Pod | None:
        """A pod."""
        pod = self.mirror.objects(PODS).get((ref.namespace, ref.name))
        return pod if pod is not None and pod.metadata.uid == ref.uid else None

    def claim(self, ref: ClaimRef) -> ResourceClaim | None:
        """A claim."""
        claim = self.mirror.objects(RESOURCE_CLAIMS).get((ref.namespace, ref.name))
        return claim if claim is not None and claim.metadata.uid == ref.uid else None

    def unallocated_claims(self, ref: PodRef) -> tuple[ClaimRef, ...]:
        """The claims of a pod that are not allocated."""
        pod, claims = self.pod(ref), self.mirror.objects(RESOURCE_CLAIMS)
        if pod is None:
            return ()
        named = pod_claims(pod, lambda namespace, name: claims.get((namespace, name))).references
        found = ((claim, self.claim(claim)) for claim in named)
        return tuple(ref for ref, claim in found if claim and claim.status.allocation is None)

    def queue(self, name: str) -> WatchedQueue | None:
        """A queue."""
        return self.mirror.objects(QUEUES).get(("", name))

    def queue_reference(self, name: str) -> Owner | None:
        """A queue, as events refer to it."""
        queue = self.queue(name)
        return queue_reference(queue.metadata) if queue is not None else None
