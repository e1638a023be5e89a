"""Creation and deletion of the claim for a pod's extended resources (KEP-5004).

The claim's name is derived from the pod and its requests, so if the answer to a create was lost,
the next attempt finds the claim. Any other claim of that name is left over from an earlier attempt:
it is deleted once a read proves its pod to be on no node, and the gang is tried again. Before the
pod is bound, its status must map containers to requests; otherwise the kubelet gives it no device.

What the claims of a pod take of its node is written to the pod's status (KEP-5517) before the pod
is bound, as kubelets count it when they admit the pod, and schedulers count it on the node. An API
server without that feature drops the field; then kubelets do not count it either, and the pod is
bound without it.
"""

from typing import Any

import msgspec

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import DELETE_PROTECTION_FINALIZER, ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.api_access import ApiAccess, is_gone, preconditions
from kai_py.commit.claims.exact_writes import ClaimPatch, removing_finalizer, send_patch
from kai_py.commit.claims.reconcile import ClaimFailure
from kai_py.commit.gpu_reservations import has_shared_gpus, remove_shared_gpus
from kai_py.commit.pod_state import fence_pod
from kai_py.commit.retry import retry_transient
from kai_py.plan.plan import ClaimToCreate, Placement
from kai_py.watch.errors import AlreadyExists, ApiError, Conflict


async def create_claim(
    access: ApiAccess, pod: PodRef, desired: ClaimToCreate
) -> ResourceClaim | ClaimFailure:
    """Create the claim, or return it if an earlier attempt created it."""
    claim = ClaimRef.of(desired.claim.metadata)
    try:
        return await retry_transient(lambda: _create(access, desired.claim), access.retry)
    except AlreadyExists:
        pass
    except ApiError as error:
        return ClaimFailure(f"claim {claim}: {error}")
    try:
        found = await access.read_claim(claim)
    except ApiError as error:
        return ClaimFailure(f"claim {claim}: {error}")
    if found.metadata.deletion_timestamp is None and _matches(found, desired.claim):
        return found
    if _owner_pods(found) != _owner_pods(desired.claim):
        return ClaimFailure(f"claim {claim}: the name is taken by a claim of another owner")
    return ClaimFailure(f"claim {claim}: {await _delete_earlier(access, pod, found)}")


async def _delete_earlier(access: ApiAccess, pod: PodRef, found: ResourceClaim) -> str:
    """Delete a claim of an earlier attempt for ``pod``; returns why it still exists, a clause."""
    reading = await fence_pod(access, pod)
    if not reading.proves_unused:
        reason = reading.problem or "its pod is on a node"
        return f"the claim of an earlier attempt is kept: {reason}"
    try:
        await delete_claim(access, ClaimRef.of(found.metadata))
    except ApiError as error:
        return f"the claim of an earlier attempt is not deleted yet: {error}"
    return "the claim of an earlier attempt is being deleted"


async def delete_claim(access: ApiAccess, claim: ClaimRef) -> None:
    """Delete a claim whose pod was read to be on no node; raises ApiError if the API fails."""
    try:
        found = await access.read_claim(claim)
        if found.metadata.uid != claim.uid:
            return
        # The finalizer is ours to remove: the claim controller would do so only after the pod has
        # ended.
        if DELETE_PROTECTION_FINALIZER in found.metadata.finalizers:
            await retry_transient(lambda: _remove_finalizer(access, found), access.retry)
        await retry_transient(
            lambda: access.call(
                lambda: access.client.delete(
                    access.claims, claim.name, namespace=claim.namespace, uid=claim.uid
                )
            ),
            access.retry,
        )
    except Conflict:
        return  # the claim controller is at it as well, and ends it with the pod
    except ApiError as error:
        if not is_gone(error, claim.name):
            raise


