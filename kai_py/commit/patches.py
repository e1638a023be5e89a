"""Optimistic concurrency for patches."""

from kai_py.watch.resource import Identified


def preconditions(known: Identified) -> dict[str, str]:
    """Metadata for a patch that the API server refuses (409) if the object has changed."""
    return {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version}
