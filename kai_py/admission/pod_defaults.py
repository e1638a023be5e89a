"""Defaults for new pods: scheduler, queue, scheduling gate and the environment of shared GPUs.

In a namespace with the label ``scheduling.kai.io/admission: enabled``: our scheduler, instead of
the default one, and the namespace's queue, where neither the pod nor an owner of it names one. A
pod of a DaemonSet keeps its scheduler, and so does one whose node is set already.

In a queue with ``admissionGate``: our scheduling gate, if it is ours to schedule.

Pods of ours that ask for a part of a GPU: environment entries by which one container sees it.

``default-scheduler`` counts as unset: the API server writes it where nothing was given.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from kai_py.api.gpu_share import GpuShareError, gpu_share
from kai_py.api.queue import ADMISSION_GATE
from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.grouping.owner_chain import OwnerChain, controlling_owner
from kai_py.grouping.queue_choice import QueueKey

DEFAULT_SCHEDULERS = ("", "default-scheduler")
EXEMPT_OWNERS = ("DaemonSet", "Node")


@dataclass(frozen=True, slots=True)
class QueueReference:
    """A label or annotation that names a queue."""

    field: Literal["labels", "annotations"]
    key: str
    value: str


def gets_scheduler(pod: Pod) -> bool:
    """Whether a pod of an enabled namespace gets our scheduler."""
    owner = controlling_owner(pod.metadata)
    return (
        pod.spec.scheduler_name in DEFAULT_SCHEDULERS
        and not pod.spec.node_name
        and (owner is None or owner.kind not in EXEMPT_OWNERS)
    )


def queue_reference(
    lineage: OwnerChain, namespace: ObjectMeta, keys: tuple[QueueKey, ...]
) -> QueueReference | None:
    """The namespace's label or annotation for the queue, if pod and owners name none."""
    if lineage.unknown is not None or lineage.nearest(*(each.key for each in keys)):
        return None
    for each in keys:
        if value := namespace.annotations.get(each.key):
            return QueueReference("annotations", each.key, value)
        if value := namespace.labels.get(each.key):
            return QueueReference("labels", each.key, value)
    return None


def gets_gate(pod: Pod, scheduler_names: Container[str]) -> bool:
    """Whether a pod of a gated queue gets our gate."""
    return (
        pod.spec.scheduler_name in scheduler_names
        and not pod.spec.node_name
        and all(gate.name != ADMISSION_GATE for gate in pod.spec.scheduling_gates)
    )


def gets_gpu_environment(pod: Pod, scheduler_names: Container[str]) -> bool:
    """Whether a pod gets environment entries for shared GPUs; invalid shares are reported later."""
    if pod.spec.scheduler_name not in scheduler_names or pod.spec.node_name:
        return False
    try:
        return gpu_share(pod) is not None
    except GpuShareError:
        return False
