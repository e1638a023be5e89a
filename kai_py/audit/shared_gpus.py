"""Shared GPUs of device plugins that are not kept for the pods that share them, or for none.

A reservation pod keeps a GPU from the device plugin (``kai_py.api.gpu_reservation``). Without it
the plugin may give the GPU to another pod as well; one that no pod needs keeps a GPU from all.
Pods without the annotation for visible GPUs were given none, so nothing is expected for them.
"""

from collections.abc import Iterator

from kai_py.api.gpu_reservation import (
    MANAGED_BY,
    MANAGER,
    RESERVED_GPU,
    VISIBLE_GPUS,
    GpuGroup,
    is_live,
    reserved_group,
)
from kai_py.api.records.core import Pod
from kai_py.audit.finding import (
    AuditedCluster,
    AuditFinding,
    FindingKind,
    Steps,
    bound_since,
    is_unfinished,
    name_of,
)
from kai_py.grouping.admitted import shared_groups

Reservations = dict[GpuGroup, list[Pod]]


def shared_gpus_reserved(cluster: AuditedCluster) -> Steps:
    """Pods whose shared GPU is not reserved, reservations of one GPU, and for no pod."""
    reservations: Reservations = {}
    shared: set[GpuGroup] = set()
    for pod in cluster.pods:
        gpu = reserved_group(pod)
        if gpu is not None and is_live(pod):
            reservations.setdefault(gpu, []).append(pod)
        elif gpu is None and pod.spec.node_name:
            shared.update(shared_groups(pod))
        yield None
    for pod in cluster.pods:
        yield from _not_reserved(cluster, pod, reservations)
    yield from _reserved_twice(reservations)
    for gpu in sorted(reservations):
        if gpu not in shared:
            yield from _for_no_pod(cluster, gpu, reservations[gpu])


def _not_reserved(
    cluster: AuditedCluster, pod: Pod, reservations: Reservations
) -> Iterator[AuditFinding]:
    visible = pod.metadata.annotations.get(VISIBLE_GPUS, "")
    ours = pod.spec.scheduler_name in cluster.scheduler_names
    if not (visible and ours and is_unfinished(pod) and cluster.is_settled(bound_since(pod))):
        return
    given = visible.split(",")
    for gpu in dict.fromkeys(shared_groups(pod)):
        uuids = [_uuid(each) for each in reservations.get(gpu, ())]
        if not any(uuid and text.endswith(uuid) for uuid in uuids for text in given):
            name = name_of(pod.metadata.namespace, pod.metadata.name)
            yield AuditFinding(
                FindingKind.GPU_NOT_RESERVED,
                (f"Pod {name}", f"Node {gpu.node}"),
                f"pod {name} uses {visible} on node {gpu.node}, which no reservation pod keeps for "
                f"group {gpu.group}: the device plugin may give it to another pod",
            )


def _reserved_twice(reservations: Reservations) -> Iterator[AuditFinding]:
    groups: dict[tuple[str, str], list[str]] = {}
    for gpu in sorted(reservations):
        for uuid in {_uuid(each): None for each in reservations[gpu]}:
            groups.setdefault((gpu.node, uuid), []).append(gpu.group)
    for (node, uuid), names in groups.items():
        if uuid and len(names) > 1:
            yield AuditFinding(
                FindingKind.DEVICE_USED_TWICE,
                (f"Node {node}", f"GPU {uuid}"),
                f"{uuid} of node {node} is reserved for groups {', '.join(names)}",
            )


def _for_no_pod(cluster: AuditedCluster, gpu: GpuGroup, pods: list[Pod]) -> Iterator[AuditFinding]:
    for pod in pods:
        started = pod.status.start_time
        since = started.timestamp() if started else 0.0
        ours = pod.metadata.labels.get(MANAGED_BY) == MANAGER
        if ours and _uuid(pod) and cluster.is_settled(since):
            name = name_of(pod.metadata.namespace, pod.metadata.name)
            yield AuditFinding(
                FindingKind.RESERVATION_WITHOUT_POD,
                (f"Pod {name}",),
                f"reservation pod {name} keeps {_uuid(pod)} of node {gpu.node} for group "
                f"{gpu.group}, of which no pod is there",
            )


def _uuid(pod: Pod) -> str:
    return pod.metadata.annotations.get(RESERVED_GPU, "")
