"""List and watch requests: selectors, revisions, pages.

All pages of a list show one state: what is left of it is kept under its continue token, and since
objects are never changed in place, references suffice. Old remainders are dropped and then answered
with 410.
"""

import base64
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import FieldError, bad_request, expired, invalid, revision_too_large
from kai_py.embedded.representation import Page, Presenter
from kai_py.embedded.routing import Target, integer, is_set
from kai_py.embedded.selectors import ObjectTest, parse_fields, parse_labels
from kai_py.embedded.watching import Watch, match_all

MAX_REMAINDERS = 256


class Pager:
    """The remainders of lists that clients may still request."""

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
    """Serves lists and starts watches for the HTTP front; keeps the remainders of paged lists."""

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
