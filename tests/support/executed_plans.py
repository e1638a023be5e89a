"""What the API shows once a plan was carried out, in the clusters of ``tests.support.scenario``.

The API server, the claim controller and the kubelets act at once: claims are made, allocated and
reserved, placed pods run, evicted pods are gone.
"""

from msgspec.structs import replace

from kai_py.api.records.core import Pod, PodExtendedResourceClaimStatus, PodStatus
from kai_py.api.records.resource import ResourceClaim, ResourceClaimConsumerReference
from kai_py.plan.plan import Placement, Plan
from tests.support.records import from_json
from tests.support.scenario import Cluster, shared


def carry_out(world: Cluster, plan: Plan) -> None:
    """Start the placed pods, remove the evicted ones and note the nominations of the others."""
    for gang in plan.placements:
        for placed in gang.pods:
            start(world, placed)
    for eviction in plan.evictions:
        remove_pod(world, world.get("pods", eviction.pod.name))
    waiting = {each.metadata.uid for each in world.all("pods")}
    for nominated in plan.nominations:
        if nominated.pod.uid in waiting:
            world.builder.nominate(nominated.pod.uid, nominated.node, world.snapshot().now)


def start(world: Cluster, placed: Placement) -> None:
    """Allocate and reserve the claims of a pod, bind it, and let it run."""
    _reserve_claims(world, placed)
    pod = world.get("pods", placed.pod.name, placed.pod.namespace)
    if placed.gpus:
        pod = shared(pod, group=placed.gpus[0].group)
    status = replace(pod.status, phase="Running")
    if placed.create_claim is not None:
        made = placed.create_claim.claim
        world.add(replace(made, metadata=replace(made.metadata, uid=f"u-{made.metadata.name}")))
        claimed = PodExtendedResourceClaimStatus(
            resource_claim_name=made.metadata.name, request_mappings=placed.create_claim.uses
        )
        status = replace(status, extended_resource_claim_status=claimed)
    if placed.node_claims:
        entries = [{**each.status, "containers": ["main"]} for each in placed.node_claims]
        told = from_json(PodStatus, {"nodeAllocatableResourceClaimStatuses": entries})
        written = told.node_allocatable_resource_claim_statuses
        status = replace(status, node_allocatable_resource_claim_statuses=written)
    world.add(replace(pod, spec=replace(pod.spec, node_name=placed.node), status=status))


def _reserve_claims(world: Cluster, placed: Placement) -> None:
    user = ResourceClaimConsumerReference(resource="pods", name=placed.pod.name, uid=placed.pod.uid)
    new = {each.claim: each.allocation for each in placed.allocate}
    for ref in dict.fromkeys((*new, *placed.reserve)):
        claim = world.get("resourceclaims", ref.name, ref.namespace)
        known = claim.status.allocation
        assert known is None or ref not in new, "an allocation is never replaced"
        allocation = new.get(ref, known)
        assert allocation is not None, "nothing is reserved that has no devices"
        _put_status(world, claim, allocation, (*claim.status.reserved_for, user))


def remove_pod(world: Cluster, pod: Pod) -> None:
    """Remove a pod with its own claims; others that no pod uses any more lose their devices."""
    world.remove(pod)
    for claim in world.all("resourceclaims"):
        if any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
            world.remove(claim)
            continue
        left = tuple(each for each in claim.status.reserved_for if each.uid != pod.metadata.uid)
        if left != claim.status.reserved_for:
            _put_status(world, claim, claim.status.allocation if left else None, left)


def _put_status(world: Cluster, claim: ResourceClaim, allocation, users) -> None:
    status = replace(claim.status, allocation=allocation, reserved_for=users)
    world.add(replace(claim, status=status))
