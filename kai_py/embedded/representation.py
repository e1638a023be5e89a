"""Representation of answers: the objects themselves, a Table (as for `kubectl get`), or metadata.

The first alternative of the Accept header that can be served decides.

Source: k8s.io/apiserver, "Receiving resources as Tables".
"""

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from kai_py.embedded.documents import Json
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import ServedResource

_META = "meta.k8s.io/v1"


class Page(Struct, frozen=True):
    """Part of a list: its objects, the revision of the whole list, the continue token."""

    items: Sequence[Json]
    revision: int
    token: str = ""
    remaining: int = 0


class ResponseForm(Enum):
    """The form of an answer."""

    FULL = "full"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


_FORMS = {
    "": ResponseForm.FULL,
    "Table": ResponseForm.TABLE,
    "PartialObjectMetadata": ResponseForm.METADATA,
    "PartialObjectMetadataList": ResponseForm.METADATA,
}


def accepted_form(accept: str) -> ResponseForm:
    """Choose the form by an Accept header; raises RequestError 406 if none can be served."""
    for alternative in accept.split(",") if accept else ("*/*",):
        media, *parameters = (part.strip() for part in alternative.split(";"))
        values = dict(each.split("=", 1) for each in parameters if "=" in each)
        form = _FORMS.get(values.get("as", ""))
        version_served = values.get("v", "v1") == "v1"
        if media in ("application/json", "application/*", "*/*") and form and version_served:
            return form
    message = "only the following media types are accepted: application/json"
    raise RequestError(406, "NotAcceptable", message)


class Presenter(Struct, frozen=True):
    """Converts objects of one resource to the chosen form; `include` is the table's option."""

    resource: ServedResource
    form: ResponseForm
    now: float
    include: str = "Metadata"

    def one(self, document: Json) -> Json:
        """Present a single object."""
        if self.form is ResponseForm.TABLE:
            revision = document["metadata"].get("resourceVersion", "")
            return self._table([document], {"resourceVersion": revision}, with_columns=True)
        if self.form is ResponseForm.METADATA:
            return partial_metadata(document)
        return document

    def event(self, document: Json, *, first: bool) -> Json:
        """Present the object of a watch event; a table names its columns in the first only."""
        if self.form is ResponseForm.TABLE:
            return self._table([document], {}, with_columns=first)
        return self.one(document)

    def bookmark(self, document: Json) -> Json:
        """Present a bookmark, which has metadata only."""
        if self.form is not ResponseForm.TABLE:
            return self.one(document)
        row = {"cells": [], "object": partial_metadata(document)}
        return {"kind": "Table", "apiVersion": _META, "columnDefinitions": [], "rows": [row]}

    def page(self, page: Page, *, selective: bool) -> Json:
        """Present a list; the number of remaining objects is given for unselective lists only."""
        meta: Json = {"resourceVersion": str(page.revision)}
        if page.token:
            meta["continue"] = page.token
            if not selective:
                meta["remainingItemCount"] = page.remaining
        if self.form is ResponseForm.TABLE:
            return self._table(page.items, meta, with_columns=True)
        kind, api_version = f"{self.resource.kind}List", self.resource.api_version
        items = page.items
        if self.form is ResponseForm.METADATA:
            kind, api_version = "PartialObjectMetadataList", _META
            items = [partial_metadata(document) for document in page.items]
        return {"kind": kind, "apiVersion": api_version, "metadata": meta, "items": items}

    def _table(self, documents: Sequence[Json], meta: Json, *, with_columns: bool) -> Json:
        definitions = [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in self.resource.columns
        ]
        return {
            "kind": "Table",
            "apiVersion": _META,
            "metadata": meta,
            "columnDefinitions": definitions if with_columns else [],
            "rows": [self._row(document) for document in documents],
        }

    def _row(self, document: Json) -> Json:
        row: Json = {"cells": [each.cell(document, self.now) for each in self.resource.columns]}
        if self.include == "Metadata":
            row["object"] = partial_metadata(document)
        elif self.include == "Object":
            row["object"] = document
        return row


def partial_metadata(document: Json) -> Json:
    """The PartialObjectMetadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": _META,
        "metadata": document["metadata"],
    }
