"""Deletion of objects: grace periods, finalizers, propagation.

Without finalizers and grace period an object is removed at once. Otherwise it gets a
deletionTimestamp and is removed when the last finalizer is removed and, for a pod on a node, when
the kubelet confirms with grace 0. Foreground and orphan propagation are finalizers that the garbage
collector handles.

Source: k8s.io/apiserver pkg/registry/rest/delete.go and pkg/registry/core/pod/strategy.go.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from kai_py.api.times import format_time
from kai_py.embedded.apiserver import ApiServer, is_removable
from kai_py.embedded.documents import (
    Json,
    is_deleting,
    is_finished,
    namespace_of,
    seconds_of,
    uid_of,
)
from kai_py.embedded.errors import bad_request, forbidden
from kai_py.embedded.resources import NAMESPACES, PODS, ServedResource

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
PERMANENT_NAMESPACES = frozenset({"default", "kube-public", "kube-system"})

_FINALIZER_OF_POLICY = {"Foreground": FOREGROUND_FINALIZER, "Orphan": ORPHAN_FINALIZER}


class DeleteOptions(Struct, frozen=True, kw_only=True):
    """metav1.DeleteOptions: `policy` is Background, Foreground, Orphan or "" (the default)."""

    grace_seconds: int | None = None
    policy: str = ""
    dry_run: bool = False
    preconditions: Json = field(default_factory=dict)


def delete(
    api: ApiServer,
    resource: ServedResource,
    name: str,
    namespace: str = "",
    options: DeleteOptions | None = None,
) -> tuple[Json, bool]:
    """Delete an object; return its last state and whether it has been removed.

    Raises RequestError 404 when there is none and 409 when a precondition fails.
    """
    options = options or DeleteOptions()
    if resource is NAMESPACES and name in PERMANENT_NAMESPACES:
        raise forbidden("namespaces", name, "this namespace may not be deleted")
    current = api.stored(resource, name, namespace)
    api.check_preconditions(resource, current, options.preconditions)
    marked = _marked(api, resource, current, options)
    is_removed = is_removable(marked)
    if options.dry_run:
        return resource.to_served(marked), is_removed
    if not is_removed:
        return resource.to_served(api.commit(resource, current, marked)), False
    last = current if is_deleting(current) else {**current, "metadata": marked["metadata"]}
    removed = api.store.remove(resource.storage, last)
    api.applied.forget(uid_of(removed))
    return resource.to_served(removed), True


def delete_all(
    api: ApiServer,
    resource: ServedResource,
    documents: Sequence[Json],
    options: DeleteOptions | None = None,
) -> None:
    """Delete each of the given objects, as deletecollection does."""
    for document in documents:
        name = document["metadata"]["name"]
        if api.find(resource, name, namespace_of(document)) is not None:
            delete(api, resource, name, namespace_of(document), options)


def _marked(
    api: ApiServer, resource: ServedResource, current: Json, options: DeleteOptions
) -> Json:
    meta = dict(current["metadata"])
    grace = _grace_seconds(resource, current, options)
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = format_time(api.clock.now() + grace)
        meta["deletionGracePeriodSeconds"] = grace
        meta["finalizers"] = _finalizers(resource, meta, options)
        if "generation" in meta:
            meta["generation"] += 1
    # A second deletion that asks for it shortens the grace period, which began with the first.
    elif options.grace_seconds is not None and grace < meta.get("deletionGracePeriodSeconds", 0):
        saved = meta["deletionGracePeriodSeconds"] - grace
        meta["deletionTimestamp"] = format_time(seconds_of(meta["deletionTimestamp"]) - saved)
        meta["deletionGracePeriodSeconds"] = grace
    marked = {**current, "metadata": meta}
    if resource is NAMESPACES:
        marked["status"] = {**(current.get("status") or {}), "phase": "Terminating"}
    return marked


def _grace_seconds(resource: ServedResource, document: Json, options: DeleteOptions) -> int:
    if resource is not PODS:
        return 0
    spec = document["spec"]
    if not spec.get("nodeName") or is_finished(document):
        return 0
    seconds = options.grace_seconds
    if seconds is None:
        seconds = int(spec.get("terminationGracePeriodSeconds", 30))
    return seconds if seconds >= 0 else 1  # as upstream: negative values stand for a second


def _finalizers(resource: ServedResource, meta: Json, options: DeleteOptions) -> list[str]:
    present = list(meta.get("finalizers") or ())
    default = "Orphan" if resource.orphans_by_default else "Background"
    policy = options.policy or default
    if policy not in ("Background", *_FINALIZER_OF_POLICY):
        raise bad_request(f'"{policy}" is not a valid propagationPolicy')
    finalizer = _FINALIZER_OF_POLICY.get(policy)
    if finalizer and finalizer not in present:
        present.append(finalizer)
    return present
