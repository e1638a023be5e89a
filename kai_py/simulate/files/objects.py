"""The objects of a cluster as a list of documents: read from the API, kept in a file, loaded.

Exactly what the scheduler reads is kept, as the server returns it: the kinds that it watches, and
of other kinds the objects that own any of these. A simulation of them sees what the scheduler sees.

File format: a Kubernetes ``List`` of objects, which ``kubectl`` can read too.
"""

import gzip
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from kai_py.api.records.core import OwnerReference
from kai_py.api.records.unstructured import value_at, without_depths
from kai_py.embedded.documents import owners_of
from kai_py.grouping.owner_chain import GroupKind, kind_of
from kai_py.watch.client import Client
from kai_py.watch.discovery import ServedApis, discover, find_kind
from kai_py.watch.errors import Forbidden, NotFound, Unreachable
from kai_py.watch.kinds import WATCHED
from kai_py.watch.resource import Kind, Resource
from kai_py.watch.wire import decode_nested

Document: TypeAlias = dict[str, Any]


MAX_BYTES = 1 << 30
"""Most that a file has or expands to; 100,000 pods of 7 KB have 0.7 GiB."""


KUSTOMIZE_GROUP = "kustomize.config.k8s.io/"
SERVICE_ACCOUNT = "ServiceAccount"
IDENTITY = ("name", "namespace", "uid")


class _Items(msgspec.Struct):
    items: list[Document] = []


_decode_items = msgspec.json.Decoder(_Items).decode


class _Saved(msgspec.Struct):
    """A file of objects: without ``items`` it is a file of something else."""

    items: list[Document]


class ObjectsError(ValueError):
    """The file does not hold the objects of a cluster; the message names file and reason."""


async def read_objects(
    client: Client, on_refused: Callable[[Kind[Any]], None] | None = None
) -> list[Document]:
    """Every object that the scheduler watches, and the owners of these; raises ApiError.

    With ``on_refused``, an optional kind that we may not read is passed to it and left out. None is
    left out because its server does not answer.
    """
    documents: list[Document] = []
    found = await discover(client, WATCHED, {})
    for kind, reason in found.unanswered.items():
        raise Unreachable(f"cannot tell whether {kind.permission} are served: {reason}")
    for resource in found.served.values():
        try:
            documents += await _read(client, resource)
        except Forbidden:
            if on_refused is None or resource.kind.required:
                raise
            on_refused(resource.kind)
    return documents + await _read_owners(client, documents)


async def read_service_accounts(client: Client, documents: Sequence[Document]) -> list[Document]:
    """The names of all ServiceAccounts, if a workload without pods names one.

    Without an account the API server creates no pods. None where they may not be read.
    """
    owning = {each.uid for document in documents for each in _owner_references(document)}
    if not any(
        account_of(each) and each["metadata"].get("uid") not in owning
        for each in documents
        if each["kind"] != "Pod"
    ):
        return []
    found = await _of_kind(client, ServedApis(client), GroupKind("", SERVICE_ACCOUNT))
    return [
        {**each, "metadata": {key: each["metadata"].get(key) for key in IDENTITY}} for each in found
    ]


def account_of(workload: Document) -> str:
    """The ServiceAccount that the pods of a workload have, "" where it names none."""
    return str(value_at(workload, "spec.template.spec.serviceAccountName") or "")


async def _read_owners(client: Client, documents: Sequence[Document]) -> list[Document]:
    """Owners, transitively, of kinds that are not read anyway; unreadable kinds are left out."""
    requested = {GroupKind(kind.group, kind.name) for kind in WATCHED}
    listed: dict[str, Document] = {}
    found: list[Document] = []
    apis = ServedApis(client)
    level = list(documents)
    while level:
        references = [each for document in level for each in _owner_references(document)]
        for kind in dict.fromkeys(map(kind_of, references)):
            if kind not in requested:
                requested.add(kind)
                of_kind = await _of_kind(client, apis, kind)
                listed |= {each["metadata"]["uid"]: each for each in of_kind}
        uids = dict.fromkeys(each.uid for each in references)
        level = [listed.pop(uid) for uid in uids if uid in listed]
        found += level
    return found


async def _of_kind(client: Client, apis: ServedApis, kind: GroupKind) -> list[Document]:
    try:
        served = await find_kind(apis, kind, None)
        return [] if served is None else await _read(client, served.at())
    except (Forbidden, NotFound):
        return []


