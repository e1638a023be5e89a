"""Native groups by the CompositePodGroup that they name as the one above them.

Below the topmost composite group may be thousands of groups, and the pods of all of them belong to
one tree. They depend on all groups of it by one key: ("within", collection, namespace, name) of the
topmost one, which changes with any group within that.

Cost: of a change, one look per composite group above it, of which ``MAX_DEPTH`` are followed.
"""

from collections.abc import Iterator

from kai_py.api.records.unstructured import Unstructured

Key = tuple[str, ...]
PARENT_FIELD = "spec.parentCompositePodGroupName"
COMPOSITE_GROUPS = "compositepodgroups"
MAX_DEPTH = 10
"""Levels of composite groups; groups that are nested deeper are in no tree."""


class CompositeGroups:
    """The groups below composite groups."""

    def __init__(self) -> None:
        """Start empty."""
        self._parents: dict[tuple[str, str], str] = {}
        self._below: dict[Key, dict[str, Unstructured]] = {}

    def apply(self, kind: str, old: object | None, new: object | None) -> tuple[Key, ...]:
        """Take in one change; returns the keys of the group and of those that it is within."""
        given = [each for each in (old, new) if isinstance(each, Unstructured)]
        groups = [each for each in given if kind == COMPOSITE_GROUPS or parent_of(each)]
        for each in groups:
            self._put(kind, each, exists=each is new)
        return tuple(dict.fromkeys(key for each in groups for key in self._above(kind, each)))

    def below(self, kind: str, group: Unstructured) -> tuple[Unstructured, ...]:
        """Groups of a collection that name ``group`` as the one above them, by name."""
        meta = group.metadata
        found = self._below.get((kind, meta.namespace, meta.name), {})
        return tuple(found[name] for name in sorted(found))

    def _put(self, kind: str, group: Unstructured, *, exists: bool) -> None:
        meta, parent = group.metadata, parent_of(group)
        if kind == COMPOSITE_GROUPS:
            self._parents.pop((meta.namespace, meta.name), None)
            if exists and parent:
                self._parents[meta.namespace, meta.name] = parent
        if not parent:
            return
        key = kind, meta.namespace, parent
        below = self._below.setdefault(key, {})
        below.pop(meta.name, None)
        if exists:
            below[meta.name] = group
        if not below:
            del self._below[key]

    def _above(self, kind: str, group: Unstructured) -> Iterator[Key]:
        """The keys of a group and of the composite groups that it is within."""
        yield within(kind, group)
        namespace, name = group.metadata.namespace, parent_of(group)
        for _ in range(MAX_DEPTH):
            if not name:
                return
            yield "within", COMPOSITE_GROUPS, namespace, name
            name = self._parents.get((namespace, name), "")


def within(kind: str, group: Unstructured) -> Key:
    """The key of a group of a collection and of all groups within it."""
    return "within", kind, group.metadata.namespace, group.metadata.name


def parent_of(group: Unstructured) -> str:
    """The composite group that ``group`` names as the one above it, "" if none."""
    name = group.first_at(PARENT_FIELD)
    return name if isinstance(name, str) else ""
