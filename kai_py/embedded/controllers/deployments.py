"""Deployments → ReplicaSets → pods: a set per pod template, shifted by maxSurge and maxUnavailable.

The new set grows while all sets together stay below replicas + maxSurge; old sets shrink while at
least replicas - maxUnavailable pods are ready. With Recreate the old sets go to zero first.
A ReplicaSet keeps `spec.replicas` active pods and deletes the least useful first.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from kai_py.api.numbers import parse_int64
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.runtime import Controller, Work, keys_of, owned_objects
from kai_py.embedded.deletion import delete
from kai_py.embedded.documents import (
    Json,
    clone,
    deletion_order,
    is_active,
    is_deleting,
    is_ready,
    name_of,
    namespace_of,
    owner_reference,
    pod_from_template,
    short_hash,
    with_condition,
)
from kai_py.embedded.resources import DEPLOYMENTS, PODS, REPLICA_SETS

HASH_LABEL = "pod-template-hash"
REVISION_ANNOTATION = "deployment.kubernetes.io/revision"


def reconcile(work: Work) -> None:
    """Bring one Deployment's ReplicaSets and status up to date."""
    namespace, name = work.key
    deployment = work.api.find(DEPLOYMENTS, name, namespace)
    if deployment is None or is_deleting(deployment):
        return
    sets = owned_objects(work.api, deployment, REPLICA_SETS.storage)
    new_name = f"{name}-{template_hash(deployment['spec']['template'])}"
    old = [each for each in sets if name_of(each) != new_name]
    new = next((each for each in sets if name_of(each) == new_name), None)
    if not deployment["spec"].get("paused"):
        if new is None:
            new = work.api.create(
                REPLICA_SETS, _replica_set(deployment, new_name, len(old)), namespace
            )
        _roll_out(work.api, deployment, new, old)
        _prune(work.api, deployment, old)
    _update_status(work, deployment, new, owned_objects(work.api, deployment, REPLICA_SETS.storage))


def template_hash(template: Json) -> str:
    """The hash of a pod template for names and labels."""
    return short_hash(json.dumps(template, sort_keys=True))


def _replica_set(deployment: Json, name: str, older: int) -> Json:
    template = clone(deployment["spec"]["template"])
    label = {HASH_LABEL: name.rsplit("-", 1)[1]}
    labels = (template["metadata"].get("labels") or {}) | label
    template["metadata"]["labels"] = labels
    selector = clone(deployment["spec"]["selector"])
    selector["matchLabels"] = (selector.get("matchLabels") or {}) | label
    annotations = dict(deployment["metadata"].get("annotations") or {})
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations | {REVISION_ANNOTATION: str(older + 1)},
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }


def _roll_out(api: ApiServer, deployment: Json, new: Json, old: Sequence[Json]) -> None:
    replicas = deployment["spec"]["replicas"]
    surge, unavailable = _surge_and_unavailable(deployment)
    old_total = sum(each["spec"]["replicas"] for each in old)
    old_pods = sum(each["status"].get("replicas", 0) for each in old)
    if deployment["spec"]["strategy"]["type"] == "Recreate":
        for each in old:
            _resize(api, each, 0)
        if old_pods == 0:
            _resize(api, new, replicas)
        return
    current = new["spec"]["replicas"]
    growth = replicas + surge - old_total - current
    _resize(api, new, min(replicas, current + max(growth, 0)))
    ready = sum(_stable_pods(each) for each in (new, *old))
    surplus = ready - (replicas - unavailable)
    for each in old:
        idle = each["spec"]["replicas"] - _stable_pods(each)
        reduction = min(each["spec"]["replicas"], idle + max(surplus, 0))
        surplus -= max(reduction - idle, 0)
        _resize(api, each, each["spec"]["replicas"] - reduction)


def _stable_pods(replica_set: Json) -> int:
    """Count the ready pods that stay: the status may include pods that are being deleted."""
    return int(min(replica_set["status"].get("readyReplicas", 0), replica_set["spec"]["replicas"]))


