"""Shares of GPUs: the part of a GPU that a pod requests, and the GPUs that it got.

The keys are KAI-Scheduler's, so that its users change nothing:

    annotation gpu-fraction: "0.5"              half of a GPU's memory, 0 < x < 1
    annotation gpu-memory: "20000"              so many MiB of a GPU's memory
    annotation gpu-fraction-num-devices: "2"    that part of each of so many distinct GPUs
    annotation gpu-fraction-container-name      the container that uses it, by default the first
    label runai-gpu-group: GROUP                written before binding: pods of a group share a GPU
    label runai-gpu-group/GROUP: GROUP          the same for several GPUs, one label for each

The webhook adds a request for one ``scheduling.kai.io/gpu-share`` to the container, which no node
reports: a kubelet hands the devices of a pod's claim for extended resources to those containers
alone that request the resource (KEP-5004).

Our own annotation gives the index of each GPU on its node, which we count from 0:

    annotation scheduling.kai.io/gpu-index: "0" or "0,1", in the order of the groups' names

Pods on one GPU are not isolated: the part is used for scheduling and not enforced.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kai_py.api.numbers import quoted, shortened
from kai_py.api.records.core import Pod

GPU_FRACTION = "gpu-fraction"
GPU_MEMORY = "gpu-memory"
NUM_DEVICES = "gpu-fraction-num-devices"
CONTAINER_NAME = "gpu-fraction-container-name"
SHARE_KEYS = frozenset({GPU_FRACTION, GPU_MEMORY, NUM_DEVICES, CONTAINER_NAME})
"""Annotations that ask for a part of a GPU."""
GPU_GROUP = "runai-gpu-group"
GPU_GROUP_PREFIX = GPU_GROUP + "/"
RECEIVED_TYPE = "received-resource-type"
RECEIVED_FRACTION = "Fraction"

RESERVATION = "kai-resource-reservation"
"""Namespace of KAI's reservation pods, and their label ``app``."""

GPU_RESOURCE = "nvidia.com/gpu"
"""The resource by which the device plugin reports the GPUs that can be shared."""

SHARE_RESOURCE = "scheduling.kai.io/gpu-share"
"""What the container that uses parts of GPUs requests, so that a claim can serve it."""

GPU_INDEX = "scheduling.kai.io/gpu-index"
UNKNOWN_INDEX = -1
MAX_DEVICES = 1024
"""Most GPUs of which a pod can have a part: each of them is an object."""

MIG_PREFIX = "nvidia.com/mig-"
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}")
_COUNT = re.compile(r"[0-9]{1,9}")


class GpuShareError(ValueError):
    """An annotation about a part of a GPU is invalid; the text names it and its valid values."""


class GpuShare(Struct, frozen=True):
    """``fraction`` of a GPU's memory, or ``memory`` MiB of it, on each of ``devices`` GPUs.

    One of ``fraction`` and ``memory`` is 0.
    """

    fraction: float = 0.0
    memory: float = 0.0
    devices: int = 1

    def gpus(self, gpu_memory: float) -> float:
        """The total in GPUs of ``gpu_memory`` MiB."""
        return self.devices * (self.fraction or self.memory / gpu_memory)

    def __str__(self) -> str:
        part = f"{self.fraction:g} of its memory" if self.fraction else f"{self.memory:g} MiB"
        return part if self.devices == 1 else f"{part} ({self.devices} such GPUs are needed)"


class SharedGpu(Struct, frozen=True, order=True):
    """A GPU that pods share, identified by its group; ``index`` on its node, -1 if unknown."""

    group: str
    index: int = UNKNOWN_INDEX


def requests_gpu_share(pod: Pod) -> bool:
    """Whether ``pod`` asks for a part of a GPU, valid or not."""
    return GPU_FRACTION in pod.metadata.annotations or GPU_MEMORY in pod.metadata.annotations


def gpu_share(pod: Pod) -> GpuShare | None:
    """The part of a GPU that ``pod`` requests, if any; raises GpuShareError."""
    annotations = pod.metadata.annotations
    requested = [key for key in (GPU_FRACTION, GPU_MEMORY) if key in annotations]
    if not requested:
        extra = next((key for key in (NUM_DEVICES, CONTAINER_NAME) if key in annotations), None)
        if extra is not None:
            raise GpuShareError(f"annotation {extra} needs {GPU_FRACTION} or {GPU_MEMORY} as well")
        return None
    if len(requested) == 2:
        raise GpuShareError(f"annotations {GPU_FRACTION} and {GPU_MEMORY} are mutually exclusive")
    whole = next(filter(is_gpu_resource, _requested(pod)), None)
    if whole is not None:
        raise GpuShareError(
            f"annotation {requested[0]} and a request for {whole} are mutually exclusive"
        )
    _check_container(pod, annotations)
    return GpuShare(_fraction(annotations), _memory(annotations), _devices(annotations))


def readable_share(pod: Pod) -> GpuShare | None:
    """The part of a GPU that ``pod`` requests; None also for a request that is invalid."""
    try:
        return gpu_share(pod)
    except GpuShareError:
        return None


