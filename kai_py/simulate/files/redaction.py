"""Redaction of a cluster's objects: the same decisions under other names.

Every word of every text is replaced, except words of the APIs (kinds, operators, numbers,
quantities, times, keys of known projects), names of resources, and what CEL expressions compare
(drivers, attributes and their values), in which only names of objects are replaced. Replacements
sort as the words do, so that ties break the same way, and keep the number at a word's end. Fields
that the scheduler does not use are dropped.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from kai_py.api.node_departures import DepartureTreatment
from kai_py.api.spot import SpotUse
from kai_py.grouping.annotations import ON_EVICTION, ON_POD_LOSS
from kai_py.grouping.gang_settings import Preemptibility
from kai_py.simulate.files.objects import Document


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

KEYED_FIELDS = _words("labels matchLabels minTaskMember nodeSelector")
"""Maps whose keys are chosen by users."""

AMOUNT_FIELDS = _words("allocatable capacity hard limits minResource requests resources used")
"""Maps whose keys are names of resources."""

DROPPED_ANNOTATIONS = _words("kubectl.kubernetes.io/last-applied-configuration")

_HARDWARE_DOMAINS = _words("amd.com intel.com nvidia.com")
_DOMAINS = _HARDWARE_DOMAINS | _words("""
    aibrix.ai dask.org grove.io k8s.io kai.io kai.scheduler knative.dev kubeflow.org kubernetes.io
    ray.io run.ai volcano.sh x-k8s.io yunikorn.apache.org
""")

KNOWN_KEYS = _words("""
    app applicationId component controller-uid cpu ephemeral-storage gpu-fraction
    gpu-fraction-container-name gpu-fraction-num-devices gpu-memory job-name memory metadata.name
    pod-group-name pod-template-hash pods project received-resource-type role-name runai-gpu-group
    skypilot-cluster skypilot-cluster-name spark-app-selector spark-role type

    AZUREML_NODE_COUNT job.autoscaler.enabled jobmanager.scheduler
    kubernetes.operator.job.autoscaler.enabled parallelism.default scheduler-mode
    taskmanager.numberOfTaskSlots

    spark.dynamicAllocation.enabled spark.dynamicAllocation.initialExecutors
    spark.dynamicAllocation.minExecutors spark.executor.cores spark.executor.instances
    spark.executor.memory spark.executor.memoryOverhead spark.executor.resource.gpu.amount
    spark.executor.resource.gpu.vendor spark.kubernetes.allocation.maxPendingPods
    spark.kubernetes.executor.request.cores
""")
"""Keys without a known domain that mean something to the scheduler, on objects and in settings."""

_CHOICES = (*DepartureTreatment, *SpotUse, *Preemptibility, *ON_EVICTION, *ON_POD_LOSS)
"""Values from which our annotations, and queues, choose."""

_WORDS = _words("""
    amd64 arm64 build build-preemptible chief default driver evaluator executor false gpu head
    inference inference-preemptible interactive interactive-preemptible kube-node-lease kube-public
    kube-system launcher leader linux main master none submitter system-cluster-critical
    system-node-critical train true windows worker workers

    K8sJobMode adaptive flink-native-kubernetes flink-standalone-kubernetes hard headgroup
    jobmanager reactive redis-cleanup scheduler soft taskmanager

    devices expectedRuntime floors fraction gpus preemptibility priority queue share
""")
"""Words that mean something to the scheduler, or are in general use: everywhere, to frameworks,
and in records."""

_COMMON = KNOWN_KEYS | _WORDS | frozenset(map(str, _CHOICES))

_PATTERNS = (
    re.compile(r"[+-]?\d+(\.\d+)?(m|k|[KMGTPE]i?|e[+-]?\d+|u|n|%)?"),
    re.compile(r"\d+(\.\d+)? ?[kmgtp]?i?b?", re.IGNORECASE),
    re.compile(r"\d+-\d+"),
    re.compile(r"(\d+(\.\d+)?(h|m|s|ms|us|ns))+"),
    re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"),
    re.compile(r"[A-Z][A-Za-z]*"),
)
"""Quantities, sizes as for a JVM, intervals, durations, times, words of the APIs.

