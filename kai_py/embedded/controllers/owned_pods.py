"""Pods of workloads: finding, creating and classifying them."""

from collections.abc import Sequence

from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import (
    Json,
    clone,
    controller_of,
    is_deleting,
    is_finished,
    is_true,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from kai_py.embedded.resources import PODS


def owned_objects(api: ApiServer, owner: Json, storage: str = PODS.storage) -> Sequence[Json]:
    """The objects of a kind that `owner` controls, by name."""
    found = [
        document
        for kind, document in api.store.dependents(uid_of(owner))
        if kind == storage and (controller_of(document) or {}).get("uid") == uid_of(owner)
    ]
    return sorted(found, key=name_of)


def pod_from_template(owner: Json, template: Json) -> Json:
    """An unnamed pod made from a PodTemplateSpec and controlled by `owner`."""
    meta = clone(template.get("metadata") or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace_of(owner),
            "labels": meta.get("labels") or {},
            "annotations": meta.get("annotations") or {},
            "finalizers": list(meta.get("finalizers") or ()),
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": clone(template["spec"]),
    }


def is_active(pod: Json) -> bool:
    """Whether the pod runs or may still run."""
    return not is_finished(pod) and not is_deleting(pod)


def is_ready(pod: Json) -> bool:
    """Whether the pod is Ready."""
    return is_true(pod, "Ready")


def deletion_order(pod: Json) -> tuple[bool, bool, str, str]:
    """Sort key: the pods to delete first (unassigned, not ready, youngest)."""
    # Youngest first: timestamps sort as text, so invert every character.
    inverted_age = "".join(chr(255 - ord(each)) for each in pod["metadata"]["creationTimestamp"])
    return bool(pod["spec"].get("nodeName")), is_ready(pod), inverted_age, name_of(pod)