async def write_pod_status(access: ApiAccess, placement: Placement, found: Pod | None) -> str:
    """Write the name of its claim into the pod's status; returns why that failed, else "".

    ``found``: the pod as known. What an earlier attempt wrote on it is removed: the claim for a
    node that needs none now, shared GPUs of a device plugin for one that gets a claim, what claims
    took of another node.
    """
    claim = placement.create_claim
    if placement.node_claims or (
        found is not None and found.status.node_allocatable_resource_claim_statuses
    ):
        problem = await write_node_claims(access, placement, found)
        if problem:
            return problem
    if claim is None:
        stale = found is not None and found.status.extended_resource_claim_status is not None
        return await _clear_pod_status(access, placement.pod) if stale else ""
    if found is not None and has_shared_gpus(found):
        problem = await remove_shared_gpus(access, found)
        if problem:
            return problem
    return await _write_claim(access, placement.pod, claim)


async def _write_claim(access: ApiAccess, pod: PodRef, claim: ClaimToCreate) -> str:
    status = {
        "resourceClaimName": claim.claim.metadata.name,
        "requestMappings": msgspec.to_builtins(claim.uses),
    }
    body = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}
    try:
        written = await retry_transient(
            lambda: access.patch_pod(pod, body, subresource="status"), access.retry
        )
    except ApiError as error:
        return f"pod {pod}: {error}"
    if written.status.extended_resource_claim_status is None:
        return (
            f"pod {pod}: the API server doesn't keep status.extendedResourceClaimStatus; extended "
            "resources are served by claims where its feature gate DRAExtendedResource is on"
        )
    return ""


async def _clear_pod_status(access: ApiAccess, pod: PodRef) -> str:
    """Remove the name of the claim: a kubelet would wait for it."""
    body = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": None}}
    try:
        await retry_transient(
            lambda: access.patch_pod(pod, body, subresource="status"), access.retry
        )
    except ApiError as error:
        return f"pod {pod}: {error}"
    return ""


async def _create(access: ApiAccess, claim: ResourceClaim) -> ResourceClaim:
    meta = claim.metadata
    body: dict[str, Any] = {
        "metadata": {
            "name": meta.name,
            "generateName": f"{meta.owner_references[0].name}-extended-resources-",
            "annotations": meta.annotations,
            "ownerReferences": msgspec.to_builtins(meta.owner_references),
        },
        "spec": msgspec.to_builtins(claim.spec),
    }
    return await access.call(
        lambda: access.client.create(access.claims, body, namespace=meta.namespace)
    )


async def _remove_finalizer(access: ApiAccess, claim: ResourceClaim) -> ResourceClaim:
    finalizers = [f for f in claim.metadata.finalizers if f != DELETE_PROTECTION_FINALIZER]
    metadata = {**preconditions(claim), "finalizers": finalizers}
    patch = ClaimPatch({"metadata": metadata}, subresource="", change=removing_finalizer(claim))
    return await send_patch(access, ClaimRef.of(claim.metadata), patch)


def _matches(found: ResourceClaim, desired: ResourceClaim) -> bool:
    return _owner_pods(found) == _owner_pods(desired) and found.spec == desired.spec


def _owner_pods(claim: ResourceClaim) -> list[str]:
    return [owner.uid for owner in claim.metadata.owner_references if owner.controller]


async def write_node_claims(access: ApiAccess, placement: Placement, found: Pod | None) -> str:
    """Write them, or remove those of an earlier attempt; returns why that failed, else "".

    ``found``: the pod as known, read if None.
    """
    ref = placement.pod
    try:
        if found is None:
            found = await access.call(
                lambda: access.client.get(access.pods, ref.name, namespace=ref.namespace)
            )
        pod = found
        body = {
            "metadata": {"uid": ref.uid},
            "status": {
                "nodeAllocatableResourceClaimStatuses": [
                    {**each.status, "containers": _containers(pod, each.entry)}
                    for each in placement.node_claims
                ]
            },
        }
        await retry_transient(
            lambda: access.patch_pod(ref, body, subresource="status"), access.retry
        )
    except ApiError as error:
        return f"pod {ref}: {error}"
    return ""


def _containers(pod: Pod, entry: str) -> list[str]:
    """The containers that refer to a claim of the pod."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return [c.name for c in containers if any(each.name == entry for each in c.resources.claims)]
