"""Objects of kinds without a record: metadata, and the fields that a rule names.

Fields are addressed by dotted paths; ``*`` stands for every item of a list or value of a mapping:
``spec.workerGroupSpecs.*.minReplicas``. Everything that no path names is dropped on decoding:
unused pod templates would cost more memory than all the rest.

Nothing deeper than ``MAX_NESTING`` levels is kept: comparing and printing it would fail.

``same_owner`` compares two versions of an owner or group by what pods are derived from, because
conditions and bookkeeping, some of which this scheduler writes, change far more often.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata
from kai_py.api.records.job import Job
from kai_py.api.records.kai import KaiPodGroup
from kai_py.api.records.record import Record, record_decoder

MAX_NESTING = 200
"""Levels of JSON that are read; Kubernetes accepts 10,000, where a schema allows any value."""
EACH = "*"
Trie = dict[str, "Trie"]
"""Fields to keep by name; an empty trie keeps everything below."""


class Unstructured(Record, frozen=True):
    """Any object: metadata and the kept fields, keys as the API spells them."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    content: dict[str, Any] = msgspec.field(default_factory=dict)

    def all_at(self, path: str) -> tuple[Any, ...]:
        """Every value at ``path``, in order, without absent and null ones."""
        return tuple(values_at(self.content, path))

    def first_at(self, path: str) -> Any | None:
        """The first value at ``path``, None if there is none."""
        return next(values_at(self.content, path), None)

    def conditions(self) -> list[dict[str, Any]]:
        """The conditions of its status that have a type, in order."""
        listed = [each for each in self.all_at("status.conditions.*") if isinstance(each, dict)]
        return [each for each in listed if isinstance(each.get("type"), str)]


class _Envelope(Record, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


def unstructured_decoder(paths: Iterable[str]) -> Callable[[bytes | msgspec.Raw], Unstructured]:
    """A decoder that keeps metadata and the fields at ``paths``."""
    trie = _trie(paths)
    envelope = record_decoder(_Envelope)

    def decode(raw: bytes | msgspec.Raw) -> Unstructured:
        decoded = envelope(raw)
        return Unstructured(
            api_version=decoded.api_version,
            kind=decoded.kind,
            metadata=decoded.metadata,
            content=_wanted_fields(msgspec.json.decode(raw), trie),
        )

    return decode


def unstructured(value: Mapping[str, Any], paths: Iterable[str]) -> Unstructured:
    """The object that a decoder for ``paths`` makes of a mapping."""
    return unstructured_decoder(paths)(msgspec.json.encode(value))


def values_at(value: Any, path: str) -> Iterator[Any]:
    """Every value at ``path`` below ``value``; none where the path does not exist."""
    head, _, rest = path.partition(".")
    if head != EACH:
        below = [value[head]] if isinstance(value, dict) and head in value else []
    elif isinstance(value, dict):
        below = list(value.values())
    else:
        below = value if isinstance(value, list) else []
    for each in below:
        if rest:
            yield from values_at(each, rest)
        elif each is not None:
            yield each


def value_at(value: Any, path: str) -> Any:
    """The value at a path without ``*``; None where there is none."""
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def mapping_at(value: Any, path: str) -> dict[str, Any]:
    """The mapping at a path without ``*``; empty where there is none."""
    found = value_at(value, path)
    return found if isinstance(found, dict) else {}


def mappings_in(value: object) -> Iterator[dict[str, Any]]:
    """Every mapping in ``value``, those further out first."""
    left = deque([value])
    while left:
        each = left.popleft()
        if isinstance(each, dict):
            yield each
            left += each.values()
        elif isinstance(each, list):
            left += each


def without_depths(value: Any) -> Any:
    """``value`` with null in place of what is nested more than ``MAX_NESTING`` deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_NESTING + 1):
        if not level:
            return value
        level = [below for each in level for below in _nested_in(each)]
    return _cut(value, MAX_NESTING)


def _nested_in(value: dict[str, Any] | list[Any]) -> Iterator[Any]:
    values = value.values() if isinstance(value, dict) else value
    return (each for each in values if isinstance(each, dict | list))


def _cut(value: Any, levels: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if not levels:
        return None
    if isinstance(value, list):
        return [_cut(each, levels - 1) for each in value]
    return {key: _cut(each, levels - 1) for key, each in value.items()}


def _trie(paths: Iterable[str]) -> Trie:
    root: Trie = {}
    whole: list[Trie] = []
    for path in paths:
        node = root
        for part in path.split("."):
            node = node.setdefault(part, {})
        whole.append(node)
    for node in whole:
        node.clear()
    return _expand_wildcards(root)


def _expand_wildcards(node: Trie) -> Trie:
    """Merge what is kept of every field into the fields that are named."""
    wildcard = node.get(EACH)
    return {
        name: _expand_wildcards(
            below if wildcard is None or name == EACH else _union(below, wildcard)
        )
        for name, below in node.items()
    }


def _union(one: Trie, other: Trie) -> Trie:
    if not one or not other:
        return {}
    names = dict.fromkeys((*one, *other))
    return {
        name: _union(one[name], other[name])
        if name in one and name in other
        else one.get(name, other.get(name, {}))
        for name in names
    }


def _wanted_fields(value: Any, wanted: Trie) -> Any:
    if not wanted:
        return without_depths(value)
    if isinstance(value, list):
        below = wanted.get(EACH)
        return [] if below is None else [_wanted_fields(each, below) for each in value]
    if not isinstance(value, dict):
        return value
    wildcard = wanted.get(EACH)
    kept: dict[str, Any] = {}
    for key, each in value.items():
        below = wanted.get(key, wildcard)
        if below is not None:
            kept[key] = _wanted_fields(each, below)
    return kept


def same_owner(old: object, new: object) -> bool:
    """Whether two versions of an owner, group or namespace are equal in all that pods depend on."""
    match old, new:
        case PartialObjectMetadata(), PartialObjectMetadata():
            return _relevant_metadata(old.metadata) == _relevant_metadata(new.metadata)
        case Unstructured(), Unstructured():
            return _relevant_content(old) == _relevant_content(new)
        case KaiPodGroup(), KaiPodGroup():
            return _relevant_group_parts(old) == _relevant_group_parts(new)
        case Job(), Job():
            return _relevant_job_parts(old) == _relevant_job_parts(new)
    return False


def _relevant_job_parts(job: Job) -> tuple[object, ...]:
    status = job.status
    ended = status.succeeded, status.failed_indexes, status.failed_pods
    return job.spec, ended, _relevant_metadata(job.metadata)


def _relevant_content(found: Unstructured) -> tuple[object, ...]:
    status = found.content.get("status")
    if isinstance(status, dict):
        status = {name: value for name, value in status.items() if name != "conditions"}
    return {**found.content, "status": status or None}, _relevant_metadata(found.metadata)


def _relevant_group_parts(group: KaiPodGroup) -> tuple[object, ...]:
    pools = [each.node_pool for each in group.status.scheduling_conditions]
    return group.spec, pools, _relevant_metadata(group.metadata)


def _relevant_metadata(meta: ObjectMeta) -> tuple[object, ...]:
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, meta.deletion_timestamp
