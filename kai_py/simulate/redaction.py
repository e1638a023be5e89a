"""A cluster that can be shown to strangers: the same decisions under other names.

Every name that somebody chose for an object, and every text that equals one (a label that repeats
a node's name, a reference to a queue), becomes a stand-in. Stand-ins sort as the names do, so ties
break the same way. Names of classes and drivers stay, because CEL expressions contain them. What
the scheduler never reads and may hold secrets (commands, environment, long annotations) is dropped.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kai_py.simulate.objects import Document

PUBLIC_KINDS = frozenset(
    {"DeviceClass", "PriorityClass", "StorageClass", "DeviceTaintRule", "CustomResourceDefinition"}
)
DROPPED_FIELDS = frozenset(
    {"command", "args", "env", "envFrom", "volumeMounts", "image", "imageID", "managedFields"}
)
LONGEST_ANNOTATION = 63


def redact(documents: Sequence[Document]) -> list[Document]:
    """The same cluster under other names."""
    names = sorted({name for document in documents for name in _chosen_names(document)})
    stand_ins = {name: f"name-{number:06d}" for number, name in enumerate(names)}
    return [_redacted(document, stand_ins) for document in documents]


def _chosen_names(document: Document) -> Iterator[str]:
    meta = document["metadata"]
    if document["kind"] not in PUBLIC_KINDS:
        yield meta["name"]
        if meta.get("generateName"):
            yield meta["generateName"]
    if meta.get("namespace"):
        yield meta["namespace"]
    for owner in meta.get("ownerReferences") or ():
        yield owner["name"]


def _redacted(document: Document, stand_ins: dict[str, str]) -> Document:
    copy: Document = _renamed(document, stand_ins)
    annotations = copy["metadata"].get("annotations") or {}
    kept = {key: text for key, text in annotations.items() if len(text) <= LONGEST_ANNOTATION}
    copy["metadata"]["annotations"] = kept
    for container in (copy.get("spec") or {}).get("containers") or ():
        container.setdefault("image", "redacted")
    return copy


def _renamed(value: Any, stand_ins: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _renamed(item, stand_ins)
            for key, item in value.items()
            if key not in DROPPED_FIELDS
        }
    if isinstance(value, list):
        return [_renamed(item, stand_ins) for item in value]
    return stand_ins.get(value, value) if isinstance(value, str) else value
