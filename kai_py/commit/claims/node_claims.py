"""What the claims of a pod take of its node, written to the pod's status (KEP-5517).

Kubelets count it when they admit pods, and schedulers do on the node: it must be there before the
pod is bound. An API server whose feature gate is off drops it; then devices take nothing of nodes
for kubelets either, and the pod is bound without it.
"""

from kai_py.api.records.core import Pod
from kai_py.commit.api_access import ApiAccess
from kai_py.commit.retry import retry_transient
from kai_py.plan.plan import Placement
from kai_py.watch.errors import ApiError


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
