"""What the pods on nodes were admitted with, whatever their labels and annotations say now.

The record on a pod decides where there is one (``grouping.admitted``). A pod without one, bound by
an earlier version or by others, counts as it was when the first cycle saw it on its node, and so
do the requests of one whose record, of an earlier version, does not have them. The keys
by which pods share GPUs are frozen in the same way, for pods of every scheduler: they say what is
in use.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from kai_py.api.gpu_share import (
    GPU_GROUP,
    GPU_GROUP_PREFIX,
    GPU_INDEX,
    MIG_PREFIX,
    SHARE_KEYS,
    GpuShare,
    SharedGpu,
    readable_share,
    share_annotations,
    shared_gpu_metadata,
)
from kai_py.api.records.core import Pod
from kai_py.grouping.admitted import Terms, read_terms, resizable_requests
from kai_py.snapshot.derived_pod import DerivedPod
from kai_py.snapshot.tables.pod_table import PodTable, Uids

GpuKeys = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Labels and annotations about GPUs."""

NO_KEYS: GpuKeys = ((), ())
MAX_MIB = 1e9
"""The most MiB of a GPU that an annotation can name."""


class Admissions(PodTable):
    """Terms and GPU keys by pod uid, of pods that are on a node."""

    def __init__(self) -> None:
        """Start empty."""
        self._terms: dict[str, Terms] = {}
        self._gpu_keys: dict[str, GpuKeys] = {}
        self._first_requests: dict[str, Mapping[str, float]] = {}

    def terms(self, uid: str) -> Terms | None:
        """What the pod was admitted with; None if it is not known, or the pod is on no node."""
        return self._terms.get(uid)

    def all_terms(self, uids: Iterable[str]) -> list[Terms | None]:
        """``terms`` of each pod."""
        return list(map(self._terms.get, uids))

    def first_requests(self, uid: str, charge: Mapping[str, float]) -> Mapping[str, float]:
        """The CPU and memory that a pod was first charged with; noted the first time.

        For pods whose record does not say what they were admitted with.
        """
        known = self._first_requests.get(uid)
        if known is None and charge:
            known = self._first_requests[uid] = resizable_requests(charge)
        return known or {}

    def adopt(self, uid: str, terms: Terms) -> None:
        """Count a pod on a node, which has no record, as admitted with ``terms``."""
        self._terms[uid] = terms

    def as_admitted(self, pod: Pod, *, ours: bool) -> Pod:
        """``pod`` with the GPU keys that it had when it was bound; notes them the first time."""
        uid = pod.metadata.uid
        if not pod.spec.node_name:
            return pod
        current, known = _gpu_keys(pod), self._gpu_keys.get(uid)
        if known is None:
            record = read_terms(pod.metadata.annotations) if ours else None
            if record is not None:
                self._terms[uid] = record
            known = self._gpu_keys[uid] = _admitted_keys(pod, record, current)
        return pod if known == current else _with_keys(pod, known)

    def place(self, pod: DerivedPod) -> Uids:
        """Forget a pod that is on no node after all."""
        return () if pod.placement.node else self.release(pod.uid)

    def release(self, uid: str) -> Uids:
        """The pod is on no node any more."""
        self._terms.pop(uid, None)
        self._gpu_keys.pop(uid, None)
        self._first_requests.pop(uid, None)
        return ()


def _gpu_keys(pod: Pod) -> GpuKeys:
    meta = pod.metadata
    labels = [item for item in meta.labels.items() if _is_gpu_label(item[0])]
    annotations = [item for item in meta.annotations.items() if _is_gpu_annotation(item[0])]
    if not labels and not annotations:
        return NO_KEYS
    return tuple(sorted(labels)), tuple(sorted(annotations))


def _is_gpu_label(key: str) -> bool:
    return key == GPU_GROUP or key.startswith(GPU_GROUP_PREFIX)


def _is_gpu_annotation(key: str) -> bool:
    return key in SHARE_KEYS or key == GPU_INDEX or key.startswith(MIG_PREFIX)


def _admitted_keys(pod: Pod, record: Terms | None, current: GpuKeys) -> GpuKeys:
    """The keys by the record, or as they are where it says that the pod has less than they do."""
    if record is None or record.share is None or not _is_sound(record.share, record.gpus):
        return current
    written = readable_share(pod)
    if written is not None and _is_more(written, record.share):
        return current
    shared = tuple(SharedGpu(group, index) for group, index in record.gpus.items())
    labels, annotations = shared_gpu_metadata(shared)
    mig = {key: value for key, value in current[1] if key.startswith(MIG_PREFIX)}
    share = {**share_annotations(record.share), GPU_INDEX: annotations[GPU_INDEX]}
    return tuple(sorted(labels.items())), tuple(sorted({**mig, **share}.items()))


def _is_sound(share: GpuShare, gpus: Mapping[str, int]) -> bool:
    """Whether such a share can have been admitted, and on these GPUs."""
    amounts = (0.0 < share.fraction < 1.0) != (0.0 < share.memory <= MAX_MIB)
    return amounts and share.devices == len(gpus)


def _is_more(share: GpuShare, than: GpuShare) -> bool:
    parts = (share.fraction * share.devices, share.memory * share.devices)
    return parts > (than.fraction * than.devices, than.memory * than.devices)


def _with_keys(pod: Pod, keys: GpuKeys) -> Pod:
    meta = pod.metadata
    labels = _without(meta.labels, _is_gpu_label) | dict(keys[0])
    annotations = _without(meta.annotations, _is_gpu_annotation) | dict(keys[1])
    return replace(pod, metadata=replace(meta, labels=labels, annotations=annotations))


def _without(items: Mapping[str, str], unwanted: Callable[[str], bool]) -> dict[str, str]:
    return {key: value for key, value in items.items() if not unwanted(key)}
