"""Kubernetes objects from files in the forms that users have.

Accepted are lists of ``kubectl get -o json``, lists of one kind (``PodList``), several of these one
after another, streams of YAML documents, files of ``kai-py snapshot`` (also compressed),
directories of any of these, and standard input. What cannot be read is reported and does not
prevent the reading of the rest.
"""

import codecs
import contextlib
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

from kai_py.api.manifests import (
    BYTE_ORDER_MARK,
    MAX_CHARACTERS,
    ManifestError,
    TextTooLargeError,
    read_documents,
)
from kai_py.simulate.files.objects import Document, expanded, is_name, object_problem, read_file

SUFFIXES = (".json", ".yaml", ".yml", ".json.gz", ".yaml.gz", ".yml.gz")
"""Files that are read in a directory, in either case; one that is named may have any name."""

_SEPARATOR = re.compile(rb"^---(?:[ \t#].*)?\r?$", re.MULTILINE)
_JSON = re.compile(rf"[\s{BYTE_ORDER_MARK}]*([{{\[][\s{{\[]*[\"}}\]])")
"""How JSON begins, unlike the flow style of YAML: ``{kind: Pod}``."""
_MAX_CORRECTED = 2 << 20
"""Characters of JSON with mistakes that is read as YAML: an object has at most 1.5 MiB."""
_EMPTY = re.compile(rb"(?:[ \t\r]*(?:[%#].*)?\n)*[ \t\r]*(?:[%#].*)?")
"""Nothing but comments and directives."""
_TWICE = "{} is set twice in one mapping: the first one is lost"
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""By the mark at the beginning of a file; ``>`` of PowerShell writes UTF-16."""


class ObjectKey(NamedTuple):
    """An object in any version of its kind."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """As messages name objects: ``Pod default/train-0``."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}"


def key_of(document: Document) -> ObjectKey:
    """The key of an object that has a namespace where its kind needs one."""
    meta, group = document["metadata"], document["apiVersion"].rpartition("/")[0]
    return ObjectKey(group, document["kind"], meta.get("namespace") or "", meta["name"])


class RejectedObject(Struct, frozen=True, order=True):
    """An object, or a part of a file, that is left out; ``object`` names it."""

    object: str
    problem: str


class ObjectsInFiles(Struct, frozen=True):
    """What was read, in the order of the files."""

    documents: list[Document] = field(default_factory=list)
    rejected: list[RejectedObject] = field(default_factory=list)


def files_below(paths: Iterable[Path]) -> Iterator[Path]:
    """The files to read: a directory stands for those below it, by name."""
    for path in paths:
        if path.is_dir():
            yield from sorted(
                each
                for each in path.rglob("*")
                if each.is_file() and each.name.lower().endswith(SUFFIXES)
            )
        else:
            yield path


def read_object_files(
    paths: Iterable[Path], read_input: Callable[[], bytes] = lambda: b""
) -> ObjectsInFiles:
    """Read the objects of files and directories; raises OSError where a path cannot be read.

    ``read_input`` gives the content of the path ``-``.
    """
    found, generated = ObjectsInFiles(), _GeneratedNames()
    for path in files_below(paths):
        name = "stdin" if str(path) == "-" else os.fsencode(path).decode(errors="replace")
        try:
            content = read_input() if str(path) == "-" else read_file(path)
            for part in _values(as_utf8(expanded(content))):
                _collect(part, name, found, generated)
        except ValueError as error:
            found.rejected.append(RejectedObject(name, str(error)))
    return found


def as_utf8(content: bytes) -> bytes:
    """The content without the mark of its encoding; raises UnicodeDecodeError."""
    for mark, encoding in _ENCODINGS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding).encode()
    return content


class _Part(Struct, frozen=True):
    """A value of a file at a line; ``problem`` in place of the value where it is not readable."""

    line: int
    value: Any = None
    problem: str = ""


def _values(content: bytes) -> Iterator[_Part]:
    if _JSON.match(content[:1000].decode(errors="replace")):
        # Nearly every file is one value, of up to a gigabyte, for which this reader is fastest.
        with contextlib.suppress(ValueError, RecursionError):
            yield _Part(1, msgspec.json.decode(content))
            if len(content) <= MAX_CHARACTERS:  # what is larger, programs have written
                yield from (part for part in _stream(content, 1) if part.problem)
            return
    begin, line = 0, 1
    for end, following in [*((m.start(), m.end()) for m in _SEPARATOR.finditer(content)), (-1, -1)]:
        text = content[begin:] if end < 0 else content[begin:end]
        if not _EMPTY.fullmatch(text):
            yield from _stream(text, line)
        if end >= 0:
            line += content.count(b"\n", begin, following)
            begin = following


