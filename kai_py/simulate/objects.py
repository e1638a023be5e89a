"""A cluster as a list of documents: read from an API server, kept in a file, loaded again.

Exactly the kinds that the scheduler watches are kept, as the server gives them: whoever loads them
sees what the scheduler sees. Source of the file's form: a Kubernetes ``List`` of objects, so that
``kubectl`` can read it too.
"""

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from kai_py.watch.client import Client
from kai_py.watch.discovery import discover
from kai_py.watch.kinds import WATCHED
from kai_py.watch.resource import Resource

Document: TypeAlias = dict[str, Any]


class _Items(msgspec.Struct):
    items: list[Document] = []


class ObjectsError(ValueError):
    """A file does not hold the objects of a cluster; the message names the file and the reason."""


async def read_objects(client: Client) -> list[Document]:
    """Every object that the scheduler watches; raises ApiError."""
    documents: list[Document] = []
    served = await discover(client, WATCHED, {})
    for resource in served.values():
        documents += await _read(client, resource)
    return documents


async def _read(client: Client, resource: Resource[Any]) -> list[Document]:
    body = await client.read(resource.collection(), kind=resource.kind.name)
    items = msgspec.json.decode(body, type=_Items).items
    names = {"apiVersion": resource.api_version, "kind": resource.kind.name}
    return [{**names, **_without_history(item)} for item in items]


def _without_history(document: Document) -> Document:
    kept = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": kept}


def write_objects(path: Path, documents: Iterable[Document]) -> None:
    """Write a file, compressed when its name ends in .gz; raises OSError."""
    text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(documents)})
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def load_objects(path: Path) -> Sequence[Document]:
    """Read a file that ``write_objects`` wrote; raises ObjectsError."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        documents = msgspec.json.decode(content, type=_Items).items
    except (OSError, EOFError, ValueError) as error:
        raise ObjectsError(f"{path}: is no snapshot of a cluster: {error}") from None
    for number, document in enumerate(documents):
        named = isinstance(document.get("metadata"), dict) and document["metadata"].get("name")
        if not (named and document.get("kind") and document.get("apiVersion")):
            raise ObjectsError(f"{path}: items[{number}] has no apiVersion, kind or name")
    return documents
