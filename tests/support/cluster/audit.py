"""What must never be true of a cluster, asked of its API server directly."""

from kai_py.api.pod_phases import FINISHED_PHASES
from tests.support.audits import audit
from tests.support.cluster.api import Api
from tests.support.cluster.eventually import eventually
from tests.support.cluster.view import devices_of

AUDITED = (
    ("/api/v1/pods", "v1", "Pod"),
    ("/api/v1/nodes", "v1", "Node"),
    ("/apis/resource.k8s.io/v1/resourceclaims", "resource.k8s.io/v1", "ResourceClaim"),
    ("/apis/resource.k8s.io/v1/resourceslices", "resource.k8s.io/v1", "ResourceSlice"),
    ("/apis/resource.k8s.io/v1/deviceclasses", "resource.k8s.io/v1", "DeviceClass"),
    ("/apis/batch/v1/jobs", "batch/v1", "Job"),
    (
        "/apis/scheduling.kai.io/v1alpha1/queues",
        "scheduling.kai.io/v1alpha1",
        "Queue",
    ),
)


async def findings(api: Api) -> list[str]:
    """What the auditor finds in the objects as they are now."""
    documents = [
        {**each, "apiVersion": version, "kind": kind}
        for path, version, kind in AUDITED
        for each in await api.items(path)
    ]
    return [str(each) for each in audit(documents)]


async def wait_without_findings(api: Api, *, within: float) -> None:
    """Wait until the auditor finds nothing: claims of evicted pods are released a little later."""

    async def is_sound() -> bool:
        assert await findings(api) == []
        return True

    await eventually(is_sound, what="a cluster without findings", within=within)


async def bound_without_devices(api: Api) -> list[str]:
    """Live bound pods whose claims are not allocated to them, and devices of two claims.

    Pods are read first: what they use was allocated before.
    """
    pods = await api.items("/api/v1/pods")
    claims = await api.items("/apis/resource.k8s.io/v1/resourceclaims")
    by_name = {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in claims}
    found = []
    for pod in pods:
        meta, status = pod["metadata"], pod.get("status", {})
        over = status.get("phase") in FINISHED_PHASES or "deletionTimestamp" in meta
        if over or not pod["spec"].get("nodeName"):
            continue
        for each in status.get("resourceClaimStatuses") or ():
            claim = by_name.get((meta["namespace"], each.get("resourceClaimName")), {})
            reserved = claim.get("status", {}).get("reservedFor") or ()
            if not devices_of(claim) or meta["uid"] not in {user["uid"] for user in reserved}:
                found.append(f"{meta['name']} is bound without its devices")
    held = [device for claim in claims for device in devices_of(claim)]
    return found + [f"{device} twice" for device in set(held) if held.count(device) > 1]
