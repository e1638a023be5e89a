"""Namespace controller: creates the service account `default`, and empties deleted namespaces.

Every object of a deleted namespace is deleted, then the namespace's own finalizer is removed.
"""

from collections.abc import Iterable

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.runtime import Controller, Key, Work
from kai_py.embedded.deletion import delete
from kai_py.embedded.documents import is_deleting, name_of, namespace_of
from kai_py.embedded.resources import NAMESPACES, SERVICE_ACCOUNTS
from kai_py.embedded.store import Change, ChangeType
from kai_py.embedded.subresources import finalize_namespace


def _reconcile(work: Work) -> None:
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


def _keys(api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == NAMESPACES.storage:
        yield "", name_of(change.object)
    elif change.type is ChangeType.DELETED:
        namespace = api.find(NAMESPACES, namespace_of(change.object))
        if namespace and is_deleting(namespace):
            yield "", name_of(namespace)


NAMESPACE_CONTROLLER = Controller(name="namespace", reconcile=_reconcile, keys=_keys)
