"""Features that users of KAI request by label or annotation on pods, and how they are treated.

Each key is found wherever it is written: on a workload, on any pod template inside it, on a pod.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from kai_py.api.gpu_share import CONTAINER_NAME, GPU_FRACTION, GPU_MEMORY, MIG_PREFIX, NUM_DEVICES
from kai_py.api.records.unstructured import value_at
from kai_py.dialects.kai import keys
from kai_py.grouping.frameworks.job import BATCH_MIN_MEMBER_KEY, MIN_MEMBER_KEY

MAX_DEPTH = 16
"""Levels of a manifest in which pod templates are looked for; none is as deep."""


class Compatibility(StrEnum):
    """The compatibility of an object or field, the worst last."""

    WORKS = "works"
    DIFFERS = "differs"
    MISSING = "missing"


Verdict = tuple[Compatibility, str]
WORKS, DIFFERS, MISSING = Compatibility

SHARED_GPU = (
    WORKS,
    "as in KAI; needs the admission webhook (kai-py install --webhook), see docs/gpu-sharing.md",
)
READ = (WORKS, "read as it is")
OWN_STATE = (WORKS, "written by KAI's binder; read on running pods")
NUMA = (MISSING, "NUMA zones are not predicted")

FEATURES: Mapping[str, Verdict] = {
    **dict.fromkeys((GPU_FRACTION, GPU_MEMORY, NUM_DEVICES, CONTAINER_NAME), SHARED_GPU),
    **dict.fromkeys(
        (
            keys.POD_GROUP,
            keys.SUBGROUP,
            keys.PRIORITY_CLASS,
            keys.PREEMPTIBILITY,
            keys.PREEMPTION_DELAY,
            keys.STALENESS_GRACE,
            BATCH_MIN_MEMBER_KEY,
            MIN_MEMBER_KEY,
            keys.TASK_PRIORITY,
            keys.TOPOLOGY,
            "kai.scheduler/topology-required-placement",
            "kai.scheduler/topology-preferred-placement",
            "kai.scheduler/segment-size",
            "kai.scheduler/segment-topology-required-placement",
            "kai.scheduler/segment-topology-preferred-placement",
        ),
        READ,
    ),
    "mps": (DIFFERS, "is not read; the pod's own mounts of an MPS server work as they are"),
    "kai.scheduler/skip-podgrouper": (
        DIFFERS,
        "is not read: pods without pod-group-name are gangs by their owners",
    ),
    "kai.scheduler/gpu-compute-sharing-mode": (
        MISSING,
        "neither compute time nor memory of a shared GPU is limited",
    ),
    "runai/queue": (MISSING, "is ignored: newer versions of KAI read kai.scheduler/queue"),
    "runai/shared-gpu-configmap": (
        DIFFERS,
        "no ConfigMap is created: the environment refers to an annotation, docs/gpu-sharing.md",
    ),
    "kai.scheduler/numa-placement-predicted": NUMA,
    "kai.scheduler/numa-placement-observed": (WORKS, "read where a NUMA exporter writes it"),
    "kai.scheduler/ignore-workload-api": READ,
    "received-resource-type": OWN_STATE,
    "runai-gpu-group": OWN_STATE,
}
"""Labels and annotations of workloads and pods."""

KEYS_BY_PREFIX: Mapping[str, Verdict] = {
    MIG_PREFIX: (MISSING, "gives no MIG device: request the profile in resources.limits"),
    "runai-gpu-group/": OWN_STATE,
    "kai.scheduler/": (MISSING, "is not known and ignored"),
    "runai/": (MISSING, "is not known and ignored"),
    "run.ai/": (MISSING, "is not known and ignored"),
}
"""Keys that begin so, unless they are among ``FEATURES``; the first that matches counts."""

UNREMARKABLE = frozenset(
    {keys.QUEUE, keys.NODE_POOL, "kai.scheduler/last-start-timestamp", keys.STALE_SINCE}
)
"""Keys that need no line: a queue stands on every workload, the others on KAI's own objects."""


def feature_of(key: str) -> Verdict | None:
    """How a label or annotation is treated; None if it is not one of KAI's."""
    if key in UNREMARKABLE:
        return None
    if key in FEATURES:
        return FEATURES[key]
    return next((each for start, each in KEYS_BY_PREFIX.items() if key.startswith(start)), None)


def annotation_maps(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Labels and annotations of an object and of the pod templates inside it, with their path."""
    yield from _maps_of(document, "")
    yield from _templates(document.get("spec"), "spec", 1)


def _templates(value: object, path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _templates(each, f"{path}[{index}]", depth + 1)
    if not isinstance(value, Mapping):
        return
    yield from _maps_of(value, f"{path}.")
    for key, each in value.items():
        yield from _templates(each, f"{path}.{key}", depth + 1)


def _maps_of(owner: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in ("metadata.labels", "metadata.annotations"):
        values = value_at(owner, field)
        if isinstance(values, Mapping):
            yield f"{path}{field}", values
