"""How does a namespace go away? Everything in it is deleted, then its own finalizer is lifted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kai_py.embedded.controllers.runtime import Controller, Key, Work
from kai_py.embedded.deletion import delete
from kai_py.embedded.documents import is_deleting, name_of, namespace_of
from kai_py.embedded.eventlog import ChangeType
from kai_py.embedded.resources import NAMESPACES
from kai_py.embedded.subresources import finalize_namespace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai_py.embedded.apiserver import ApiServer
    from kai_py.embedded.eventlog import Change


def reconcile(work: Work) -> None:
    """Empty a namespace that is being deleted."""
    _, name = work.key
    namespace = work.api.find(NAMESPACES, name)
    if namespace is None or not is_deleting(namespace):
        return
    left = 0
    for resource in work.api.registry.storages():
        if not resource.namespaced:
            continue
        for document in work.api.list(resource, name):
            if not is_deleting(document):
                delete(work.api, resource, name_of(document), name)
            left += work.api.find(resource, name_of(document), name) is not None
    if left == 0:
        finalize_namespace(work.api, name, {"spec": {"finalizers": []}})


def _keys(api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == NAMESPACES.storage:
        yield "", name_of(change.object)
    elif change.type is ChangeType.DELETED:
        namespace = api.find(NAMESPACES, namespace_of(change.object))
        if namespace and is_deleting(namespace):
            yield "", name_of(namespace)


NAMESPACE_CONTROLLER = Controller(name="namespace", reconcile=reconcile, keys=_keys)
