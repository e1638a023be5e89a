"""List and watch requests: the objects of a collection in pages, or their changes as events.

All pages of a list show one state: the objects of its later pages are kept under its continue
token, and since objects are never changed in place, references suffice. If too many such remainders
are kept the oldest are dropped, and requests for them are answered with 410.

A watch reads the log of its kind from a revision. An object that enters the selection is ADDED, one
that leaves it is DELETED with its last selected state and the revision of the change. With
`sendInitialEvents` the present objects come first, followed by a bookmark that marks their end.

Source: KEP-3157 (watch-list), KEP-956 (bookmarks).
"""

import base64
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import Json, namespace_of
from kai_py.embedded.errors import FieldError, bad_request, expired, invalid, revision_too_large
from kai_py.embedded.representation import Page, Presenter
from kai_py.embedded.resources import ServedResource
from kai_py.embedded.routing import Target, integer, is_set
from kai_py.embedded.selectors import ObjectTest, parse_fields, parse_labels
from kai_py.embedded.store import Change, ChangeType, Store

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
MAX_REMAINDERS = 256
"""Lists of which later pages are kept."""


class WatchEvent(Struct, frozen=True):
    """One line of a watch; `change` is set if the object is that of the log, unconverted."""

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


class Pager:
    """The later pages of lists, which clients may still request."""

    def __init__(self) -> None:
        self._remainders: OrderedDict[str, tuple[int, Sequence[Json]]] = OrderedDict()
        self._issued = 0

    def first(self, items: Sequence[Json], revision: int, limit: int | None) -> Page:
        """The first page of a new list."""
        return self._page(items, revision, limit)

    def next(self, token: str, limit: int | None, *, compacted_through: int) -> Page:
        """The page of a token; raises RequestError 410 when it is no longer kept."""
        revision, items = self._remainders.get(token, (0, ()))
        if not items or revision < compacted_through:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        return self._page(items, revision, limit)

    def _page(self, items: Sequence[Json], revision: int, limit: int | None) -> Page:
        if not limit or len(items) <= limit:
            return Page(items, revision)
        self._issued += 1
        token = base64.urlsafe_b64encode(f"{revision}/{self._issued}".encode()).decode()
        self._remainders[token] = (revision, items[limit:])
        if len(self._remainders) > MAX_REMAINDERS:
            # Oldest first; a client that comes back for it gets 410 and lists again.
            self._remainders.popitem(last=False)
        return Page(items[:limit], revision, token, len(items) - limit)


class Lister:
    """Serves lists and starts watches for the HTTP server; keeps the later pages of lists."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self._pager = Pager()

    def list(self, target: Target, query: Mapping[str, str], presenter: Presenter) -> Json:
        """One page of a list in the requested form."""
        limit = integer(query, "limit")
        store, resource = self.api.store, target.resource
        selective = bool(query.get("labelSelector") or query.get("fieldSelector"))
        if token := query.get("continue"):
            compacted = store.log(resource.storage).compacted_through
            page = self._pager.next(token, limit, compacted_through=compacted)
            return presenter.page(page, selective=selective)
        self._check_revision(query)
        documents = self.select(target, query)
        page = self._pager.first(documents, store.revision, limit)
        return presenter.page(page, selective=selective)

    def select(self, target: Target, query: Mapping[str, str]) -> Sequence[Json]:
        """The objects of a collection that match the selectors."""
        selects = object_test(target, query)
        resource = target.resource
        documents = self.api.store.list(resource.storage, target.namespace)
        if selects is not match_all:
            documents = [document for document in documents if selects(document)]
        return [resource.to_served(document) for document in documents]

    def watch(self, target: Target, query: Mapping[str, str]) -> Watch:
        """Start a watch; raises RequestError 422 or 504 for an impossible start."""
        send_initial = is_set(query, "sendInitialEvents")
        _check_initial(target, query, send_initial=send_initial)
        revision = integer(query, "resourceVersion")
        if revision and revision > self.api.store.revision:
            raise revision_too_large(revision, self.api.store.revision)
        return Watch(
            self.api.store,
            target.resource,
            namespace=target.namespace,
            selects=object_test(target, query),
            revision=None if send_initial or not revision else revision,
        )

    def _check_revision(self, query: Mapping[str, str]) -> None:
        revision, present = integer(query, "resourceVersion"), self.api.store.revision
        match = query.get("resourceVersionMatch", "")
        if match not in ("", "Exact", "NotOlderThan"):
            raise bad_request(f'"{match}" is not a valid resourceVersionMatch')
        if revision and revision > present:
            raise revision_too_large(revision, present)
        if match == "Exact" and revision != present:
            raise expired(f"the embedded cluster lists the present revision {present} only")


def object_test(target: Target, query: Mapping[str, str]) -> ObjectTest:
    """The test of a request's label and field selectors."""
    tests: list[ObjectTest] = []
    if text := query.get("labelSelector"):
        labels_match = parse_labels(text)
        tests.append(lambda document: labels_match(document["metadata"].get("labels") or {}))
    if text := query.get("fieldSelector"):
        selectable = ("metadata.name", "metadata.namespace", *target.resource.selectable)
        fields_match = parse_fields(text, selectable)
        to_served = target.resource.to_served
        tests.append(lambda document: fields_match(to_served(document)))
    if target.name:
        tests.append(lambda document: bool(document["metadata"]["name"] == target.name))
    if not tests:
        return match_all
    return lambda document: all(test(document) for test in tests)


def _check_initial(target: Target, query: Mapping[str, str], *, send_initial: bool) -> None:
    match = query.get("resourceVersionMatch", "")
    if send_initial and match != "NotOlderThan":
        rule = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        error = FieldError("resourceVersionMatch", "FieldValueForbidden", f"Forbidden: {rule}")
        raise invalid("ListOptions", "meta.k8s.io", target.resource.plural, [error])
    if not send_initial and match:
        rule = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        error = FieldError("resourceVersionMatch", "FieldValueForbidden", f"Forbidden: {rule}")
        raise invalid("ListOptions", "meta.k8s.io", target.resource.plural, [error])
