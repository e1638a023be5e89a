"""Manifests under check, and the findings about them.

A manifest is one object, and knows the others given with it. Rules read and correct
``Manifest.value`` in place. Mappings and lists know their lines, and keep them when they move, so a
finding names the line in the user's file whatever was corrected before.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from msgspec import Struct

from kai_py.api.manifests import LineMapping, LineSequence, line_at
from kai_py.api.problems import FieldPath, closest_match, field_path

RESOURCE_GROUP = "resource.k8s.io"
MAX_LISTED_FIELDS = 12
"""Fields that an object may have are listed for one that it may not, unless there are more."""


class Severity(enum.StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """The API rejects it, drops it silently, or it can never have the intended effect."""
    HINT = "hint"
    """Valid, but perhaps not what was meant, or dependent on objects outside the file."""


class Finding(Struct, frozen=True):
    """One finding on one object of a file."""

    line: int
    """Line in the file, from 1."""
    subject: str
    """The object, as ``Kind/name``; empty for the file itself."""
    field: str
    """Path of the field in the file."""
    message: str
    """What happens, and the remedy."""
    severity: Severity = Severity.ERROR
    fixed: bool = False
    """Whether the valid form has it corrected."""

    def text(self, file: str) -> str:
        """The finding as one line, ``file:line: Kind/name: field: message``."""
        location = ": ".join(
            part for part in (f"{file}:{self.line}", self.subject, self.field) if part
        )
        hint = "hint: " if self.severity is Severity.HINT else ""
        return f"{location}: {hint}{' '.join(self.message.split())}"


@dataclass(slots=True)
class Manifest:
    """One object; ``value`` is corrected in place."""

    value: LineMapping
    together: Sequence[Self] = field(default=(), repr=False, compare=False)
    """All objects that are checked together, this one too, for references between them."""

    @property
    def kind(self) -> str:
        """The kind, or an empty text."""
        return text_at(self.value, "kind")

    @property
    def api_version(self) -> str:
        """The API version as written, or an empty text."""
        return text_at(self.value, "apiVersion")

    @property
    def group(self) -> str:
        """The API group; empty for core."""
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The object's name, or an empty text."""
        return text_at(self.value, "metadata", "name")

    @property
    def namespace(self) -> str:
        """The object's namespace, or an empty text."""
        return text_at(self.value, "metadata", "namespace")

    @property
    def subject(self) -> str:
        """The object in findings, as ``Kind/name``."""
        return f"{self.kind or 'object'}/{self.name or '(without a name)'}"

    def is_a(self, group: str, *kinds: str) -> bool:
        """Whether the object is of this API group and one of these kinds."""
        return self.group == group and self.kind in kinds

    def all_of(self, group: str, *kinds: str) -> list[Self]:
        """The objects of these kinds among those that are checked together."""
        return [each for each in self.together if each.is_a(group, *kinds)]

    def error(self, path: FieldPath, message: str, *, fixed: bool = False) -> Finding:
        """A finding that the API rejects or drops the field."""
        return self._finding(path, message, Severity.ERROR, fixed=fixed)

    def hint(self, path: FieldPath, message: str, *, fixed: bool = False) -> Finding:
        """A finding that is valid but perhaps not meant."""
        return self._finding(path, message, Severity.HINT, fixed=fixed)

    def _finding(
        self, path: FieldPath, message: str, severity: Severity, *, fixed: bool
    ) -> Finding:
        line = line_at(self.value, path)
        return Finding(line, self.subject, field_path(path), message, severity, fixed=fixed)


Rule = Callable[[Manifest], Iterator[Finding]]


def at(value: Any, *path: str | int) -> Any:
    """The value at a path, or None if a part of the path is missing."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and -len(value) <= part < len(value):
            value = value[part]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """The text at a path, or an empty text."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def mapping_at(value: Any, *path: str | int) -> LineMapping:
    """The mapping at a path, or an empty one that belongs to nothing."""
    found = at(value, *path)
    return found if isinstance(found, LineMapping) else LineMapping()


def mappings_at(value: Any, *path: str | int) -> list[tuple[int, LineMapping]]:
    """The mappings in the list at a path, with their index."""
    found = at(value, *path)
    items = found if isinstance(found, list) else []
    return [(index, item) for index, item in enumerate(items) if isinstance(item, LineMapping)]


def move(source: LineMapping, target: LineMapping, key: str, new_key: str | None = None) -> None:
    """Move a key with its line to another mapping, optionally under another name."""
    name = new_key or key
    target.lines[name] = source.line_of(key)
    target[name] = source.pop(key)
    source.lines.pop(key, None)


def rename(mapping: LineMapping, key: str, new_key: str) -> None:
    """Rename a key in its place."""
    items, lines = list(mapping.items()), dict(mapping.lines)
    mapping.clear()
    mapping.update((new_key if name == key else name, value) for name, value in items)
    mapping.lines = {new_key if name == key else name: line for name, line in lines.items()}


def set_key(mapping: LineMapping, key: str, value: Any) -> None:
    """Set a key that was not in the file; its line is that of the mapping."""
    mapping.lines.setdefault(key, mapping.line)
    mapping[key] = _at_line(mapping.line, value) if type(value) is list else value


def _at_line(line: int, items: list[Any]) -> LineSequence:
    """A list like those of a file, for the rules that follow."""
    sequence = LineSequence(line)
    sequence.extend(items)
    sequence.lines = [line] * len(items)
    return sequence


def walk(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, LineMapping]]:
    """Visit every mapping below a value, outermost first, with its path."""
    if isinstance(value, LineMapping):
        yield path, value
        # A copy: the caller may rename and remove keys during the walk.
        for key in list(value):
            if key in value:
                yield from walk(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))


def mapping_at_line(line: int, **entries: Any) -> LineMapping:
    """A new mapping with a given line."""
    mapping = LineMapping(line)
    for key, value in entries.items():
        set_key(mapping, key, value)
    return mapping


def served_as(manifest: Manifest, api_version: str) -> Iterator[Finding]:
    """Replace a version that is not served by the one that is."""
    if manifest.api_version == api_version:
        return
    message = f"{manifest.api_version} is not served: write {api_version}"
    yield manifest.error(("apiVersion",), message, fixed=True)
    manifest.value["apiVersion"] = api_version


def unknown_fields(
    manifest: Manifest, mapping: LineMapping, path: FieldPath, known: Iterable[str]
) -> Iterator[Finding]:
    """Report keys that the API does not have, and rename those that are clearly misspelt."""
    names = list(known)
    for key in [key for key in mapping if key not in names]:
        nearest = closest_match(str(key), names)
        meant = None if nearest in mapping else nearest
        advice = f"; write {meant}" if meant else ""
        if nearest is None and len(names) <= MAX_LISTED_FIELDS:
            advice = f"; known are {', '.join(names)}"
        message = f"no such field, kubectl rejects it and the API drops it{advice}"
        yield manifest.error((*path, key), message, fixed=meant is not None)
        if meant is not None:
            rename(mapping, key, meant)
