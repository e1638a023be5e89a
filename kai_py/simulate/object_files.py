"""Kubernetes objects from files as people have them.

Accepted are lists of ``kubectl get -o json``, lists of one kind (``PodList``), streams of YAML
documents, files of ``kai-py snapshot`` (also compressed), directories of any of these, and standard
input. What cannot be read is reported and does not prevent the reading of the rest.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kai_py.api.manifests import ManifestError, read_documents
from kai_py.simulate.objects import Document, expanded, read_file

SUFFIXES = (".json", ".yaml", ".yml", ".json.gz", ".yaml.gz", ".yml.gz")
"""Files that are read in a directory; a file that is named itself may have any name."""

_SEPARATOR = re.compile(rb"^---(?:[ \t#].*)?\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class RejectedObject:
    """An object, or a part of a file, that is left out; ``object`` names it."""

    object: str
    problem: str


@dataclass(frozen=True, slots=True)
class ObjectsInFiles:
    """What was read, in the order of the files."""

    documents: list[Document] = field(default_factory=list)
    rejected: list[RejectedObject] = field(default_factory=list)


def files_below(paths: Iterable[Path]) -> Iterator[Path]:
    """The files to read: a directory stands for those below it, by name."""
    for path in paths:
        if path.is_dir():
            yield from sorted(
                each for each in path.rglob("*") if each.is_file() and each.name.endswith(SUFFIXES)
            )
        else:
            yield path


def read_object_files(
    paths: Iterable[Path], read_input: Callable[[], bytes] = lambda: b""
) -> ObjectsInFiles:
    """Read the objects of files and directories; raises OSError where a path cannot be read.

    ``read_input`` gives the content of the path ``-``.
    """
    found = ObjectsInFiles()
    for path in files_below(paths):
        name = "stdin" if str(path) == "-" else str(path)
        try:
            content = read_input() if str(path) == "-" else read_file(path)
            for part in _values(expanded(content)):
                _collect(part, name, found)
        except ValueError as error:
            found.rejected.append(RejectedObject(name, str(error)))
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """A value of a file at a line; ``problem`` in place of the value where it is not readable."""

    line: int
    value: Any = None
    problem: str = ""


def _values(content: bytes) -> Iterator[_Part]:
    if content.lstrip()[:1] in (b"{", b"["):
        try:
            yield _Part(1, msgspec.json.decode(content))
        except (ValueError, RecursionError) as error:
            yield _Part(1, problem=f"is not JSON: {error}")
        return
    begin, line = 0, 1
    for end, following in [*((m.start(), m.end()) for m in _SEPARATOR.finditer(content)), (-1, -1)]:
        text = content[begin:] if end < 0 else content[begin:end]
        yield from _documents(text, line)
        if end >= 0:
            line += content.count(b"\n", begin, following)
            begin = following


def _documents(text: bytes, line: int) -> Iterator[_Part]:
    """The documents of one part of a YAML stream, whose first line is ``line``."""
    try:
        for document in read_documents(text.decode("utf-8")):
            yield _Part(line + document.node.start_mark.line, document.value)
    except ManifestError as error:
        yield _Part(line + error.line - 1, problem=error.reason)
    except UnicodeDecodeError:
        yield _Part(line, problem="is not UTF-8 text")


def _collect(part: _Part, file: str, found: ObjectsInFiles) -> None:
    where = f"{file}:{part.line}"
    if part.problem:
        found.rejected.append(RejectedObject(where, part.problem))
        return
    for index, value in _items(part.value):
        place = where if index is None else f"{where} items[{index}]"
        problem = _problem(value)
        if problem:
            found.rejected.append(RejectedObject(place, problem))
        else:
            found.documents.append(value)


def _items(value: Any) -> Iterator[tuple[int | None, Any]]:
    """The objects of a list with their positions, or the one object without a position."""
    if isinstance(value, list):
        yield from enumerate(value)
        return
    is_object = isinstance(value, dict)
    kind = value.get("kind") if is_object else None
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in value:
        # A raw ``{"items": […]}`` is what the API returns to programs that drop kind and version.
        if (
            is_object
            and set(value) <= {"items", "metadata"}
            and isinstance(value.get("items"), list)
        ):
            yield from enumerate(value["items"])
            return
        yield None, value
        return
    names = {}
    if kind != "List" and isinstance(value.get("apiVersion"), str):
        names = {"apiVersion": value["apiVersion"], "kind": kind.removesuffix("List")}
    for index, item in enumerate(value["items"] or ()):
        yield index, names | item if isinstance(item, dict) else item


def _problem(value: Any) -> str:
    """Why a value is no object of Kubernetes; empty if it is one."""
    if not isinstance(value, dict):
        return "is not a Kubernetes object"
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            return f"has no {name}"
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return f"{value['kind']} has no metadata"
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return f"{value['kind']} has no metadata.name"
    if not isinstance(metadata.get("namespace") or "", str):
        return f"{value['kind']} {metadata['name']}: metadata.namespace is not a text"
    return ""
