"""Controllers of pods' claims, of devices and of volumes: from templates, and for their pods only.

A pod that names a ResourceClaimTemplate gets a claim of its own, recorded in
`status.resourceClaimStatuses`. Consumers that are deleted, finished, or were deleted before they
were scheduled are removed from `reservedFor`. A claim without consumers is deallocated and loses
its finalizer after its last consumer was removed, or when it is deleted; an allocation that a
scheduler has only begun stays. A template claim is deleted with its finished pod.

An ephemeral volume gets the claim POD-VOLUME, which is deleted with the pod. If a claim of that
name has another owner, it is not changed, and the pod cannot use it.

Source: pkg/controller/resourceclaim and pkg/controller/volume/ephemeral of k8s.io/kubernetes.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from kai_py.api.records.resource import DELETE_PROTECTION_FINALIZER
from kai_py.api.records.unstructured import value_at
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.controllers.runtime import (
    Controller,
    Key,
    Work,
    key_of,
    owned_objects,
    record_warning,
)
from kai_py.embedded.deletion import DeleteOptions, delete
from kai_py.embedded.documents import (
    Json,
    clone,
    controller_of,
    is_deleting,
    is_finished,
    name_of,
    named_claims,
    namespace_of,
    owner_reference,
    uid_of,
    without_finalizer,
)
from kai_py.embedded.resources import CLAIM_TEMPLATES, CLAIMS, PODS, VOLUME_CLAIMS
from kai_py.embedded.store import Change, ChangeType

CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
TEMPLATE_RETRY_SECONDS = 5.0


def create_claims(work: Work) -> None:
    """Create the claims for one pod's templates."""
    namespace, name = work.key
    pod = work.api.find(PODS, name, namespace)
    if pod is None or is_deleting(pod) or is_finished(pod):
        return
    known = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    statuses = {each["name"]: each for each in known if each.get("name")}
    before = dict(statuses)
    for reference in pod["spec"].get("resourceClaims") or ():
        template = reference.get("resourceClaimTemplateName")
        if template and reference.get("name") and reference["name"] not in statuses:
            claim = _claim_of_pod(work, pod, reference["name"], template)
            if claim is not None:
                entry = {"name": reference["name"], "resourceClaimName": name_of(claim)}
                statuses[reference["name"]] = entry
    if statuses != before:
        work.api.patch_status(PODS, pod, {"resourceClaimStatuses": list(statuses.values())})


def _claim_of_pod(work: Work, pod: Json, entry: str, template_name: str) -> Json | None:
    for claim in owned_objects(work.api, pod, CLAIMS.storage):
        if (claim["metadata"].get("annotations") or {}).get(CLAIM_NAME_ANNOTATION) == entry:
            return claim
    template = work.api.find(CLAIM_TEMPLATES, template_name, namespace_of(pod))
    if template is None:
        message = f'PodResourceClaim {entry}: resource claim template "{template_name}" not found'
        record_warning(work.api, pod, "FailedResourceClaimCreation", message)
        work.requeue_after(TEMPLATE_RETRY_SECONDS)
        return None
    claim = claim_from_template(pod, entry, template)
    claim["metadata"]["generateName"] = f"{name_of(pod)}-{entry}-"
    return work.api.create(CLAIMS, claim, namespace_of(pod))


