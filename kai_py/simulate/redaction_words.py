"""Words in a cluster's objects that are not private: those of the APIs and of known projects."""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


DROPPED_FIELDS = _words("""
    addresses args command containerID containerStatuses daemonEndpoints env envFrom hostIP hostIPs
    image imageID imagePullSecrets images initContainerStatuses lifecycle livenessProbe
    managedFields message nodeInfo parameters podIP podIPs readinessProbe selfLink startupProbe
    volumeAttributes volumeDevices volumeMounts
""")
"""Fields that the scheduler does not use."""

KEPT_FIELDS = _words("""
    apiVersion attribute distinctAttribute driver extendedResourceName kind matchAttribute
    resourceVersion schedulerName uid
""")
"""Fields whose texts are words of the APIs, or must equal the configuration or CEL expressions."""

KEYED_FIELDS = _words("labels matchLabels nodeSelector")
"""Maps whose keys are chosen by users."""

AMOUNT_FIELDS = _words("allocatable capacity hard limits requests resources used")
"""Maps whose keys are names of resources."""

DROPPED_ANNOTATIONS = _words("kubectl.kubernetes.io/last-applied-configuration")

_HARDWARE_DOMAINS = _words("amd.com intel.com nvidia.com")
_DOMAINS = _HARDWARE_DOMAINS | _words("""
    grove.io k8s.io kai.io kai.scheduler kubeflow.org kubernetes.io ray.io run.ai volcano.sh
    yunikorn.apache.org
""")

KNOWN_KEYS = _words("""
    controller-uid cpu ephemeral-storage gpu-fraction gpu-fraction-container-name
    gpu-fraction-num-devices gpu-memory job-name memory metadata.name pod-group-name
    pod-template-hash pods project received-resource-type runai-gpu-group spark-app-selector
    spark-role
""")
"""Keys without a domain that mean something to the scheduler."""

_COMMON = KNOWN_KEYS | _words("""
    amd64 arm64 build build-preemptible chief default driver evaluator executor false gpu head
    inference inference-preemptible interactive interactive-preemptible kube-node-lease kube-public
    kube-system launcher leader linux main master non-preemptible none preemptible semi-preemptible
    submitter system-cluster-critical system-node-critical train true windows worker workers
""")
"""Words that mean something to the scheduler, or are in general use."""

_PATTERNS = (
    re.compile(r"[+-]?\d+(\.\d+)?(m|k|[KMGTPE]i?|e[+-]?\d+|u|n|%)?"),
    re.compile(r"(\d+(\.\d+)?(h|m|s|ms|us|ns))+"),
    re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"),
    re.compile(r"[A-Z][A-Za-z]*"),
)
"""Quantities, durations, times, and words of the APIs: names of objects are in lower case."""


def is_common(text: str) -> bool:
    """Whether it is a word of the APIs, a number or a time."""
    return text in _COMMON or any(pattern.fullmatch(text) for pattern in _PATTERNS)


def is_known(text: str) -> bool:
    """Whether it is a key, a driver or an API group of a known project."""
    return _is_below(text.partition("/")[0], _DOMAINS)


def tells_hardware(key: str) -> bool:
    """Whether values of a label are names of products."""
    return _is_below(key.rpartition("/")[0], _HARDWARE_DOMAINS)


def _is_below(domain: str, domains: frozenset[str]) -> bool:
    return any(domain == each or domain.endswith(f".{each}") for each in domains)
