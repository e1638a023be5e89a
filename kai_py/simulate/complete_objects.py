"""Objects as an API server and its controllers complete them.

Files often hold less than a cluster does: manifests that were never applied have no uid, no status
and no pods yet. What is missing is added in a fixed way, so that the same input gives the same
objects. Nothing that an object says is changed.

- Namespaces, uids, creation times, phases, and the priorities of PriorityClasses; a node without
  conditions is ready.
- Pods of Jobs, Deployments, ReplicaSets and StatefulSets that have neither a uid nor pods, as the
  controllers of the embedded cluster make them.
- Claims of pods that name a ResourceClaimTemplate.
- Owners that are referred to but not given, with nothing but their names.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kai_py.api.times import format_time
from kai_py.embedded.clock import SimulatedClock
from kai_py.embedded.cluster import DEFAULT_NAMESPACES, SYSTEM_PRIORITIES, EmbeddedCluster
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS
from kai_py.simulate.object_files import RejectedObject
from kai_py.simulate.objects import Document
from kai_py.watch.kinds import WATCHED

CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
DEFAULT_NAMESPACE = "default"
UID_SPACE = uuid.UUID("7d3f1c7e-5a0b-4c53-9c3c-6d2f0a9b8e11")
FINISHED = ("Succeeded", "Failed")

_WORKLOADS = {
    (each.group, each.kind): each for each in (JOBS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)
}
_CLUSTER_SCOPED = {
    *((kind.group, kind.name) for kind in WATCHED if not kind.namespaced),
    ("", "Namespace"),
}


class ObjectKey(NamedTuple):
    """An object in any version of its kind."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """As messages name objects: ``Pod default/train-0``."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}"


def key_of(document: Document) -> ObjectKey:
    """The key of an object that has a namespace where its kind needs one."""
    meta = document["metadata"]
    group, slash, _ = document["apiVersion"].rpartition("/")
    return ObjectKey(
        group if slash else "", document["kind"], meta.get("namespace") or "", meta["name"]
    )


def complete_objects(
    documents: Iterable[Document], now: float
) -> tuple[dict[ObjectKey, Document], list[RejectedObject]]:
    """The objects by key, and those that are left out; ``now`` in seconds since the epoch."""
    rejected: list[RejectedObject] = []
    found = _by_key(documents, rejected)
    _add_uids(found)
    _add_owners(found)
    _add_pods(found, now, rejected)
    priorities = _priorities(found)
    for key, document in list(found.items()):
        meta = document["metadata"]
        meta.setdefault("creationTimestamp", format_time(now))
        if key[:2] == ("", PODS.kind) and isinstance(document.get("spec"), dict):
            _complete_pod(document, priorities)
            _add_claims(key, document, found, now)
        elif key[:2] == ("", "Node"):
            _complete_node(document)
    return found, rejected


def _by_key(
    documents: Iterable[Document], rejected: list[RejectedObject]
) -> dict[ObjectKey, Document]:
    found: dict[ObjectKey, Document] = {}
    for given in documents:
        document = {**given, "metadata": dict(given["metadata"])}
        group, slash, _ = document["apiVersion"].rpartition("/")
        if (group if slash else "", document["kind"]) in _CLUSTER_SCOPED:
            document["metadata"].pop("namespace", None)
        elif not document["metadata"].get("namespace"):
            document["metadata"]["namespace"] = DEFAULT_NAMESPACE
        key = key_of(document)
        if key not in found:
            found[key] = document
        elif found[key] != document:
            problem = "is given twice with different content; the first is used"
            rejected.append(RejectedObject(str(key), problem))
    return found


def _references(document: Document) -> list[dict[str, Any]]:
    references = document["metadata"].get("ownerReferences")
    return [each for each in references or () if isinstance(each, dict) and each.get("name")]


def _owner_key(reference: Mapping[str, Any], namespace: str) -> ObjectKey:
    group, slash, _ = str(reference.get("apiVersion") or "").rpartition("/")
    kind, name = str(reference.get("kind") or ""), str(reference["name"])
    scope = "" if (group if slash else "", kind) in _CLUSTER_SCOPED else namespace
    return ObjectKey(group if slash else "", kind, scope, name)


def _uid(key: ObjectKey) -> str:
    return str(uuid.uuid5(UID_SPACE, "/".join(key)))


def _add_uids(found: dict[ObjectKey, Document]) -> None:
    """Give uids to objects and to references without one; they agree where either has one."""
    referred: dict[ObjectKey, str] = {}
    for key, document in found.items():
        for reference in _references(document):
            if reference.get("uid"):
                referred.setdefault(_owner_key(reference, key.namespace), str(reference["uid"]))
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


def _add_owners(found: dict[ObjectKey, Document]) -> None:
    """Add the owners of pods that are not given, so that the pods are no orphans."""
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


