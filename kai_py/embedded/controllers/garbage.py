"""Garbage collectors: of objects whose owners or namespace are deleted, of pods no kubelet can end.

References to deleted owners are removed while other owners remain. An owner deleted in the
foreground waits for its dependents, one deleted with Orphan first removes their references.

A deleted pod with a finalizer, as those of Jobs have, and without a node would be terminating
forever, as its owner waits for the final phase.

Every object of a deleted namespace is deleted, then the namespace's own finalizer is removed. The
same controller creates the service account `default` of a new one.

Source: pkg/controller/garbagecollector and ``gcUnscheduledTerminating`` in pkg/controller/podgc of
k8s.io/kubernetes.
"""

from collections.abc import Callable, Iterable
from functools import partial

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.runtime import Controller, Key, Work, key_of
from kai_py.embedded.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, DeleteOptions, delete
from kai_py.embedded.documents import (
    Json,
    filter_metadata,
    is_deleting,
    is_finished,
    name_of,
    namespace_of,
    owners_of,
    uid_of,
    without_finalizer,
)
from kai_py.embedded.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, ServedResource
from kai_py.embedded.store import Change, ChangeType
from kai_py.embedded.subresources import finalize_namespace


def reconcile(work: Work) -> None:
    """Reconcile one object, named by storage, namespace and name."""
    storage, namespace, name = work.key
    resource = _resource(work.api, storage)
    document = work.api.store.get(storage, namespace, name)
    if resource is None or document is None:
        return
    finalizers = document["metadata"].get("finalizers") or ()
    if is_deleting(document) and ORPHAN_FINALIZER in finalizers:
        _orphan_dependents(work.api, document)
        _drop_finalizer(work.api, resource, document, ORPHAN_FINALIZER)
    elif is_deleting(document) and FOREGROUND_FINALIZER in finalizers:
        _delete_dependents_first(work.api, resource, document)
    elif not is_deleting(document):
        _check_owners(work.api, resource, document)


def _keys(api: ApiServer, change: Change) -> Iterable[Key]:
    document = change.object
    owners = owners_of(document)
    if change.type is ChangeType.DELETED:
        for storage, dependent in api.store.dependents(uid_of(document)):
            yield storage, namespace_of(dependent), name_of(dependent)
        for owner in owners:
            yield from _waiting_owner(api, owner["uid"])
    elif is_deleting(document) or (owners and _owners_changed(change)):
        yield change.storage, namespace_of(document), name_of(document)


def _owners_changed(change: Change) -> bool:
    before = (change.previous or {"metadata": {}})["metadata"].get("ownerReferences")
    return bool(before != change.object["metadata"].get("ownerReferences"))


def _waiting_owner(api: ApiServer, uid: str) -> Iterable[Key]:
    key = api.store.key_of_uid(uid)
    owner = api.store.by_uid(uid)
    if key and owner and is_deleting(owner):
        yield key


def _resource(api: ApiServer, storage: str) -> ServedResource | None:
    return next((each for each in api.registry.storages() if each.storage == storage), None)


def _orphan_dependents(api: ApiServer, owner: Json) -> None:
    for storage, dependent in api.store.dependents(uid_of(owner)):
        if resource := _resource(api, storage):
            _set_owners(api, resource, dependent, lambda each: each["uid"] != uid_of(owner))


def _delete_dependents_first(api: ApiServer, resource: ServedResource, owner: Json) -> None:
    blocking = [
        (storage, dependent)
        for storage, dependent in api.store.dependents(uid_of(owner))
        if any(
            each["uid"] == uid_of(owner) and each.get("blockOwnerDeletion")
            for each in owners_of(dependent)
        )
    ]
    if not blocking:
        _drop_finalizer(api, resource, owner, FOREGROUND_FINALIZER)
    for storage, dependent in blocking:
        kind = _resource(api, storage)
        if kind and not is_deleting(dependent):
            _delete(api, kind, dependent, policy="Foreground")


def _check_owners(api: ApiServer, resource: ServedResource, document: Json) -> None:
    owners = owners_of(document)
    present = [each for each in owners if api.store.by_uid(each["uid"]) is not None]
    if not owners or len(present) == len(owners):
        return
    if present:
        _set_owners(api, resource, document, lambda each: each in present)
    else:
        _delete(api, resource, document, policy="Background")


def _delete(api: ApiServer, resource: ServedResource, document: Json, *, policy: str) -> None:
    options = DeleteOptions(policy=policy, preconditions={"uid": uid_of(document)})
    delete(api, resource, name_of(document), namespace_of(document), options)


def _set_owners(
    api: ApiServer, resource: ServedResource, document: Json, keep: Callable[[Json], bool]
) -> None:
    change = partial(filter_metadata, field="ownerReferences", keep=keep)
    api.edit(resource, name_of(document), namespace_of(document), change)


def _drop_finalizer(
    api: ApiServer, resource: ServedResource, document: Json, finalizer: str
) -> None:
    change = partial(without_finalizer, finalizer=finalizer)
    api.edit(resource, name_of(document), namespace_of(document), change)


GARBAGE_COLLECTOR = Controller(name="garbage-collector", reconcile=reconcile, keys=_keys)


def reconcile_pod(work: Work) -> None:
    """Set the phase Failed on a deleted pod that is on no node."""
    namespace, name = work.key
    pod = work.api.find(PODS, name, namespace)
    if pod is not None and _is_unassigned_terminating(pod):
        work.api.patch_status(PODS, pod, {"phase": "Failed"})


def _is_unassigned_terminating(pod: Json) -> bool:
    return is_deleting(pod) and not pod["spec"].get("nodeName") and not is_finished(pod)


def _pod_keys(_api: ApiServer, change: Change) -> Iterable[Key]:
    if _is_unassigned_terminating(change.object):
        yield key_of(change.object)


POD_GARBAGE_COLLECTOR = Controller(
    name="pod garbage collector",
    reconcile=reconcile_pod,
    keys=_pod_keys,
    storages=frozenset({PODS.storage}),
)


def reconcile_namespace(work: Work) -> None:
    """Create the service account of a namespace; delete the contents of a deleted one."""
    _, name = work.key
    namespace = work.api.find(NAMESPACES, name)
    if namespace is None:
        return
    if is_deleting(namespace):
        if _empty(work.api, name):
            finalize_namespace(work.api, name, {"spec": {"finalizers": []}})
    elif work.api.find(SERVICE_ACCOUNTS, "default", name) is None:
        work.api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, name)


def _empty(api: ApiServer, namespace: str) -> bool:
    remaining = 0
    for resource in api.registry.storages():
        if not resource.namespaced:
            continue
        for document in api.list(resource, namespace):
            if not is_deleting(document):
                delete(api, resource, name_of(document), namespace)
            remaining += api.find(resource, name_of(document), namespace) is not None
    return remaining == 0


def _namespace_keys(api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == NAMESPACES.storage:
        yield "", name_of(change.object)
    elif change.type is ChangeType.DELETED:
        namespace = api.find(NAMESPACES, namespace_of(change.object))
        if namespace and is_deleting(namespace):
            yield "", name_of(namespace)


NAMESPACE_CONTROLLER = Controller(
    name="namespace", reconcile=reconcile_namespace, keys=_namespace_keys
)
