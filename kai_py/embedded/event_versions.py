"""Events as core/v1, the form in which they are stored, and as events.k8s.io/v1."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kai_py.embedded.documents import Json


_NEW_NAME = {
    "involvedObject": "regarding",
    "message": "note",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "source": "deprecatedSource",
    "reportingComponent": "reportingController",
}
_OLD_NAME = {new: old for old, new in _NEW_NAME.items()}


def to_events_group(event: Json) -> Json:
    """Return a core/v1 event as events.k8s.io/v1 shows it."""
    renamed = {_NEW_NAME.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": "events.k8s.io/v1"}


def from_events_group(event: Json) -> Json:
    """Return an events.k8s.io/v1 event in its stored core/v1 form."""
    renamed = {_OLD_NAME.get(key, key): value for key, value in event.items()}
    # Clients find these in core/v1 even where they were not set: `--sort-by` looks for them.
    unset: Json = {"firstTimestamp": None, "lastTimestamp": None, "source": {}}
    return unset | renamed | {"apiVersion": "v1"}