Names are in lower case.
"""


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


CLASS_KINDS = frozenset({"DeviceClass", "PriorityClass", "StorageClass"})
FIELD = re.compile(r"[A-Za-z][A-Za-z0-9]*")
WORD = re.compile(r"[^\s/,:;=|@\"'(){}\[\]<>!&+*]+")
STRING_OF_CEL = re.compile(r"\"[^\"]*\"|'[^']*'")
ENDING = re.compile(r"(-(worker)?\d+)?-?$")
"""The part of a name that is kept: its number, and for SkyPilot the word that marks workers."""

MAX_BRACKETS = 200
"""Most lists and objects in the JSON of an annotation: more could be nested too deeply."""

Replace = Callable[[str], str]
"""Maps a word to its replacement."""


def redact(documents: Sequence[Document]) -> list[Document]:
    """The same cluster under other names."""
    words: set[str] = set()
    names = frozenset(_names_of_objects(documents))

    def collect(word: str) -> str:
        words.add(word)
        return word

    for document in documents:
        _Redaction(collect, names).document(document)
    replacements = {
        word: f"name-{number:06d}{_ending(word)}" for number, word in enumerate(sorted(words))
    }
    redaction = _Redaction(replacements.__getitem__, names)
    return [redaction.document(document) for document in documents]


def _ending(word: str) -> str:
    found = ENDING.search(word)
    return found[0] if found and found.start() else ""


def _names_of_objects(documents: Sequence[Document]) -> Iterator[str]:
    """Names of objects, which may not occur in the result; classes are named like their drivers."""
    for document in documents:
        meta = document["metadata"]
        yield from filter(None, (meta.get("namespace"), meta.get("generateName")))
        if document["kind"] not in CLASS_KINDS:
            yield meta["name"]


class _Redaction:
    """Walks documents; ``change`` is called for every word that may be a private name."""

    def __init__(self, change: Replace, names: frozenset[str]) -> None:
        self._change = change
        self._names = names
        self._text = cache(self._with_stand_ins)
        self._named = cache(self._with_other_names)

    def document(self, document: Document) -> Document:
        """The document under other names."""
        copy: Document = self._map(document)
        for container in (copy.get("spec") or {}).get("containers") or ():
            container["image"] = "redacted"
        return copy

    def _map(self, fields: dict[str, Any], *, keys: Replace = str) -> dict[str, Any]:
        return {
            keys(name): self._value(name, item)
            for name, item in fields.items()
            if name not in DROPPED_FIELDS
        }

    def _value(self, field: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._field_text(field, value)
        if isinstance(value, list):
            return [self._map(x) if isinstance(x, dict) else self._value(field, x) for x in value]
        return self._fields(field, value) if isinstance(value, dict) else value

    def _fields(self, field: str, value: dict[str, Any]) -> dict[str, Any]:
        if field == "annotations":
            return dict(self._annotations(value))
        if field == "attributes":
            return {key: self._attribute(item) for key, item in value.items()}
        if field in KEYED_FIELDS:
            return {self._text(key): self._label(key, text) for key, text in value.items()}
        return self._map(value, keys=str if field in AMOUNT_FIELDS else self._field)

    def _field(self, name: str) -> str:
        """Names of API fields are single words; others are replaced."""
        return name if FIELD.fullmatch(name) else self._text(name)

    def _field_text(self, field: str, text: str) -> str:
        if field in KEPT_FIELDS:
            return text
        if field == "expression":
            return STRING_OF_CEL.sub(lambda found: self._named(found[0]), text)
        return self._text(text)

    def _with_stand_ins(self, text: str) -> str:
        if is_common(text) or (text not in self._names and is_known(text)):
            return text
        return WORD.sub(lambda found: self._word(found[0]), text)

    def _word(self, word: str) -> str:
        return word if is_common(word) else self._change(word)

    def _with_other_names(self, text: str) -> str:
        """The text with only the names of objects replaced."""

        def replaced(found: re.Match[str]) -> str:
            return self._word(found[0]) if found[0] in self._names else found[0]

        return WORD.sub(replaced, text)

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._named(value)
        if isinstance(value, list):
            return [self._attribute(item) for item in value]
        if isinstance(value, dict):
            return {key: self._attribute(item) for key, item in value.items()}
        return value

    def _label(self, key: str, value: Any) -> Any:
        if not isinstance(value, str) or tells_hardware(key):
            return value
        return self._text(value)

    def _annotations(self, annotations: dict[str, str]) -> Iterator[tuple[str, str]]:
        for key, text in annotations.items():
            if key not in DROPPED_ANNOTATIONS and (key in KNOWN_KEYS or is_known(key)):
                yield key, self._annotation(key, text)

    def _annotation(self, key: str, text: str) -> str:
        if not text.startswith(("{", "[")):
            return str(self._label(key, text))
        if text.count("{") + text.count("[") > MAX_BRACKETS:
            return self._text(text)
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return self._text(text)
        return msgspec.json.encode(self._value(key, value)).decode()
