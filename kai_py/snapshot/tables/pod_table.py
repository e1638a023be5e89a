"""The protocol between the builder and the tables: what a table learns of objects and pods.

An ``ObjectTable`` follows watched objects, a ``PodTable`` the life of every pod; a table may be
both. A new feature of the snapshot is a table of its own, listed in ``registry``.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

from kai_py.api.records.core import Pod
from kai_py.snapshot.derived_pod import AssumedBinding, DerivedPod

Uids = Iterable[str]
"""Pods, by uid, that have to be derived again."""


class ObjectTable(Protocol):
    """A table that follows watched objects of some kinds.

    ``kinds``: their plurals in lower case, of every API group.
    """

    kinds: ClassVar[tuple[str, ...]]

    def apply(self, kind: str, old: object | None, new: object | None, /) -> None:
        """Take in one change; ``kind`` is the ``Kind.collection_name`` of the object."""


class ObjectTables:
    """All tables that follow objects; a change goes to those that follow its kind."""

    def __init__(self, *tables: ObjectTable) -> None:
        """List the tables."""
        self._tables = tables
        self._by_plural: dict[str, tuple[ObjectTable, ...]] = {}
        for table in tables:
            for plural in table.kinds:
                self._by_plural[plural] = (*self._by_plural.get(plural, ()), table)

    def __iter__(self) -> Iterator[ObjectTable]:
        return iter(self._tables)

    def following(self, kind: str) -> tuple[ObjectTable, ...]:
        """The tables that follow objects of ``kind``, a ``Kind.collection_name``."""
        return self._by_plural.get(kind.partition(".")[0], ())


class PodTable:
    """A table that follows pods; it overrides the events that concern it.

    Every event goes to all tables before any pod is derived again, so that the order of the tables
    is of no importance. Each method returns the *other* pods, by uid, that have to be derived
    again; a lazy result is consumed while they are.

    A pod is observed with every change in the API and placed with every derivation. When it ends it
    is released. When it is deleted, its assumed binding is forgotten, it is released and removed.
    """

    def observe(self, _pod: Pod, /) -> Uids:
        """The API has the pod like this, whatever its phase and scheduler."""
        return ()

    def assume(self, _binding: AssumedBinding, /) -> Uids:
        """A binding of the pod is being written."""
        return ()

    def forget(self, _uid: str, /) -> Uids:
        """The assumed binding of the pod, if there is one, is withdrawn."""
        return ()

    def place(self, _pod: DerivedPod, /) -> Uids:
        """The pod was derived: it is on a node, or waits to be placed by this scheduler."""
        return ()

    def release(self, _uid: str, /) -> Uids:
        """The pod neither occupies nor requests anything any more."""
        return ()

    def remove(self, _pod: Pod, /) -> Uids:
        """The pod does not exist any more."""
        return ()


class PodTables:
    """All tables that follow pods; an event goes to those that override it.

    Each event returns what the tables returned: the pods that have to be derived again.
    """

    def __init__(self, *tables: PodTable) -> None:
        """List the tables."""
        self._tables = tables
        self._observing = self._overriding("observe")
        self._assuming = self._overriding("assume")
        self._forgetting = self._overriding("forget")
        self._releasing = self._overriding("release")
        self._removing = self._overriding("remove")
        self.placing = self._overriding("place")

    def __iter__(self) -> Iterator[PodTable]:
        return iter(self._tables)

    def observe(self, pod: Pod) -> list[Uids]:
        """See ``PodTable.observe``."""
        return [table.observe(pod) for table in self._observing]

    def assume(self, binding: AssumedBinding) -> list[Uids]:
        """See ``PodTable.assume``."""
        return [table.assume(binding) for table in self._assuming]

    def forget(self, uid: str) -> list[Uids]:
        """See ``PodTable.forget``."""
        return [table.forget(uid) for table in self._forgetting]

    def place(self, pod: DerivedPod) -> list[Uids]:
        """See ``PodTable.place``."""
        return [table.place(pod) for table in self.placing]

    def release(self, uid: str) -> list[Uids]:
        """See ``PodTable.release``."""
        return [table.release(uid) for table in self._releasing]

    def remove(self, pod: Pod) -> list[Uids]:
        """See ``PodTable.remove``."""
        return [table.remove(pod) for table in self._removing]

    def _overriding(self, event: str) -> tuple[PodTable, ...]:
        ignored = getattr(PodTable, event)
        return tuple(table for table in self._tables if getattr(type(table), event) is not ignored)
