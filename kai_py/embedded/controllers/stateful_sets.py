"""StatefulSet controller: pods NAME-0, NAME-1, …, in order or in parallel.

OrderedReady creates a pod when all lower ones are ready and removes one at a time. A pod of an
older template is deleted, highest ordinal first, when all others are ready. Volume claims are
created from their templates and kept; nothing here binds them.
"""

from collections.abc import Sequence

from kai_py.api.numbers import parse_int64
from kai_py.api.records.unstructured import value_at
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.deployments import template_hash
from kai_py.embedded.controllers.runtime import Controller, Work, keys_of, owned_objects
from kai_py.embedded.deletion import delete
from kai_py.embedded.documents import (
    Json,
    clone,
    is_deleting,
    is_finished,
    is_ready,
    name_of,
    namespace_of,
    pod_from_template,
)
from kai_py.embedded.resources import PODS, STATEFUL_SETS, VOLUME_CLAIMS

REVISION_LABEL = "controller-revision-hash"


def reconcile(work: Work) -> None:
    """Take one StatefulSet one step towards its spec."""
    namespace, name = work.key
    stateful_set = work.api.find(STATEFUL_SETS, name, namespace)
    if stateful_set is None or is_deleting(stateful_set):
        return
    pods = {
        ordinal: pod
        for pod in owned_objects(work.api, stateful_set)
        if (ordinal := _ordinal(pod, name)) is not None
    }
    revision = f"{name}-{template_hash(stateful_set['spec']['template'])}"
    _reconcile_pods(work.api, stateful_set, pods, revision)
    _update_status(work, stateful_set, owned_objects(work.api, stateful_set), revision)


def _reconcile_pods(
    api: ApiServer, stateful_set: Json, pods: dict[int, Json], revision: str
) -> None:
    start = (stateful_set["spec"].get("ordinals") or {}).get("start", 0)
    wanted = range(start, start + stateful_set["spec"]["replicas"])
    ordered = stateful_set["spec"]["podManagementPolicy"] == "OrderedReady"
    for ordinal in wanted:
        pod = pods.get(ordinal)
        if pod is None:
            _create(api, stateful_set, ordinal, revision)
        elif is_finished(pod) and not is_deleting(pod):
            delete(api, PODS, name_of(pod), namespace_of(pod))
        if ordered and (pod is None or not is_ready(pod) or is_deleting(pod)):
            return
    surplus = sorted((each for each in pods if each not in wanted), reverse=True)
    for ordinal in surplus[:1] if ordered else surplus:
        if not is_deleting(pods[ordinal]):
            delete(api, PODS, name_of(pods[ordinal]), namespace_of(pods[ordinal]))
    rolling = stateful_set["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    if not surplus and rolling:
        _replace_outdated(api, pods, revision)


def _replace_outdated(api: ApiServer, pods: dict[int, Json], revision: str) -> None:
    if any(is_deleting(pod) or not is_ready(pod) for pod in pods.values()):
        return
    for ordinal in sorted(pods, reverse=True):
        pod = pods[ordinal]
        if _revision(pod) != revision:
            delete(api, PODS, name_of(pod), namespace_of(pod))
            return


def _create(api: ApiServer, stateful_set: Json, ordinal: int, revision: str) -> None:
    spec, namespace = stateful_set["spec"], namespace_of(stateful_set)
    pod = pod_from_template(stateful_set, spec["template"])
    name = f"{name_of(stateful_set)}-{ordinal}"
    meta = pod["metadata"]
    meta["name"] = name
    meta["labels"] |= {
        "apps.kubernetes.io/pod-index": str(ordinal),
        "statefulset.kubernetes.io/pod-name": name,
        REVISION_LABEL: revision,
    }
    pod["spec"] |= {"hostname": name, "subdomain": spec.get("serviceName", "")}
    claims = {}
    for template in spec.get("volumeClaimTemplates") or ():
        volume = template["metadata"]["name"]
        claim_name = f"{volume}-{name}"
        claims[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": claim_name}}
        if api.find(VOLUME_CLAIMS, claim_name, namespace) is None:
            meta = {key: template["metadata"].get(key) or {} for key in ("labels", "annotations")}
            claim = {"metadata": {**meta, "name": claim_name}, "spec": template["spec"]}
            api.create(VOLUME_CLAIMS, clone(claim), namespace)
    if claims:
        # A template's claim takes the place of the pod's volume of that name.
        volumes = pod["spec"].get("volumes") or ()
        others = [each for each in volumes if value_at(each, "name") not in claims]
        pod["spec"]["volumes"] = [*claims.values(), *others]
    api.create(PODS, pod, namespace)


def _revision(pod: Json) -> str:
    """Empty for a pod that the StatefulSet did not create."""
    return (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) or ""


def _ordinal(pod: Json, stateful_set: str) -> int | None:
    """None for a pod that no set of this name creates."""
    parent, _, ordinal = name_of(pod).rpartition("-")
    return parse_int64(ordinal) if parent == stateful_set else None


def _update_status(work: Work, stateful_set: Json, pods: Sequence[Json], revision: str) -> None:
    ready = sum(is_ready(pod) for pod in pods)
    updated = sum(_revision(pod) == revision for pod in pods)
    before = (stateful_set.get("status") or {}).get("currentRevision")
    done = updated == len(pods) == stateful_set["spec"]["replicas"]
    status = {
        "observedGeneration": stateful_set["metadata"]["generation"],
        "replicas": len(pods),
        "readyReplicas": ready or None,
        "availableReplicas": ready,
        "updatedReplicas": updated or None,
        "currentRevision": revision if done else before or revision,
        "updateRevision": revision,
    }
    work.api.patch_status(STATEFUL_SETS, stateful_set, status)


STATEFUL_SET_CONTROLLER = Controller(
    name="stateful-set",
    reconcile=reconcile,
    keys=keys_of(STATEFUL_SETS),
    storages=frozenset({STATEFUL_SETS.storage, PODS.storage}),
)