def _owner_references(document: Document) -> list[OwnerReference]:
    return msgspec.convert(owners_of(document), list[OwnerReference])


async def _read(client: Client, resource: Resource[Any]) -> list[Document]:
    body = await client.read(resource.collection(), kind=resource.kind.name)
    items = decode_nested(_decode_items, body).items
    names = {"apiVersion": resource.api_version, "kind": resource.kind.name}
    documents = [{**names, **_without_history(item)} for item in items]
    # Copies, and other processes, would fail on what is nested deeply. Pods and nodes, of which
    # there are most, have a schema.
    return list(map(without_depths, documents)) if resource.kind.group else documents


def _without_history(document: Document) -> Document:
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}


def object_list(documents: Iterable[Document]) -> bytes:
    """The content of a file of objects."""
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(documents)})


def write_objects(path: Path, documents: Iterable[Document]) -> None:
    """Write a file, compressed if its name ends in .gz; raises OSError."""
    text = object_list(documents)
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def read_file(path: Path) -> bytes:
    """The content of a file; raises OSError that names it, and ValueError if it is enormous."""
    try:
        with path.open("rb") as opened:
            return read_stream(opened)
    except OSError as error:
        error.filename = str(path)
        raise


def read_stream(stream: BinaryIO) -> bytes:
    """What is left of a stream; raises OSError, and ValueError if it is enormous."""
    content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES >> 30} GiB")
    return content


def expanded(content: bytes) -> bytes:
    """The content without compression; raises ValueError for damaged or enormous content."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    parts: list[bytes] = []
    left = MAX_BYTES
    while content:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            parts.append(member.decompress(content, left))
        except zlib.error as error:
            raise ValueError(f"is damaged: {error}") from None
        if not member.eof:
            raise ValueError(
                f"expands to more than {MAX_BYTES >> 30} GiB"
                if member.unconsumed_tail
                else "is damaged: the end is missing"
            )
        left, content = max(left - len(parts[-1]), 1), member.unused_data
    return b"".join(parts)


def object_problem(value: Any) -> str:
    """Why a value is no object of Kubernetes; empty if it is one."""
    if not isinstance(value, dict):
        return "is not a Kubernetes object"
    for name in ("apiVersion", "kind"):
        if not is_name(value.get(name)):
            return _without_text(value, name, name)
    kind = value["kind"]
    if value["apiVersion"].startswith(KUSTOMIZE_GROUP):
        return f"{kind} is read by kustomize alone: give what kubectl kustomize prints"
    if kind.endswith("List") and "items" in value:
        return f"items of {kind} is not a list"
    return _metadata_problem(kind, value.get("metadata"))


def _without_text(mapping: Document, key: str, path: str) -> str:
    return f"has no {path if mapping.get(key) in (None, '') else f'text as {path}'}"


def _metadata_problem(kind: str, metadata: Any) -> str:
    if not isinstance(metadata, dict):
        return f"{kind} has no metadata"
    if not is_name(metadata.get("name")):
        return f"{kind} {_without_text(metadata, 'name', 'metadata.name')}"
    return next(
        (
            f"{kind} {metadata['name']}: metadata.{name} is not a {form}"
            for name, (form, is_right) in _METADATA.items()
            if metadata.get(name) and not is_right(metadata[name])
        ),
        "",
    )


def is_name(value: Any) -> bool:
    """A text that can be printed, so that a problem can name the object."""
    return isinstance(value, str) and value != "" and value.isprintable()


_METADATA: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "namespace": ("text", is_name),
    "uid": ("text", is_name),
    "ownerReferences": ("list", lambda value: isinstance(value, list)),
}
"""What is read of an object's metadata before its kind is known."""


def load_objects(path: Path) -> Sequence[Document]:
    """Read a file written by ``write_objects``; raises ObjectsError."""
    try:
        documents = msgspec.json.decode(expanded(read_file(path)), type=_Saved).items
    except RecursionError:
        raise ObjectsError(f"{path}: is nested too deeply") from None
    except OSError as error:
        raise ObjectsError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        hint = "give a file of kai-py snapshot or a list of kubectl -o json"
        raise ObjectsError(f"{path}: is not a snapshot of a cluster ({hint}): {error}") from None
    for number, document in enumerate(documents):
        problem = object_problem(document)
        if problem:
            raise ObjectsError(f"{path}: items[{number}] {problem}")
    return documents