def shared_gpus(pod: Pod) -> tuple[SharedGpu, ...]:
    """The GPUs that were chosen for ``pod``, in the order of their groups' names."""
    labels = pod.metadata.labels
    several = (value for key, value in labels.items() if key.startswith(GPU_GROUP_PREFIX))
    groups = sorted({value for value in (labels.get(GPU_GROUP, ""), *several) if value})
    texts = pod.metadata.annotations.get(GPU_INDEX, "").split(",")
    if len(texts) != len(groups) or not all(_COUNT.fullmatch(text) for text in texts):
        return tuple(SharedGpu(group) for group in groups)
    return tuple(SharedGpu(g, int(text)) for g, text in zip(groups, texts, strict=True))


def has_claimed_share(pod: Pod) -> bool:
    """Whether a claim gives the pod its parts of GPUs; the scheduler writes that into its status.

    It has no part of GPUs of a device plugin then, whatever its labels say.
    """
    status = pod.status.extended_resource_claim_status
    mappings = status.request_mappings if status is not None else ()
    return any(each.resource_name == SHARE_RESOURCE for each in mappings)


def is_reservation_pod(pod: Pod) -> bool:
    """Whether this is a pod by which KAI reserves a GPU for the pods of a group.

    A label alone is no proof: any user may set it. KAI's users don't create pods in the namespace.
    """
    meta = pod.metadata
    return meta.namespace == RESERVATION and meta.labels.get("app") == RESERVATION


def shared_gpu_metadata(gpus: Sequence[SharedGpu]) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations that name ``gpus``."""
    ordered = sorted(gpus)
    labels = {GPU_GROUP_PREFIX + gpu.group: gpu.group for gpu in ordered}
    if len(ordered) == 1:
        labels = {GPU_GROUP: ordered[0].group}
    index = ",".join(str(gpu.index) for gpu in ordered)
    return labels, {RECEIVED_TYPE: RECEIVED_FRACTION, GPU_INDEX: index}


def share_annotations(share: GpuShare) -> dict[str, str]:
    """The annotations that ask for ``share``."""
    devices = {NUM_DEVICES: str(share.devices)} if share.devices > 1 else {}
    if share.fraction:
        return {GPU_FRACTION: f"{share.fraction:.9f}", **devices}
    return {GPU_MEMORY: f"{share.memory:.0f}", **devices}


def is_gpu_resource(resource: str) -> bool:
    """Whether a device plugin offers whole GPUs, or MIG devices, as ``resource``."""
    return resource.endswith("/gpu") or resource.startswith(MIG_PREFIX)


def legacy_mig_profile(pod: Pod) -> str:
    """The MIG profile that ``pod`` names by annotation instead of requesting it, or ""."""
    named = [key for key in pod.metadata.annotations if key.startswith(MIG_PREFIX)]
    if not named or any(name.startswith(MIG_PREFIX) for name in _requested(pod)):
        return ""
    return min(named)


def legacy_mig_devices(pod: Pod) -> dict[str, float]:
    """MIG devices by profile that ``pod`` names by annotation instead of requesting them.

    A value that is no number counts as one device.
    """
    if not legacy_mig_profile(pod):
        return {}
    named = (item for item in pod.metadata.annotations.items() if item[0].startswith(MIG_PREFIX))
    return {key: float(text) if _COUNT.fullmatch(text) else 1.0 for key, text in sorted(named)}


def _requested(pod: Pod) -> Iterator[str]:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        yield from (*container.resources.requests, *container.resources.limits)


def _check_container(pod: Pod, annotations: Mapping[str, str]) -> None:
    named = annotations.get(CONTAINER_NAME)
    names = [each.name for each in (*pod.spec.containers, *pod.spec.init_containers)]
    if named is not None and named not in names:
        raise GpuShareError(
            f"annotation {CONTAINER_NAME}: {quoted(named)} is not one of the containers "
            f"{shortened(', '.join(names))}"
        )


def _fraction(annotations: Mapping[str, str]) -> float:
    text = annotations.get(GPU_FRACTION)
    if text is None:
        return 0.0
    fraction = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0.0 < fraction < 1.0:
        hint = (
            f"must be a number above 0 and below 1; request whole GPUs by {GPU_RESOURCE} in limits"
        )
        raise GpuShareError(f"annotation {GPU_FRACTION}: {quoted(text)} {hint}")
    return fraction


def _memory(annotations: Mapping[str, str]) -> float:
    return float(_positive(annotations, GPU_MEMORY, "a number of MiB, 1 or more", absent=0))


def _devices(annotations: Mapping[str, str]) -> int:
    devices = _positive(annotations, NUM_DEVICES, "a number of GPUs, 1 or more", absent=1)
    if devices > MAX_DEVICES:
        raise GpuShareError(f"annotation {NUM_DEVICES}: {devices} must be at most {MAX_DEVICES}")
    return devices


def _positive(annotations: Mapping[str, str], key: str, meaning: str, *, absent: int) -> int:
    text = annotations.get(key)
    if text is None:
        return absent
    count = int(text) if _COUNT.fullmatch(text) else 0
    if count < 1:
        raise GpuShareError(f"annotation {key}: {quoted(text)} must be {meaning}")
    return count