def _stream(content: bytes, line: int) -> Iterator[_Part]:
    """JSON values one after another, then documents of YAML; ``line``: the first one's."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        yield _Part(line, problem="is not UTF-8 text")
        return
    position = 0
    while found := _JSON.match(text, position):
        start = found.start(1)
        line += text.count("\n", position, start)
        repeated: list[str] = []
        try:
            value, position = _json_decoder(repeated).raw_decode(text, start)
        except RecursionError:
            yield _Part(line, problem="is nested too deeply")
            return
        except json.JSONDecodeError as error:
            yield from _corrected_json(text[start:], line, f"is not JSON: {error}")
            return
        except ValueError as error:
            yield _Part(line, problem=f"is not JSON: {error}")
            return
        yield _Part(line, value)
        yield from (_Part(line, problem=_TWICE.format(key)) for key in repeated)
        line += text.count("\n", start, position)
    yield from _documents(text[position:], line)


def _corrected_json(text: str, line: int, problem: str) -> Iterator[_Part]:
    """What YAML allows and JSON does not, as a comma after the last item; else the problem."""
    parts = [*_documents(text, line)] if len(text) <= _MAX_CORRECTED else []
    is_yaml = bool(parts) and not parts[0].problem
    yield from parts if is_yaml else [_Part(line, problem=problem)]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _json_decoder(repeated: list[str]) -> json.JSONDecoder:
    """A decoder that adds keys to ``repeated`` that are twice in one mapping."""

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.extend(key for key, count in counts.items() if count > 1)
        return value

    return json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=mapping)


def _documents(text: str, line: int) -> Iterator[_Part]:
    """The documents of one part of a YAML stream, whose first line is ``line``."""
    try:
        for document in read_documents(text):
            yield _Part(line + document.node.start_mark.line, document.value)
            for repeated, key in document.repeated_keys:
                yield _Part(line + repeated - 1, problem=_TWICE.format(key))
    except TextTooLargeError as error:
        yield _Part(line, problem=f"{error.reason}, or as JSON")
    except ManifestError as error:
        yield _Part(line + error.line - 1, problem=error.reason)


def _collect(part: _Part, file: str, found: ObjectsInFiles, generated: "_GeneratedNames") -> None:
    where = f"{file}:{part.line}"
    if part.problem:
        found.rejected.append(RejectedObject(where, part.problem))
        return
    values = [(where, part.value)]
    while values:
        place, value = values.pop()
        items = list_items(value)
        if items is not None:
            named = ((f"{place} items[{index}]", item) for index, item in enumerate(items))
            values += reversed([*named])
            continue
        value = generated.named(value)
        problem = object_problem(value)
        if problem:
            found.rejected.append(RejectedObject(place, problem))
        else:
            found.documents.append(value)


def list_items(value: Any) -> list[Any] | None:
    """The items of a list, with the kind that the list says they have; None of anything else."""
    if not isinstance(value, dict):
        return value if isinstance(value, list) else None
    kind, items = value.get("kind"), value.get("items")
    # A raw ``{"items": […]}`` is what the API returns to programs that drop kind and version.
    is_raw = bool(value) and set(value) <= {"items", "metadata"}
    if not is_raw and not (isinstance(kind, str) and kind.endswith("List")):
        return None
    if items is None and ("items" in value or kind == "List"):
        return []
    if not isinstance(items, list):
        return None
    if is_raw or kind == "List" or not isinstance(value.get("apiVersion"), str):
        return items
    names = {"apiVersion": value["apiVersion"], "kind": str(kind).removesuffix("List")}
    return [names | item if isinstance(item, dict) else item for item in items]


class _GeneratedNames:
    """Names of objects that leave them to the API server, which adds five characters at random.

    The same objects get the same names, in whatever order they are read.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def named(self, value: Any) -> Any:
        """The value; with a name if it is an object with ``generateName`` alone."""
        metadata = value.get("metadata") if isinstance(value, dict) else None
        if not isinstance(metadata, dict) or metadata.get("name"):
            return value
        prefix = metadata.get("generateName")
        if not isinstance(prefix, str) or not is_name(prefix):
            return value
        text = json.dumps(value, sort_keys=True, default=str)
        suffix = hashlib.sha256(f"{self._seen[text]} {text}".encode()).hexdigest()[:5]
        self._seen[text] += 1
        return {**value, "metadata": {**metadata, "name": prefix[:_LONGEST_PREFIX] + suffix}}


_LONGEST_PREFIX = 58
