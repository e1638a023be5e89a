"""API objects as plain JSON documents.

They are shared and never changed in place once stored: a write makes a new document that may share
unchanged parts with the old one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


def clone(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    # Most values are plain: a look at them here costs less than a call for each.
    if isinstance(value, dict):
        return {
            key: clone(item) if isinstance(item, (dict, list)) else item
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [clone(item) if isinstance(item, (dict, list)) else item for item in value]
    return value


def lookup(document: Any, path: str) -> Any:
    """Return the value at a dotted path such as `spec.nodeName`, or None where there is none."""
    value = document
    for part in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def metadata(document: Json) -> Json:
    """Return the metadata of an object."""
    found: Json = document["metadata"]
    return found


def name_of(document: Json) -> str:
    """Return metadata.name."""
    return str(document["metadata"]["name"])


def namespace_of(document: Json) -> str:
    """Return metadata.namespace, empty for a cluster-scoped object."""
    return str(document["metadata"].get("namespace", ""))


def uid_of(document: Json) -> str:
    """Return metadata.uid."""
    return str(document["metadata"]["uid"])


def is_deleting(document: Json) -> bool:
    """Whether the object waits for its finalizers or its grace period."""
    return "deletionTimestamp" in document["metadata"]


def controller_of(document: Json) -> Json | None:
    """Return the owner reference with `controller: true`."""
    for owner in document["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def owner_reference(owner: Json) -> Json:
    """Return the reference by which `owner` controls another object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def seconds_of(text: str) -> float:
    """Parse a metav1.Time or MicroTime into Unix seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
