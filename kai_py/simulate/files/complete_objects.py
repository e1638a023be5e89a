"""Objects as an API server and its controllers complete them.

Files often hold less than a cluster does: manifests that were never applied have no uid, no status
and no pods yet. What is missing is added in a fixed way, so that the same input gives the same
objects. Nothing that an object says is changed.

- Namespaces and the label with their name, uids, creation times, phases; a node without conditions
  is ready, has the label with its name, and what it has is allocatable unless it says less.
- Host ports of pods on the host's network, requests where a pod has only limits, and what new pods
  get from PriorityClasses, RuntimeClasses and LimitRanges.
- The Job of a CronJob that has none.
- Pods of Jobs, Deployments, ReplicaSets and StatefulSets that have neither a uid nor pods, as the
  controllers of the embedded cluster make them, as many as a HorizontalPodAutoscaler allows.
- The status of PodDisruptionBudgets, and the priority of PodGroups of Kubernetes.
- Claims of pods and PodGroups that name a ResourceClaimTemplate, and of ephemeral volumes; volume
  claims that name no class have the default one, and are bound unless the scheduler binds them.
- Owners that are referred to but not given, with nothing but their names.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from kai_py.api.records.node import HOSTNAME_LABEL
from kai_py.api.records.unstructured import value_at
from kai_py.api.times import format_time
from kai_py.embedded.clock import SimulatedClock
from kai_py.embedded.controllers.claims import claim_from_template, volume_claims
from kai_py.embedded.documents import is_finished, owners_of
from kai_py.embedded.in_process import InProcessCluster
from kai_py.embedded.kinds.cluster import default_storage_class, has_storage_class
from kai_py.grouping.owner_chain import GroupKind
from kai_py.simulate.files.admission import (
    complete_group,
    complete_pod,
    create_surroundings,
    default_requests,
    refused_objects,
)
from kai_py.simulate.files.controllers import bind_claims, complete_budgets
from kai_py.simulate.files.created_workloads import add_jobs_of_cron_jobs
from kai_py.simulate.files.manifest_pods import WORKLOADS, bound_replicas, pods_of_manifests
from kai_py.simulate.files.object_files import ObjectKey, RejectedObject, key_of
from kai_py.simulate.files.objects import Document
from kai_py.watch.kinds import COMPOSITE_GROUPS, NATIVE_GROUPS, WATCHED, WATCHED_BY_NAME

GROUPS = {(each.group, each.name) for each in (NATIVE_GROUPS, COMPOSITE_GROUPS)}
VOLUME_CLAIM = ("", "PersistentVolumeClaim")
DEFAULT_NAMESPACE = "default"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
UID_SPACE = uuid.UUID("7d3f1c7e-5a0b-4c53-9c3c-6d2f0a9b8e11")
_REFERENCE = ("apiVersion", "kind", "name", "uid")
_VERSION = re.compile("[0-9]{1,20}")

_CLUSTER_SCOPED = {
    *((kind.group, kind.name) for kind in WATCHED if not kind.namespaced),
    ("", "Namespace"),
}


def complete_objects(
    documents: Iterable[Document], now: float
) -> tuple[dict[ObjectKey, Document], list[RejectedObject], Set[ObjectKey]]:
    """The objects by key, those that are left out, and the owners that are not given.

    ``now`` in seconds since the epoch.
    """
    rejected: list[RejectedObject] = []
    found = _by_key(documents, rejected)
    add_jobs_of_cron_jobs(found)
    found = dict(sorted(found.items()))
    refused = {each.object: each for each in refused_objects(found)}
    rejected += refused.values()
    found = {key: each for key, each in found.items() if str(key) not in refused}
    default_requests(found)
    _complete_namespaces(found)
    rejected += _drop_repeated_uids(found)
    _add_uids(found)
    absent = _add_owners(found)
    never_applied = _never_applied(found)
    bound_replicas(found, never_applied)
    workloads, clock = [(key, found[key]) for key in never_applied], SimulatedClock(now)
    cluster = InProcessCluster(clock=clock, kubelet=False)
    cluster.start()
    create_surroundings(cluster, found, {key.namespace for key, _ in workloads})
    made = {key_of(each): each for each in pods_of_manifests(workloads, cluster, clock, rejected)}
    found |= {key: each for key, each in made.items() if key not in found}
    for key, document in list(found.items()):
        meta = document["metadata"]
        meta.setdefault("creationTimestamp", format_time(now))
        if key[:2] == ("", "Pod") and isinstance(document.get("spec"), dict):
            problem = complete_pod(document, cluster.store, is_new=_is_new(key, document))
            if problem:
                rejected.append(RejectedObject(str(key), problem))
                del found[key]
                continue
            _add_claims(key, document, found, now)
            _add_volume_claims(document, found, now)
        elif key[:2] == ("", "Node"):
            _complete_node(key, document)
        elif key[:2] in GROUPS:
            complete_group(document, cluster.store)
    _set_default_class(found)
    claims = (key for key in found if key[:2] == VOLUME_CLAIM)
    bind_claims(found, [key for key in claims if key in made or _is_new(key, found[key])])
    complete_budgets(found)
    return found, rejected, absent


def _by_key(
    documents: Iterable[Document], rejected: list[RejectedObject]
) -> dict[ObjectKey, Document]:
    """Objects by their keys, in the order of these: that of the files must not matter."""
    found: dict[ObjectKey, Document] = {}
    for given in documents:
        document = {**given, "metadata": dict(given["metadata"])}
        group = document["apiVersion"].rpartition("/")[0]
        if (group, document["kind"]) in _CLUSTER_SCOPED:
            document["metadata"].pop("namespace", None)
        elif not document["metadata"].get("namespace"):
            document["metadata"]["namespace"] = DEFAULT_NAMESPACE
        key = key_of(document)
        known = found.setdefault(key, document)
        if known == document:
            continue
        found[key] = max(known, document, key=_state_of)
        if _version(known) < 0 or _version(known) != _version(document):
            problem = "is given more than once with different content; the newest state is used"
            rejected.append(RejectedObject(str(key), problem))
    return dict(sorted(found.items()))


def _state_of(document: Document) -> tuple[bool, int, str]:
    """Orders states of one object: first what can be read, then what an API server wrote last."""
    key = key_of(document)
    kind = WATCHED_BY_NAME.get(GroupKind(key.group, key.kind))
    supported = kind is None or document["apiVersion"].rpartition("/")[2] in kind.versions
    return supported, _version(document), json.dumps(document, sort_keys=True)


def _version(document: Document) -> int:
    """The resourceVersion of an object; -1 if it was never applied."""
    version = document["metadata"].get("resourceVersion")
    return int(version) if isinstance(version, str) and _VERSION.fullmatch(version) else -1


def _references(document: Document) -> list[dict[str, Any]]:
    """The owners that a document names; what is no text is left to the decoder to refuse."""
    return [
        each
        for each in owners_of(document)
        if isinstance(each, dict)
        and each.get("name")
        and all(isinstance(each.get(name) or "", str) for name in _REFERENCE)
    ]


def _owner_key(reference: Mapping[str, Any], namespace: str) -> ObjectKey:
    group = (reference.get("apiVersion") or "").rpartition("/")[0]
    kind, name = reference.get("kind") or "", reference["name"]
    scope = "" if (group, kind) in _CLUSTER_SCOPED else namespace
    return ObjectKey(group, kind, scope, name)


def _uid(key: ObjectKey) -> str:
    return str(uuid.uuid5(UID_SPACE, "/".join(key)))


def _drop_repeated_uids(found: Mapping[ObjectKey, Document]) -> Iterator[RejectedObject]:
    """Make objects new that have the uid of another one of their kind, as copies have."""
    known: dict[tuple[str, str, str], ObjectKey] = {}
    for key, document in found.items():
        meta = document["metadata"]
        if not meta.get("uid"):
            continue
        first = known.setdefault((key.group, key.kind, meta["uid"]), key)
        if first != key:
            meta.pop("uid")
            meta.pop("resourceVersion", None)
            problem = f"metadata.uid is that of {first}; it counts as a new object"
            yield RejectedObject(str(key), problem)


def _add_uids(found: dict[ObjectKey, Document]) -> None:
    """Give uids to objects and to references without one; they agree where either has one."""
    referred: dict[ObjectKey, str] = {}
    for key, document in found.items():
        for reference in _references(document):
            if reference.get("uid"):
                referred.setdefault(_owner_key(reference, key.namespace), reference["uid"])
    for key, document in found.items():
        meta = document["metadata"]
        if not meta.get("uid"):
            meta["uid"] = referred.get(key) or _uid(key)
    for key, document in found.items():
        if any(not each.get("uid") for each in _references(document)):
            document["metadata"]["ownerReferences"] = [
                _with_uid(each, key.namespace, found) for each in _references(document)
            ]


def was_never_applied(key: ObjectKey, document: Document) -> bool:
    """Whether a completed object had no uid, nor a pod that names one for it."""
    return bool(document["metadata"]["uid"] == _uid(key))


def _with_uid(
    reference: dict[str, Any], namespace: str, found: Mapping[ObjectKey, Document]
) -> dict[str, Any]:
    owner = _owner_key(reference, namespace)
    known = found[owner]["metadata"]["uid"] if owner in found else _uid(owner)
    return {**reference, "uid": reference.get("uid") or known}


def owner_keys(key: ObjectKey, document: Document) -> Iterator[ObjectKey]:
    """The keys of the owners that an object names; ``key``: its own."""
    for reference in _references(document):
        yield _owner_key(reference, key.namespace)


def owner_uids(documents: Iterable[Document]) -> set[str]:
    """The uids of all objects that own one of ``documents``."""
    return {
        str(each.get("uid"))
        for document in documents
        for each in owners_of(document)
        if isinstance(each, dict)
    }


def _add_owners(found: dict[ObjectKey, Document]) -> Set[ObjectKey]:
    """Add the owners of pods that are not given, so that the pods are no orphans; their keys."""
    missing: dict[ObjectKey, Document] = {}
    for key, document in found.items():
        for reference in _references(document):
            owner = _owner_key(reference, key.namespace)
            if owner not in found and owner.kind:
                meta = {"name": owner.name, "uid": reference["uid"]}
                if owner.namespace:
                    meta["namespace"] = owner.namespace
                missing[owner] = {
                    "apiVersion": reference.get("apiVersion") or "v1",
                    "kind": owner.kind,
                    "metadata": meta,
                }
    found |= missing
    return missing.keys()


def _never_applied(found: Mapping[ObjectKey, Document]) -> list[ObjectKey]:
    """Workloads without a uid and without pods."""
    workloads = [
        key
        for key, document in found.items()
        if key[:2] in WORKLOADS and was_never_applied(key, document)
    ]
    if not workloads:
        return []
    owners = {owner for key, document in found.items() for owner in owner_keys(key, document)}
    return [key for key in workloads if key not in owners]


def _complete_namespaces(found: dict[ObjectKey, Document]) -> None:
    """Add the namespaces of objects, and to each the label with its name."""
    for name in sorted({key.namespace for key in found} - {""}):
        key = ObjectKey("", "Namespace", "", name)
        made = {"apiVersion": "v1", "kind": key.kind, "metadata": {"name": name}}
        found.setdefault(key, made)
    for key, namespace in found.items():
        if key[:2] == ("", "Namespace"):
            meta = namespace["metadata"]
            labels = meta.get("labels") or {}
            if isinstance(labels, dict):
                meta["labels"] = {**labels, NAMESPACE_NAME: key.name}


def _is_new(key: ObjectKey, document: Document) -> bool:
    """Whether a pod or volume claim was never applied: a cluster gives it a uid and a phase."""
    return not value_at(document, "status.phase") and was_never_applied(key, document)


def _complete_node(key: ObjectKey, node: Document) -> None:
    """A node that says nothing of its conditions is ready; a new one is labelled with its name."""
    status, labels = node.get("status"), node["metadata"].get("labels") or {}
    if was_never_applied(key, node) and isinstance(labels, dict):
        node["metadata"]["labels"] = {HOSTNAME_LABEL: key.name, **labels}
    if status is None or isinstance(status, dict):
        given = {name: each for name, each in (status or {}).items() if each is not None}
        ready = [{"type": "Ready", "status": "True"}]
        allocatable = {"allocatable": given["capacity"]} if "capacity" in given else {}
        node["status"] = {"conditions": ready, **allocatable, **given}


def _add_claims(
    key: ObjectKey, pod: Document, found: dict[ObjectKey, Document], now: float
) -> None:
    """Add a pod's claims of templates, as the resource claim controller names them."""
    status, wanted = pod["status"], pod["spec"].get("resourceClaims")
    if is_finished(pod) or not isinstance(wanted, list):
        return
    statuses = status.get("resourceClaimStatuses")
    statuses = list(statuses) if isinstance(statuses, list) else []
    named = (each.get("name") for each in statuses if isinstance(each, dict))
    present = {name for name in named if isinstance(name, str)}
    given = len(statuses)
    for entry in wanted:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name in present:
            continue
        template = found.get(
            ObjectKey(
                "resource.k8s.io",
                "ResourceClaimTemplate",
                key.namespace,
                str(entry.get("resourceClaimTemplateName") or ""),
            )
        )
        if template is not None and isinstance(template.get("spec"), dict):
            owner = _claim_owner(pod, entry, found)
            claim_name = f"{owner['metadata']['name']}-{name}"
            claim_key = ObjectKey("resource.k8s.io", "ResourceClaim", key.namespace, claim_name)
            made = {**claim_from_template(owner, name, template), "status": {}}
            found.setdefault(claim_key, _created(claim_key, template["apiVersion"], made, now))
            statuses.append({"name": name, "resourceClaimName": claim_name})
    if len(statuses) > given:
        pod["status"] = {**status, "resourceClaimStatuses": statuses}


