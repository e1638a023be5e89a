"""Watches: the events of a resource after a revision, as seen through a selector.

A watch reads the log of its kind from a revision. An object that enters the selection is ADDED, one
that leaves it is DELETED with its last selected state and the revision of the change. With
`sendInitialEvents` the present objects come first, followed by a bookmark that marks their end.

Source: KEP-3157 (watch-list), KEP-956 (bookmarks).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from kai_py.embedded.documents import Json, namespace_of
from kai_py.embedded.errors import revision_too_large
from kai_py.embedded.event_log import Change, ChangeType
from kai_py.embedded.resources import ServedResource
from kai_py.embedded.selectors import ObjectTest
from kai_py.embedded.store import Store

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True)
class WatchEvent:
    """One line of a watch; `change` is set where the object is that of the log, unconverted."""

    type: str
    object: Json
    change: Change | None = None

    def encoded_object(self) -> bytes:
        """The object as JSON text."""
        return self.change.encoded if self.change else msgspec.json.encode(self.object)


def match_all(_document: Json) -> bool:
    """Select every object."""
    return True


class Watch:
    """A position in the log of a resource, seen through a selection."""

    def __init__(
        self,
        store: Store,
        resource: ServedResource,
        *,
        namespace: str | None = None,
        selects: ObjectTest = match_all,
        revision: int | None = None,
    ) -> None:
        """Start after `revision`, or with the present objects when it is None."""
        self._store = store
        self._resource = resource
        self._namespace = namespace
        self._selects = selects
        if revision is not None and revision > store.revision:
            raise revision_too_large(revision, store.revision)
        self._initial = revision is None
        self._started = self._initial
        self.revision = store.revision if revision is None else revision

    def poll(self) -> list[WatchEvent]:
        """The events since the last call; raises RequestError 410 if some were compacted."""
        if self._initial:
            self._initial = False
            self.revision = self._store.revision
            return list(self._present())
        log = self._store.log(self._resource.storage)
        if not self._started:
            log.check_start(self.revision)
            self._started = True
        changes = log.after(self.revision) if self.revision < self._store.revision else ()
        self.revision = self._store.revision
        translated = (self._translate(change) for change in changes)
        return [event for event in translated if event is not None]

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when `poll` may return events; return the function that stops that."""
        return self._store.log(self._resource.storage).listen(wake)

    def bookmark(self, *, initial_events_end: bool = False) -> WatchEvent:
        """A bookmark at the revision reached."""
        meta: Json = {"resourceVersion": str(self.revision), "creationTimestamp": None}
        if initial_events_end:
            meta["annotations"] = {INITIAL_EVENTS_END: "true"}
        kind = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        return WatchEvent("BOOKMARK", {**kind, "metadata": meta})

    def _present(self) -> Iterator[WatchEvent]:
        for document in self._store.list(self._resource.storage, self._namespace):
            if self._selects(document):
                yield WatchEvent(ChangeType.ADDED.value, self._resource.to_served(document))

    def _translate(self, change: Change) -> WatchEvent | None:
        if self._namespace is not None and namespace_of(change.object) != self._namespace:
            return None
        selected = change.type is not ChangeType.DELETED and self._selects(change.object)
        before = change.previous is not None and self._selects(change.previous)
        if not selected and not before:
            return None
        if selected:
            kind = ChangeType.MODIFIED if before else ChangeType.ADDED
            return self._event(kind, change.object, change)
        if change.type is ChangeType.DELETED:
            return self._event(ChangeType.DELETED, change.object, change)
        left = dict(change.previous or {})
        left["metadata"] = left["metadata"] | {"resourceVersion": str(change.revision)}
        return WatchEvent(ChangeType.DELETED.value, self._resource.to_served(left))

    def _event(self, kind: ChangeType, document: Json, change: Change) -> WatchEvent:
        served = self._resource.to_served(document)
        return WatchEvent(kind.value, served, change if served is document else None)
