"""Pod garbage collector: ends deleted pods that no kubelet can end, for they have no node.

Such a pod has a finalizer, as those of Jobs have, and would be terminating forever: its owner
waits for the final phase. Source: ``gcUnscheduledTerminating`` in pkg/controller/podgc of
k8s.io/kubernetes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kai_py.embedded.controllers.runtime import Controller, Key, Work, key_of
from kai_py.embedded.documents import is_deleting, is_finished
from kai_py.embedded.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai_py.embedded.apiserver import ApiServer
    from kai_py.embedded.documents import Json
    from kai_py.embedded.event_log import Change


def reconcile(work: Work) -> None:
    """Let one such pod fail."""
    namespace, name = work.key
    pod = work.api.find(PODS, name, namespace)
    if pod is not None and _is_left(pod):
        work.api.patch_status(PODS, pod, {"phase": "Failed"})


def _is_left(pod: Json) -> bool:
    return is_deleting(pod) and not pod["spec"].get("nodeName") and not is_finished(pod)


def _keys(_api: ApiServer, change: Change) -> Iterable[Key]:
    if _is_left(change.object):
        yield key_of(change.object)


POD_GARBAGE_COLLECTOR = Controller(
    name="pod garbage collector",
    reconcile=reconcile,
    keys=_keys,
    storages=frozenset({PODS.storage}),
)
