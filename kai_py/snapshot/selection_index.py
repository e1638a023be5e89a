"""Indexes of pods, and of what selects pods, by label.

What a selection says of labels has two parts: what its pods must have, and what they must not have.
Selections with the same first part share a *base*. A pod finds the bases that it matches by a label
that each of them requires, and the selections that exclude it by the labels that they exclude. All
other selections of its bases select it. Nothing compares every pod with every selection: thousands
of selections that differ only in what they exclude are a base and its exceptions.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from kai_py.api.records.core import LabelSelector
from kai_py.snapshot.pod_selection import Labels, NamespaceLabels, Selection, covers

Item = TypeVar("Item")

MAX_INDEXED_LABELS = 1024
"""Labels that are indexed at once; keys of labels are whatever users write into rules."""

Mark = tuple[str, ...]
"""What a pod may have: (label, value), (label,) with any value, or ``ANY_POD``."""
ANY_POD: Mark = ()

Base = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels that pods must have, sorted, each with the values of which it must be one: none for any.
"""


class SelectionParts(NamedTuple):
    """What decides whether a selection selects a pod.

    ``base``: None where nothing is selected. ``excluded``: what no selected pod has; of pods that
    match the base, all that are not selected have one of these, or are in other namespaces.
    ``scopes``: the namespaces in which it may select, "" for all, as their labels say.
    """

    base: Base | None
    excluded: tuple[Mark, ...] = ()
    scopes: tuple[str, ...] = ()

    def may_cover(self, namespace: str) -> bool:
        """Whether it selects pods of the namespace, whatever its labels are."""
        return "" in self.scopes or namespace in self.scopes


NOTHING = SelectionParts(None)


def selection_parts(selection: Selection) -> SelectionParts:
    """The parts of a selection."""
    required: dict[tuple[str, tuple[str, ...]], None] = {}
    excluded: dict[Mark, None] = {}
    for each in selection:
        if each.labels is None:
            return NOTHING
        for selector in (each.labels, each.other_labels):
            if selector is not None and not _add_parts(selector, required, excluded):
                return NOTHING
    first = selection[0]
    by_label = first.namespace_selector is not None
    scopes = ("",) if by_label else tuple(dict.fromkeys(first.namespaces))
    return SelectionParts(tuple(sorted(required)), tuple(excluded), scopes)


def _add_parts(
    selector: LabelSelector,
    required: dict[tuple[str, tuple[str, ...]], None],
    excluded: dict[Mark, None],
) -> bool:
    """Add what a selector says; whether it may select anything."""
    required.update(((key, (value,)), None) for key, value in selector.match_labels.items())
    for each in selector.match_expressions:
        match each.operator:
            case "In" if each.values:
                required[each.key, tuple(sorted(set(each.values)))] = None
            case "Exists":
                required[each.key, ()] = None
            case "NotIn":
                excluded.update(((each.key, value), None) for value in each.values)
            case "DoesNotExist":
                excluded[(each.key,)] = None
            case _:
                return False
    return True


def matches_base(base: Base, labels: Labels) -> bool:
    """Whether a pod has the labels that are required."""
    for key, values in base:
        value = labels.get(key)
        if value is None or (values and value not in values):
            return False
    return True


def marks_of(base: Base) -> tuple[Mark, ...]:
    """Every pod that matches the base has one of these."""
    best: tuple[Mark, ...] = (ANY_POD,)
    for key, values in base:
        if values and (len(best[0]) < 2 or len(values) < len(best)):
            best = tuple((key, value) for value in values)
        elif best[0] == ANY_POD:
            best = ((key,),)
    return best


class HasLabels(Protocol):
    """A pod of which the labels are known."""

    @property
    def labels(self) -> Labels:
        """Its labels."""
        ...