def _add_pods(found: dict[ObjectKey, Document], now: float, rejected: list[RejectedObject]) -> None:
    """Add the pods of workloads that were never applied."""
    owners = {
        _owner_key(each, key.namespace)
        for key, document in found.items()
        for each in _references(document)
    }
    waiting = [
        (key, document)
        for key, document in found.items()
        if key[:2] in _WORKLOADS and key not in owners and was_never_applied(key, document)
    ]
    if not waiting:
        return
    for made in _made_of(waiting, _priorities(found), now, rejected):
        found.setdefault(key_of(made), made)


def _made_of(
    workloads: Sequence[tuple[ObjectKey, Document]],
    priorities: Mapping[str, int],
    now: float,
    rejected: list[RejectedObject],
) -> Iterator[Document]:
    """The pods that controllers make for manifests of workloads, and ReplicaSets between."""
    clock = SimulatedClock(now)
    cluster = EmbeddedCluster(clock=clock, kubelet=False)
    cluster.start()
    for namespace in sorted({key.namespace for key, _ in workloads} - {*DEFAULT_NAMESPACES}):
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for name, value in sorted(priorities.items()):
        if name and name not in SYSTEM_PRIORITIES:
            cluster.create(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                }
            )
    owners: dict[str, ObjectKey] = {}
    uids = {key: document["metadata"]["uid"] for key, document in workloads}
    for key, document in workloads:
        try:
            meta = {k: v for k, v in document["metadata"].items() if k != "uid"}
            owners[cluster.create({**document, "metadata": meta})["metadata"]["uid"]] = key
        except RequestError as error:
            rejected.append(RejectedObject(str(key), error.message))
    clock.run_due()
    for made in (*cluster.api.list(REPLICA_SETS), *cluster.api.list(PODS)):
        if made["metadata"]["uid"] not in owners:
            yield _with_owner_uids(made, owners, uids)


def _with_owner_uids(
    pod: Document, owners: Mapping[str, ObjectKey], uids: Mapping[ObjectKey, str]
) -> Document:
    references = [
        {**each, "uid": uids[owners[each["uid"]]] if each["uid"] in owners else each["uid"]}
        for each in pod["metadata"].get("ownerReferences") or ()
    ]
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": references}}


def _priorities(found: Mapping[ObjectKey, Document]) -> dict[str, int]:
    """Priority by the name of its class; the empty name stands for pods that name none."""
    values = dict(SYSTEM_PRIORITIES)
    for key, document in found.items():
        value = document.get("value")
        if key[:2] == ("scheduling.k8s.io", "PriorityClass") and type(value) is int:
            values[key.name] = value
            if document.get("globalDefault") is True:
                values[""] = value
    return values


def _complete_node(node: Document) -> None:
    """A node that says nothing of its conditions is taken to be ready."""
    status = node.get("status")
    if status is None or (isinstance(status, dict) and status.get("conditions") is None):
        ready = [{"type": "Ready", "status": "True"}]
        node["status"] = {**(status or {}), "conditions": ready}


def _complete_pod(pod: Document, priorities: Mapping[str, int]) -> None:
    spec = pod["spec"]
    if spec.get("priority") is None:
        priority = priorities.get(str(spec.get("priorityClassName") or ""))
        if priority is not None:
            pod["spec"] = spec = {**spec, "priority": priority}
    status = pod.get("status")
    if isinstance(status, dict) and status.get("phase"):
        return
    phase = "Running" if spec.get("nodeName") else "Pending"
    pod["status"] = {**(status if isinstance(status, dict) else {}), "phase": phase}


def _add_claims(
    key: ObjectKey, pod: Document, found: dict[ObjectKey, Document], now: float
) -> None:
    """Add a pod's claims of templates, as the resource claim controller names them."""
    status, wanted = pod["status"], pod["spec"].get("resourceClaims")
    if status["phase"] in FINISHED or not isinstance(wanted, list):
        return
    statuses = status.get("resourceClaimStatuses")
    statuses = list(statuses) if isinstance(statuses, list) else []
    present = {each.get("name") for each in statuses if isinstance(each, dict)}
    for entry in wanted:
        if not isinstance(entry, dict) or entry.get("name") in present:
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
            claim = _claim(pod, str(entry.get("name")), template, now)
            claim_key = key_of(claim)
            found.setdefault(claim_key, claim)
            statuses.append({"name": entry["name"], "resourceClaimName": claim_key.name})
    if len(statuses) > len(present):
        pod["status"] = {**status, "resourceClaimStatuses": statuses}


def _claim(pod: Document, entry: str, template: Document, now: float) -> Document:
    meta, spec = pod["metadata"], template["spec"]
    template_meta = spec.get("metadata") if isinstance(spec.get("metadata"), dict) else {}
    key = ObjectKey(
        "resource.k8s.io", "ResourceClaim", meta["namespace"], f"{meta['name']}-{entry}"
    )
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    return {
        "apiVersion": template["apiVersion"],
        "kind": key.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "uid": _uid(key),
            "creationTimestamp": format_time(now),
            "labels": template_meta.get("labels") or {},
            "annotations": {
                **(template_meta.get("annotations") or {}),
                CLAIM_NAME_ANNOTATION: entry,
            },
            "ownerReferences": [owner],
        },
        "spec": spec.get("spec") or {},
        "status": {},
    }
