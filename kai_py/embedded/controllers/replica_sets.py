"""ReplicaSet controller: keeps `spec.replicas` active pods, deleting the least useful first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kai_py.embedded.controllers.owned_pods import (
    deletion_order,
    is_active,
    is_ready,
    owned_objects,
    pod_from_template,
)
from kai_py.embedded.controllers.runtime import Controller, Key, Work, controller_key, key_of
from kai_py.embedded.deletion import delete
from kai_py.embedded.documents import is_deleting, name_of, namespace_of
from kai_py.embedded.resources import PODS, REPLICA_SETS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai_py.embedded.apiserver import ApiServer
    from kai_py.embedded.event_log import Change


def reconcile(work: Work) -> None:
    """Bring one ReplicaSet's pods and status up to date."""
    namespace, name = work.key
    replica_set = work.api.find(REPLICA_SETS, name, namespace)
    if replica_set is None or is_deleting(replica_set):
        return
    active = [pod for pod in owned_objects(work.api, replica_set) if is_active(pod)]
    desired = replica_set["spec"]["replicas"]
    for pod in sorted(active, key=deletion_order)[: max(len(active) - desired, 0)]:
        delete(work.api, PODS, name_of(pod), namespace_of(pod))
    for _ in range(desired - len(active)):
        pod = pod_from_template(replica_set, replica_set["spec"]["template"])
        pod["metadata"]["generateName"] = f"{name}-"
        work.api.create(PODS, pod, namespace)
    active = [pod for pod in owned_objects(work.api, replica_set) if is_active(pod)]
    ready = sum(is_ready(pod) for pod in active)
    status = {
        "replicas": len(active),
        "fullyLabeledReplicas": len(active) or None,
        "readyReplicas": ready or None,
        "availableReplicas": ready or None,
        "observedGeneration": replica_set["metadata"]["generation"],
    }
    work.api.patch_status(REPLICA_SETS, replica_set, status)


def _keys(_api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == REPLICA_SETS.storage:
        yield key_of(change.object)
    else:
        yield from controller_key(change.object, REPLICA_SETS.kind)


REPLICA_SET_CONTROLLER = Controller(
    name="replica-set",
    reconcile=reconcile,
    keys=_keys,
    storages=frozenset({REPLICA_SETS.storage, PODS.storage}),
)
