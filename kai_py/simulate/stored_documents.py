"""Documents as an API server would have stored them: with a uid, defaults and no nulls."""

import msgspec

from kai_py.embedded.resources import ServedResource
from kai_py.simulate.files.objects import Document
from kai_py.watch.wire import without_nulls

REFERENCE_FIELDS = frozenset({"apiVersion", "kind", "name", "uid"})
"""What the API requires of an owner reference."""


def add_uid(document: Document) -> None:
    """Give an object that was never applied a uid."""
    document["metadata"].setdefault("uid", _made_uid(document))


def was_never_applied(document: Document) -> bool:
    """Whether an object has no uid but that of ``add_uid``."""
    return document["metadata"].get("uid") in (None, "", _made_uid(document))


def _made_uid(document: Document) -> str:
    meta = document["metadata"]
    return "/".join((document["kind"], meta.get("namespace") or "", meta["name"]))


def completed(document: Document, resource: ServedResource | None) -> Document:
    """``document`` as an API server would return it; raises if it is no object.

    ``resource``: what it is served as, None for a kind that nothing is known of.
    """
    encoded = msgspec.json.encode(document)
    complete: Document = msgspec.json.decode(encoded)
    if b"null" in encoded:
        complete = without_nulls(complete)
    meta = complete["metadata"]
    if not (complete["apiVersion"] and complete["kind"] and meta["name"]):
        raise ValueError("it has no apiVersion, kind or name")
    add_uid(complete)
    owners = meta.get("ownerReferences") or ()
    meta["ownerReferences"] = [each for each in owners if each.keys() >= REFERENCE_FIELDS]
    if resource is None or resource.custom:
        return complete
    if resource.namespaced:
        meta.setdefault("namespace", "default")
    complete.setdefault("spec", {})
    complete.setdefault("status", {})
    meta.setdefault("generation", 1)
    resource.rules.default(complete)
    return complete
