"""API objects as plain JSON documents: reading their fields, setting conditions, naming new ones.

Documents are shared and never changed in place once stored: a write makes a new document that may
share unchanged parts with the old one.

A condition is set by type, with a new transition time only when the status changes. Uids and
generated names are hashes of a seed and a counter: they look random, and are the same in every run.
"""

import hashlib
import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from kai_py.api.pod_phases import FINISHED_PHASES
from kai_py.api.times import format_time

Json: TypeAlias = dict[str, Any]

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of name suffixes, as in Kubernetes."""
_SUFFIX_LENGTH = 5


def clone(value: Any) -> Any:
    """A deep copy of a JSON value."""
    # Most values are plain: checking them here is cheaper than a call for each.
    if isinstance(value, dict):
        return {
            key: clone(item) if isinstance(item, (dict, list)) else item
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [clone(item) if isinstance(item, (dict, list)) else item for item in value]
    return value


def filter_metadata(document: Json, field: str, keep: Callable[[Any], bool]) -> Json:
    """The document with those items of a list of its metadata that are to be kept."""
    meta = document["metadata"]
    kept = [each for each in meta.get(field) or () if keep(each)]
    return {**document, "metadata": {**meta, field: kept}}


def without_finalizer(document: Json, finalizer: str) -> Json:
    """The document without one of its finalizers."""
    return filter_metadata(document, "finalizers", lambda each: each != finalizer)


RAW_FIELD = "parameters"
"""What a claim or class passes to drivers: JSON of no type."""


def with_typed_nulls(value: Any) -> Any:
    """A deep copy of JSON as types of Go read it: null fields are absent, null items are empty."""
    if isinstance(value, dict):
        return {
            key: clone(item) if key == RAW_FIELD else with_typed_nulls(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        empty: Any = "" if any(isinstance(item, str) for item in value) else {}
        return [empty if item is None else with_typed_nulls(item) for item in value]
    return value


def set_default(document: Json, field: str, value: str | int) -> None:
    """Set a field that is absent, null or empty, which are the same unless Go has a pointer."""
    if not document.get(field):
        document[field] = value


def name_of(document: Json) -> str:
    """The name of an object."""
    return str(document["metadata"]["name"])


def namespace_of(document: Json) -> str:
    """The namespace of an object, empty for a cluster-scoped one."""
    return str(document["metadata"].get("namespace", ""))


def uid_of(document: Json) -> str:
    """The uid of an object."""
    return str(document["metadata"]["uid"])


def is_deleting(document: Json) -> bool:
    """Whether the object waits for its finalizers or its grace period."""
    return "deletionTimestamp" in document["metadata"]


def is_finished(pod: Json) -> bool:
    """Whether the pod succeeded or failed."""
    return (pod.get("status") or {}).get("phase") in FINISHED_PHASES


def is_active(pod: Json) -> bool:
    """Whether the pod runs or may still run."""
    return not is_finished(pod) and not is_deleting(pod)


def named_claims(pod: Json) -> list[str]:
    """The names of the claims that a pod mentions in its spec or status, each once."""
    status = pod.get("status") or {}
    entries = (
        *(pod["spec"].get("resourceClaims") or ()),
        *(status.get("resourceClaimStatuses") or ()),
        status.get("extendedResourceClaimStatus") or {},
    )
    names = (each.get("resourceClaimName") for each in entries)
    return list(dict.fromkeys(str(name) for name in names if name))


def owners_of(document: Mapping[str, Any]) -> Sequence[Json]:
    """The references by which an object names its owners."""
    return document["metadata"].get("ownerReferences") or ()


def controller_of(document: Json) -> Json | None:
    """The owner reference with `controller: true`."""
    for owner in owners_of(document):
        if owner.get("controller"):
            return dict(owner)
    return None


def owner_reference(owner: Json) -> Json:
    """The reference by which `owner` controls another object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from_template(owner: Json, template: Json) -> Json:
    """An unnamed pod made from a PodTemplateSpec and controlled by `owner`."""
    meta = clone(template.get("metadata") or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace_of(owner),
            "labels": meta.get("labels") or {},
            "annotations": meta.get("annotations") or {},
            "finalizers": list(meta.get("finalizers") or ()),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": clone(template["spec"]),
    }


def deletion_order(pod: Json) -> tuple[bool, bool, str, str]:
    """Sort key: the pods to delete first (unassigned, not ready, youngest)."""
    # Youngest first: timestamps sort as text, so invert every character.
    inverted_age = "".join(chr(255 - ord(each)) for each in pod["metadata"]["creationTimestamp"])
    return bool(pod["spec"].get("nodeName")), is_ready(pod), inverted_age, name_of(pod)


def seconds_of(text: str) -> float:
    """Parse a metav1.Time or MicroTime into Unix seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def with_condition(status: Json, condition: Json, *, now: float) -> Json:
    """Return `status` with `condition` in the place of the one of its type."""
    conditions = list(status.get("conditions") or ())
    for index, present in enumerate(conditions):
        if (present or {}).get("type") == condition["type"]:
            conditions[index] = _replaced(present, condition, now)
            return {**status, "conditions": conditions}
    conditions.append({**condition, "lastTransitionTime": format_time(now)})
    return {**status, "conditions": conditions}


def is_true(document: Json, condition_type: str) -> bool:
    """Whether the object's status has the condition with status True."""
    return (condition_type, "True") in condition_states(document)


def is_ready(pod: Json) -> bool:
    """Whether the pod is Ready."""
    return is_true(pod, "Ready")


def condition_states(document: Json) -> set[tuple[str, str]]:
    """The type and status of each condition of an object that has a type."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return {
        (str(each["type"]), str(each.get("status") or "Unknown"))
        for each in conditions
        if each and each.get("type")
    }


def _replaced(present: Json, condition: Json, now: float) -> Json:
    same = present.get("status") == condition["status"]
    since = present.get("lastTransitionTime") if same else None
    return {**condition, "lastTransitionTime": since or format_time(now)}


class Identity:
    """A stream of uids and name suffixes determined by `seed`."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._counter = itertools.count(1)

    def uid(self) -> str:
        """A new uid in the form of a version 4 UUID."""
        return str(uuid.UUID(bytes=self._digest()[:16], version=4))

    def suffix(self) -> str:
        """Five letters for a generated name."""
        return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in self._digest()[:_SUFFIX_LENGTH])

    def _digest(self) -> bytes:
        return hashlib.sha256(f"{self._seed}/{next(self._counter)}".encode()).digest()


def short_hash(text: str) -> str:
    """A hash of `text` of ten letters, as in pod-template-hash."""
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])
