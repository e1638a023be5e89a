"""What a pod occupies on its node: requests, ports, volumes, and the GPUs that it shares.

A pod that requests a part of a GPU and runs without a label that says of which one counts as having
a GPU to itself: capacity that may be in use is not given away. KAI keeps a reservation pod on every
shared GPU, which requests the whole GPU and carries the label of the group; it and the group are
one GPU, counted once. Any other pod that requests whole GPUs has them to itself, whatever its
labels say.
"""

from collections.abc import Mapping

from kai_py.api.gpu_reservation import MANAGED_BY, MANAGER, VISIBLE_GPUS
from kai_py.api.gpu_share import (
    GPU_RESOURCE,
    GpuShare,
    SharedGpu,
    has_claimed_share,
    is_reservation_pod,
    legacy_mig_profile,
    shared_gpus,
)
from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import Pod
from kai_py.grouping.admitted import ADMITTED_KEY
from kai_py.snapshot.accounting import total
from kai_py.snapshot.derived_pod import PodPlacement, PodUsage
from kai_py.snapshot.pod_demand import PodDemand
from kai_py.snapshot.requests import claimed_amounts
from kai_py.snapshot.resources import largest_amount
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.shared_gpus import SharedGpuUsage


def assigned_gpus(pod: Pod, share: GpuShare | None) -> tuple[SharedGpu, ...]:
    """The shared GPUs of a device plugin that a pod has part of, or of which it reserves one.

    By its labels, or by its name if it has none and is on a node. What a claim gives it are no GPUs
    of a device plugin; only the scheduler may write that into the pod's status.
    """
    if share is None:
        return shared_gpus(pod) if is_reservation_pod(pod) else ()
    if has_claimed_share(pod):
        return ()
    labelled = shared_gpus(pod)
    if labelled or not pod.spec.node_name:
        return labelled
    return tuple(SharedGpu(f"{pod.metadata.uid}-{n}") for n in range(share.devices))


def shared_gpu_usage(
    shape: Shape, gpus: tuple[SharedGpu, ...], pod: Pod | None = None
) -> SharedGpuUsage | None:
    """The part of ``gpus`` that a pod of ``shape`` has; None if it shares none.

    Without ``pod`` it is none that a reservation pod serves, nor one itself.
    """
    if shape.gpu_share is not None:
        given = pod is not None and _has_visible_gpus(pod)
        return SharedGpuUsage(gpus, shape.gpu_share, needs_reservation=given)
    if pod is None or not is_reservation_pod(pod):
        return None
    if len(gpus) != 1 or shape.requests.get(GPU_RESOURCE) != 1:
        return None
    return SharedGpuUsage(gpus, leaves=pod.metadata.labels.get(MANAGED_BY) == MANAGER)


def _has_visible_gpus(pod: Pod) -> bool:
    """Whether the pod was bound with GPUs that reservation pods keep for it."""
    annotations = pod.metadata.annotations
    bound = bool(pod.spec.node_name) and ADMITTED_KEY in annotations
    return bound and VISIBLE_GPUS in annotations


def shared_gpus_of(pod: Pod, demand: PodDemand, placement: PodPlacement) -> tuple[SharedGpu, ...]:
    """The shared GPUs of which the pod has a part: those being written, else those it names."""
    if placement.gets_claim and demand.gpu_share is not None:
        return ()
    return placement.gpus or assigned_gpus(pod, demand.gpu_share)


def pod_usage(
    pod: Pod,
    demand: PodDemand,
    placement: PodPlacement,
    gpus: tuple[SharedGpu, ...],
    *,
    ours: bool,
) -> PodUsage | None:
    """What the pod occupies on its node; None without a node. ``ours``: it names this scheduler."""
    if not placement.node:
        return None
    shape = demand.shape
    requests = (
        total((shape.requests, shape.plugin_equivalents))
        if shape.plugin_equivalents
        else shape.requests
    )
    shared = shared_gpu_usage(shape, gpus, pod)
    if shared is not None and shape.gpu_share is None:
        requests = {name: amount for name, amount in requests.items() if name != GPU_RESOURCE}
    taken = claimed_by(pod, placement)
    if taken:
        requests = total((requests, taken))
    if demand.closes_node:
        requests = {**requests, "pods": largest_amount("pods")}
    return PodUsage(
        placement.node,
        requests,
        shape.host_ports,
        placement.terminating and not placement.stuck_terminating,
        shared,
        legacy_mig=ours and _has_unknown_mig(pod),
        attachments=demand.volumes.attachments,
        exclusive=shape.volumes.exclusive_claims,
        disks=shape.volumes.disks,
    )


def claimed_by(pod: Pod, placement: PodPlacement) -> Mapping[str, float]:
    """What the pod's claims take of its node beside its requests, by its status or as assumed."""
    try:
        return claimed_amounts(pod) or placement.node_amounts
    except QuantityError:
        return placement.node_amounts


def _has_unknown_mig(pod: Pod) -> bool:
    """Whether KAI may have given the pod MIG devices by annotation.

    Any pod may be annotated. Other schedulers give none, nor do we: what we have bound is recorded.
    """
    return bool(legacy_mig_profile(pod)) and ADMITTED_KEY not in pod.metadata.annotations