def _surge_and_unavailable(deployment: Json) -> tuple[int, int]:
    replicas = deployment["spec"]["replicas"]
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    surge = resolve_int_or_string(rolling.get("maxSurge", "25%"), replicas, round_up=True)
    unavailable = resolve_int_or_string(
        rolling.get("maxUnavailable", "25%"), replicas, round_up=False
    )
    # Both may round to 0, and the rollout would never progress; upstream does the same.
    return (surge, unavailable) if surge or unavailable else (0, 1)


def resolve_int_or_string(value: Any, total: int, *, round_up: bool) -> int:
    """Resolve an IntOrString such as 2 or "25%" against `total`."""
    if isinstance(value, int):
        return value
    share = int(str(value).removesuffix("%")) * total / 100
    return math.ceil(share) if round_up else math.floor(share)


def _resize(api: ApiServer, replica_set: Json, replicas: int) -> None:
    if replica_set["spec"]["replicas"] == replicas:
        return

    def change(present: Json) -> Json:
        return {**present, "spec": {**present["spec"], "replicas": replicas}}

    api.edit(REPLICA_SETS, name_of(replica_set), namespace_of(replica_set), change)


def _prune(api: ApiServer, deployment: Json, old: Sequence[Json]) -> None:
    empty = [
        each for each in old if not each["spec"]["replicas"] and not each["status"]["replicas"]
    ]
    keep = deployment["spec"]["revisionHistoryLimit"]
    for each in sorted(empty, key=_revision)[: max(len(empty) - keep, 0)]:
        delete(api, REPLICA_SETS, name_of(each), namespace_of(each))


def _revision(replica_set: Json) -> int:
    """0 for one that the Deployment did not create."""
    annotations = replica_set["metadata"].get("annotations") or {}
    return parse_int64(annotations.get(REVISION_ANNOTATION, "")) or 0


def _update_status(work: Work, deployment: Json, new: Json | None, sets: Sequence[Json]) -> None:
    def total(field: str) -> int:
        return sum(each["status"].get(field, 0) for each in sets)

    current = next((each for each in sets if new and name_of(each) == name_of(new)), None)
    replicas = deployment["spec"]["replicas"]
    _, unavailable = _surge_and_unavailable(deployment)
    available = total("availableReplicas")
    status: Json = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": total("replicas") or None,
        "updatedReplicas": (current["status"].get("replicas", 0) if current else 0) or None,
        "readyReplicas": total("readyReplicas") or None,
        "availableReplicas": available or None,
        "unavailableReplicas": max(replicas - available, 0) or None,
    }
    is_available = available >= replicas - unavailable
    condition = {
        "type": "Available",
        "status": "True" if is_available else "False",
        "reason": "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
    }
    before = deployment.get("status") or {}
    status["conditions"] = with_condition(before, condition, now=work.now)["conditions"]
    work.api.patch_status(DEPLOYMENTS, deployment, status)


DEPLOYMENT_CONTROLLER = Controller(
    name="deployment",
    reconcile=reconcile,
    keys=keys_of(DEPLOYMENTS),
    storages=frozenset({DEPLOYMENTS.storage, REPLICA_SETS.storage}),
)


def reconcile_replica_set(work: Work) -> None:
    """Bring one ReplicaSet's pods and status up to date."""
    namespace, name = work.key
    replica_set = work.api.find(REPLICA_SETS, name, namespace)
    if replica_set is None or is_deleting(replica_set):
        return
    active = [pod for pod in owned_objects(work.api, replica_set) if is_active(pod)]
    desired = replica_set["spec"]["replicas"]
    if (surplus := len(active) - desired) > 0:
        for pod in sorted(active, key=deletion_order)[:surplus]:
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


REPLICA_SET_CONTROLLER = Controller(
    name="replica-set",
    reconcile=reconcile_replica_set,
    keys=keys_of(REPLICA_SETS),
    storages=frozenset({REPLICA_SETS.storage, PODS.storage}),
)