def _claim_owner(pod: Document, entry: Document, found: Mapping[ObjectKey, Document]) -> Document:
    """The pod, or its PodGroup if that has the same entry: one claim for all pods (KEP-5729)."""
    name = value_at(pod["spec"], "schedulingGroup.podGroupName")
    namespace = pod["metadata"]["namespace"]
    group = found.get(ObjectKey("scheduling.k8s.io", "PodGroup", namespace, str(name)))
    entries = value_at(group, "spec.resourceClaims")
    return group if group and isinstance(entries, list) and entry in entries else pod


def _created(key: ObjectKey, api_version: str, made: Document, now: float) -> Document:
    """What a controller made, as the API server has it then."""
    given = {"name": key.name, "namespace": key.namespace, "uid": _uid(key)}
    metadata = {**made["metadata"], **given, "creationTimestamp": format_time(now)}
    return {"apiVersion": api_version, "kind": key.kind, **made, "metadata": metadata}


def _add_volume_claims(pod: Document, found: dict[ObjectKey, Document], now: float) -> None:
    """Add the claims of a pod's ephemeral volumes, as the controller of these names them."""
    if is_finished(pod):
        return
    for claim in volume_claims(pod):
        namespace, name = pod["metadata"]["namespace"], claim["metadata"]["name"]
        key = ObjectKey(*VOLUME_CLAIM, namespace, name)
        found.setdefault(key, _created(key, "v1", claim, now))


def _set_default_class(found: dict[ObjectKey, Document]) -> None:
    """Give volume claims that leave their class open the default one, as DefaultStorageClass."""
    storage_class = ("storage.k8s.io", "StorageClass")
    classes = (each for key, each in found.items() if key[:2] == storage_class)
    default = default_storage_class(classes)
    for key, claim in found.items():
        spec = claim.get("spec")
        if not default or key[:2] != VOLUME_CLAIM or not isinstance(spec, dict):
            continue
        if not has_storage_class(claim) and not spec.get("volumeName"):
            found[key] = {**claim, "spec": {**spec, "storageClassName": default}}
