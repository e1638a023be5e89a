"""Objects of the mirror, by the references that decisions carry."""

from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.api.records.node import Node
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.events import queue_reference
from kai_py.grouping.gang import Owner
from kai_py.snapshot.tables.claims import pod_claims
from kai_py.watch.kinds import NODES, PODS, QUEUES, RESOURCE_CLAIMS, WatchedQueue
from kai_py.watch.mirror import Mirror


@dataclass(frozen=True)
class Lookups:
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