class LabelPostings(Generic[Item]):
    """Finds the pods of a mapping by label; a label is indexed once it has been asked for."""

    def __init__(self, pods: Mapping[Item, HasLabels]) -> None:
        """``pods``: by their keys; every change comes by ``add`` and ``discard``."""
        self._pods = pods
        self._by_label: dict[str, dict[str, dict[Item, None]]] = {}
        self._keys: Counter[str] | None = None
        """How many pods have a label, once any was asked for: most labels of rules no pod has."""

    def add(self, item: Item, labels: Labels) -> None:
        """A pod has come."""
        if self._keys is not None:
            self._keys.update(labels.keys())
            for key, value in labels.items():
                if key in self._by_label:
                    self._by_label[key].setdefault(value, {})[item] = None

    def discard(self, item: Item, labels: Labels) -> None:
        """A pod has gone."""
        if self._keys is not None:
            for key, value in labels.items():
                self._keys[key] -= 1
                if not self._keys[key]:
                    del self._keys[key]
                if key in self._by_label:
                    items = self._by_label[key].get(value, {})
                    items.pop(item, None)
                    if not items:
                        self._by_label[key].pop(value, None)

    def matching(self, base: Base) -> list[Item]:
        """All that match the base."""
        found = self.having(marks_of(base))
        if len(base) > 1:
            return [item for item in found if matches_base(base, self._pods[item].labels)]
        return found

    def having(self, marks: Iterable[Mark]) -> list[Item]:
        """All that have one of these."""
        found: dict[Item, None] = {}
        for mark in marks:
            if mark == ANY_POD:
                return list(self._pods)
            values = self._values(mark[0])
            for items in values.values() if len(mark) == 1 else (values.get(mark[1], {}),):
                found.update(items)
        return list(found)

    def _values(self, key: str) -> dict[str, dict[Item, None]]:
        if self._keys is None:
            self._keys = Counter(key for pod in self._pods.values() for key in pod.labels)
        values = self._by_label.get(key)
        if values is None:
            if not self._keys.get(key):
                return {}
            if len(self._by_label) >= MAX_INDEXED_LABELS:
                self._by_label.clear()
            values = self._by_label[key] = {}
            for item, pod in self._pods.items():
                if key in pod.labels:
                    values.setdefault(pod.labels[key], {})[item] = None
        return values


class SelectionIndex(Generic[Item]):
    """Finds the items whose selections select a pod."""

    def __init__(self) -> None:
        """Start empty."""
        self.parts: dict[Item, SelectionParts] = {}
        self._bases: dict[Mark, dict[Base, None]] = {}
        self._items: dict[Base, dict[str, dict[Item, Selection]]] = {}
        """By base and scope."""
        self._excluding: dict[Mark, dict[Item, None]] = {}

    def has(self, base: Base, scope: str) -> bool:
        """Whether any item has the base and the scope."""
        return scope in self._items.get(base, ())

    def add(self, item: Item, selection: Selection) -> SelectionParts:
        """Take in an item; the parts of its selection."""
        parts = self.parts[item] = selection_parts(selection)
        base, excluded, scopes = parts
        if base is None:
            return parts
        if base not in self._items:
            self._items[base] = {}
            for mark in marks_of(base):
                self._bases.setdefault(mark, {})[base] = None
        for scope in scopes:
            self._items[base].setdefault(scope, {})[item] = selection
        for mark in excluded:
            self._excluding.setdefault(mark, {})[item] = None
        return parts

    def discard(self, item: Item) -> SelectionParts:
        """Forget an item; the parts of its selection."""
        parts = self.parts.pop(item, NOTHING)
        base, excluded, scopes = parts
        if base is None:
            return parts
        for scope in scopes:
            _drop(self._items[base], scope, item)
        for mark in excluded:
            _drop(self._excluding, mark, item)
        if not self._items[base]:
            del self._items[base]
            for mark in marks_of(base):
                _drop(self._bases, mark, base)
        return parts

    def bases(self, labels: Labels) -> list[Base]:
        """The bases that a pod with these labels matches."""
        if not self._bases:
            return []
        found = [*self._bases.get(ANY_POD, ())]
        for pair in labels.items():
            for mark in (pair, pair[:1]):
                found.extend(
                    base
                    for base in self._bases.get(mark, ())
                    if len(base) == 1 or matches_base(base, labels)
                )
        return found

    def excluding(self, labels: Labels) -> dict[Item, None]:
        """The items that exclude a pod with these labels; it may not match their base either."""
        found: dict[Item, None] = {}
        if self._excluding:
            for pair in labels.items():
                found.update(self._excluding.get(pair, {}))
                found.update(self._excluding.get(pair[:1], {}))
        return found

    def covering(
        self, base: Base, namespace: str, namespaces: NamespaceLabels
    ) -> Iterator[tuple[Item, Selection]]:
        """The items with this base whose selections select pods of a namespace."""
        by_scope = self._items.get(base, {})
        for scope in (namespace, ""):
            for item, selection in by_scope.get(scope, {}).items():
                if (scope and len(selection) == 1) or covers(selection, namespace, namespaces):
                    yield item, selection

    def may_select(self, namespace: str, labels: Labels) -> bool:
        """Whether any selects such a pod, whatever the labels of its namespace are."""
        bases = self.bases(labels)
        if not bases:
            return False
        excluding = self.excluding(labels)
        return any(
            item not in excluding
            for base in bases
            for scope in (namespace, "")
            for item in self._items[base].get(scope, ())
        )


Key = TypeVar("Key")
Listed = TypeVar("Listed")
Value = TypeVar("Value")


def _drop(lists: dict[Key, dict[Listed, Value]], key: Key, item: Listed) -> None:
    items = lists[key]
    items.pop(item, None)
    if not items:
        del lists[key]