def claim_from_template(owner: Json, entry: str, template: Json) -> Json:
    """The claim, as yet without a name, for an entry of a pod, or of its PodGroup."""
    annotations = value_at(template, "spec.metadata.annotations") or {}
    return {
        "metadata": {
            "labels": clone(value_at(template, "spec.metadata.labels") or {}),
            "annotations": {**annotations, CLAIM_NAME_ANNOTATION: entry},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": clone(template["spec"].get("spec") or {}),
    }


def release_claim(work: Work) -> None:
    """Remove done pods from one claim and deallocate it when no consumer is left."""
    namespace, name = work.key
    claim = work.api.find(CLAIMS, name, namespace)
    if claim is None:
        return
    status = claim.get("status") or {}
    consumers = status.get("reservedFor") or []
    remaining = [each for each in consumers if _is_current_consumer(work.api, namespace, each)]
    is_protected = DELETE_PROTECTION_FINALIZER in (claim["metadata"].get("finalizers") or ())
    is_unused = not remaining and (bool(consumers) or is_deleting(claim))
    if remaining != consumers or (is_unused and is_protected and status.get("allocation")):
        released: Json = {"reservedFor": remaining or None}
        if is_unused and is_protected:
            released |= {"allocation": None, "devices": None}
        claim = work.api.patch_status(CLAIMS, claim, released)
    if is_unused and is_protected:
        without = partial(without_finalizer, finalizer=DELETE_PROTECTION_FINALIZER)
        work.api.edit(CLAIMS, name, namespace, without)
    _delete_with_finished_pod(work.api, claim)


def _is_current_consumer(api: ApiServer, namespace: str, consumer: Json) -> bool:
    # Only pods are known to end; consumers of other kinds are never removed.
    if consumer.get("apiGroup") or consumer["resource"] != PODS.plural:
        return True
    pod = api.find(PODS, consumer["name"], namespace)
    if pod is None or uid_of(pod) != consumer["uid"] or is_finished(pod):
        return False
    return not (is_deleting(pod) and not pod["spec"].get("nodeName"))


def _delete_with_finished_pod(api: ApiServer, claim: Json) -> None:
    owner = controller_of(claim)
    if (
        owner is None
        or owner["kind"] != PODS.kind
        or (claim.get("status") or {}).get("reservedFor")
    ):
        return
    pod = api.store.by_uid(owner["uid"])
    present = api.find(CLAIMS, name_of(claim), namespace_of(claim))
    if pod is None or present is None or is_deleting(present) or not is_finished(pod):
        return
    options = DeleteOptions(preconditions={"uid": uid_of(claim)})
    delete(api, CLAIMS, name_of(claim), namespace_of(claim), options)


def _pod_keys(api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == PODS.storage:
        if change.type is not ChangeType.DELETED and change.object["spec"].get("resourceClaims"):
            yield key_of(change.object)
        return
    if change.storage == CLAIM_TEMPLATES.storage and change.type is ChangeType.ADDED:
        for pod in api.list(PODS, namespace_of(change.object)):
            if pod["spec"].get("resourceClaims"):
                yield key_of(pod)


def _claim_keys(_api: ApiServer, change: Change) -> Iterable[Key]:
    if change.storage == CLAIMS.storage:
        yield key_of(change.object)
        return
    pod = change.object
    if change.type is not ChangeType.DELETED and not is_finished(pod) and not is_deleting(pod):
        return
    for name in named_claims(pod):
        yield namespace_of(pod), name


CLAIM_CREATOR = Controller(
    name="claim-supplier",
    reconcile=create_claims,
    keys=_pod_keys,
    storages=frozenset({PODS.storage, CLAIM_TEMPLATES.storage}),
)
CLAIM_RELEASER = Controller(
    name="claim-releaser",
    reconcile=release_claim,
    keys=_claim_keys,
    storages=frozenset({PODS.storage, CLAIMS.storage}),
)


def create_volume_claims(work: Work) -> None:
    """Create the claims for one pod's ephemeral volumes."""
    namespace, name = work.key
    pod = work.api.find(PODS, name, namespace)
    if pod is None or is_deleting(pod) or is_finished(pod):
        return
    for claim in volume_claims(pod):
        if work.api.find(VOLUME_CLAIMS, name_of(claim), namespace) is None:
            work.api.create(VOLUME_CLAIMS, claim, namespace)


def volume_claims(pod: Json) -> Iterator[Json]:
    """The claims of a pod's ephemeral volumes; none for what is no such volume."""
    volumes = pod["spec"].get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        name, template = value_at(volume, "name"), value_at(volume, "ephemeral.volumeClaimTemplate")
        if isinstance(name, str) and isinstance(value_at(template, "spec"), dict):
            yield {
                "metadata": {
                    "name": f"{name_of(pod)}-{name}",
                    "labels": clone(value_at(template, "metadata.labels") or {}),
                    "annotations": clone(value_at(template, "metadata.annotations") or {}),
                    "ownerReferences": [owner_reference(pod)],
                },
                "spec": clone(template["spec"]),
            }


def _volume_keys(_api: ApiServer, change: Change) -> Iterable[Key]:
    if change.type is ChangeType.ADDED and any(volume_claims(change.object)):
        yield key_of(change.object)


EPHEMERAL_VOLUME_CONTROLLER = Controller(
    name="ephemeral-volume",
    reconcile=create_volume_claims,
    keys=_volume_keys,
    storages=frozenset({PODS.storage}),
)
