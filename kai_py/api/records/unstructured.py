"""An object of a kind that we have no record for: its metadata, and the fields that a rule names.

Fields are addressed by dotted paths; ``*`` stands for every item of a list or value of a mapping:
``spec.workerGroupSpecs.*.minReplicas``. Everything that no path names is dropped on arrival: a pod
template that nobody reads would cost more than all the rest.

Does a change of an owner say anything new? Status and bookkeeping change far more often.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata, Record
from kai_py.api.records.job import Job

EACH = "*"
Trie = dict[str, "Trie"]
"""Wanted fields by name; an empty one wants everything below."""


class Unstructured(Record, frozen=True):
    """Any object: metadata and the kept part of what it says, keys as the API spells them."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    content: dict[str, Any] = msgspec.field(default_factory=dict)

    def all_at(self, path: str) -> tuple[Any, ...]:
        """Every value at ``path``, in the order in which they stand; absent and null ones not."""
        return tuple(values_at(self.content, path))

    def first_at(self, path: str) -> Any | None:
        """The first value at ``path``, None if there is none."""
        return next(values_at(self.content, path), None)


class _Envelope(Record, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


def unstructured_decoder(paths: Iterable[str]) -> Callable[[bytes | msgspec.Raw], Unstructured]:
    """A decoder that keeps metadata and the fields at ``paths``."""
    wanted = _trie(paths)
    envelope = msgspec.json.Decoder(_Envelope)

    def decode(raw: bytes | msgspec.Raw) -> Unstructured:
        head = envelope.decode(raw)
        return Unstructured(
            api_version=head.api_version,
            kind=head.kind,
            metadata=head.metadata,
            content=_wanted_fields(msgspec.json.decode(raw), wanted),
        )

    return decode


def unstructured(value: Mapping[str, Any], paths: Iterable[str]) -> Unstructured:
    """The document that a decoder for ``paths`` makes of an object given as a mapping."""
    return unstructured_decoder(paths)(msgspec.json.encode(value))


def values_at(value: Any, path: str) -> Iterator[Any]:
    """Every value at ``path`` below ``value``; a path that leads nowhere has none."""
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
    """What is wanted of every field is also wanted of the fields that are named."""
    every = node.get(EACH)
    return {
        name: _expand_wildcards(below if every is None or name == EACH else _union(below, every))
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
        return value
    if isinstance(value, list):
        below = wanted.get(EACH)
        return [] if below is None else [_wanted_fields(each, below) for each in value]
    if not isinstance(value, dict):
        return value
    every = wanted.get(EACH)
    kept: dict[str, Any] = {}
    for key, each in value.items():
        below = wanted.get(key, every)
        if below is not None:
            kept[key] = _wanted_fields(each, below)
    return kept


def same_owner(old: object, new: object) -> bool:
    """Whether two states of an owner or namespace are alike in everything that is read of them."""
    match old, new:
        case PartialObjectMetadata(), PartialObjectMetadata():
            return _relevant_metadata(old.metadata) == _relevant_metadata(new.metadata)
        case Unstructured(), Unstructured():
            return old.content == new.content and _relevant_metadata(
                old.metadata
            ) == _relevant_metadata(new.metadata)
        case Job(), Job():
            return _relevant_job_parts(old) == _relevant_job_parts(new)
    return False


def _relevant_job_parts(job: Job) -> tuple[object, ...]:
    return job.spec, job.status.succeeded, _relevant_metadata(job.metadata)


def _relevant_metadata(meta: ObjectMeta) -> tuple[object, ...]:
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, meta.deletion_timestamp
