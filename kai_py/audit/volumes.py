"""Volume claims that only one pod may use, and several do.

A PersistentVolumeClaim with the access mode ReadWriteOncePod is for one pod in the whole cluster. A
second pod on the same node does not start, and one on another node may write to the same volume.
Terminating pods do not count: the pod that replaces one waits for it. Source: KEP-2485.
"""

from kai_py.api.phrases import first_of
from kai_py.api.records.core import Pod
from kai_py.api.records.storage import READ_WRITE_ONCE_POD
from kai_py.audit.finding import (
    AuditedCluster,
    AuditFinding,
    FindingKind,
    Steps,
    bound_since,
    is_unfinished,
    name_of,
)
from kai_py.snapshot.pod_volumes import volume_claim_name


def volumes_used_twice(cluster: AuditedCluster) -> Steps:
    """ReadWriteOncePod claims that several bound pods use."""
    users: dict[tuple[str, str], dict[str, None]] = {}
    for claim in cluster.volume_claims:
        if READ_WRITE_ONCE_POD in claim.spec.access_modes:
            users[claim.metadata.namespace, claim.metadata.name] = {}
        yield None
    for pod in cluster.pods if users else ():
        if pod.spec.volumes and is_unfinished(pod) and cluster.is_settled(bound_since(pod)):
            _add(pod, users)
        yield None
    for (namespace, name), pods in sorted(users.items()):
        yield _finding(name_of(namespace, name), sorted(pods)) if len(pods) > 1 else None


def _add(pod: Pod, users: dict[tuple[str, str], dict[str, None]]) -> None:
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        pods = users.get((namespace, volume_claim_name(pod, volume)))
        if pods is not None:
            pods[name_of(namespace, pod.metadata.name)] = None


def _finding(claim: str, pods: list[str]) -> AuditFinding:
    return AuditFinding(
        FindingKind.VOLUME_USED_TWICE,
        (f"PersistentVolumeClaim {claim}", *(f"Pod {pod}" for pod in pods)),
        f"volume claim {claim} is for one pod only (ReadWriteOncePod), but {len(pods)} pods use "
        f"it: {first_of(pods)}",
    )
