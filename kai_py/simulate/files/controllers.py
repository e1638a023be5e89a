"""The work of controllers on objects in files: volume claims, disruptions, shared GPUs.

A claim that needs no scheduler gets the volume that was made for it, or, unless its class waits for
the first consumer, the smallest volume that satisfies it, or one that the provisioner of its class
makes. Of a volume that is made only its location matters: one of the class's allowed topologies.

A PodDisruptionBudget without a status gets the numbers that its controller would write; evictions
use them up.

A reservation pod is deleted when no pod shares its GPU, as the scheduler does in time.

Source: k8s.io/kubernetes pkg/controller/volume/persistentvolume (``syncUnboundClaim``),
k8s.io/component-helpers storage/volume (``FindMatchingVolume``).
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kai_py.api.gpu_reservation import reserved_group
from kai_py.api.pod_phases import is_finished as has_finished
from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import Pod
from kai_py.api.records.record import Record, convert_record
from kai_py.api.records.storage import (
    NO_PROVISIONER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kai_py.api.references import ClaimRef
from kai_py.embedded.controllers.disruption import budget_counts
from kai_py.embedded.documents import is_active, is_finished, is_ready
from kai_py.embedded.errors import RequestError
from kai_py.embedded.selectors import label_selector
from kai_py.embedded.subresources import counts_for_budgets, is_exempt
from kai_py.grouping.admitted import shared_groups
from kai_py.simulate.files.object_files import ObjectKey
from kai_py.simulate.files.objects import Document
from kai_py.simulate.files.written_objects import volume_claimed, with_spec
from kai_py.snapshot.available_volumes import AvailableVolume, parse_volume
from kai_py.snapshot.pod_volumes import volume_request
from kai_py.snapshot.volume_requirements import VolumeRequest

VOLUME = ("", "PersistentVolume")
STORAGE_CLASS = ("storage.k8s.io", "StorageClass")
BUDGET = ("policy", "PodDisruptionBudget")
_ALLOWED = "disruptionsAllowed"
WAITS = "WaitForFirstConsumer"


def bind_claims(found: dict[ObjectKey, Document], claims: Iterable[ObjectKey]) -> None:
    """Bind those of ``claims`` that need no scheduler, and add the volumes made for them.

    A claim, volume or class that cannot be read is not changed.
    """
    classes = {key.name: each for key, each in _records(found, STORAGE_CLASS, StorageClass)}
    volumes = [parse_volume(each) for _, each in _records(found, VOLUME, PersistentVolume)]
    volumes.sort(key=lambda each: (each.size, each.name))
    left = []
    for key, claim, request in _unbound(found, claims):
        made_for = next((each for each in volumes if _is_made_for(claim, request, each)), None)
        if made_for is not None:
            _bind(found, key, made_for.name)
            continue
        storage = classes.get(request.storage_class)
        if storage is None or storage.volume_binding_mode != WAITS:
            left.append((key, claim, request, storage))
    volumes = [each for each in volumes if _is_free(each.volume)]
    for key, claim, request, storage in left:
        smallest = next((each for each in volumes if each.satisfies(request)), None)
        if smallest is not None:
            volumes.remove(smallest)
            _bind(found, key, smallest.name)
        elif (
            storage
            and not request.selects_volumes
            and storage.provisioner not in ("", NO_PROVISIONER)
        ):
            _bind(found, key, _provisioned(found, claim, storage))


def _unbound(
    found: dict[ObjectKey, Document], claims: Iterable[ObjectKey]
) -> Iterator[tuple[ObjectKey, PersistentVolumeClaim, VolumeRequest]]:
    for key in sorted(claims):
        claim = _record(found[key], PersistentVolumeClaim)
        if claim is not None and not claim.spec.volume_name:
            with contextlib.suppress(QuantityError):
                yield key, claim, volume_request(claim)


def _records(
    found: dict[ObjectKey, Document], kind: tuple[str, str], record: type[Any]
) -> Iterable[tuple[ObjectKey, Any]]:
    for key, document in found.items():
        if key[:2] == kind:
            read = _record(document, record)
            if read is not None:
                yield key, read


def _record(document: Document, record: type[Record]) -> Any | None:
    try:
        return convert_record(document, record)
    except (msgspec.ValidationError, RecursionError):
        return None


def _is_made_for(
    claim: PersistentVolumeClaim, request: VolumeRequest, volume: AvailableVolume
) -> bool:
    """Whether the volume names the claim and has the requested size and mode, in any class."""
    reference, meta, spec = volume.volume.spec.claim_ref, claim.metadata, volume.volume.spec
    return (
        reference is not None
        and (reference.namespace, reference.name) == (meta.namespace, meta.name)
        and reference.uid in ("", meta.uid)
        and volume.size >= request.size
        and spec.volume_attributes_class_name == request.attributes_class
        and spec.volume_mode == request.volume_mode
    )


def _is_free(volume: PersistentVolume) -> bool:
    return volume.spec.claim_ref is None and volume.metadata.deletion_timestamp is None


def _provisioned(
    found: dict[ObjectKey, Document], claim: PersistentVolumeClaim, storage: StorageClass
) -> str:
    """Add the volume that the provisioner of a class makes; its name."""
    name = f"pvc-{claim.metadata.uid}"
    terms = [
        {
            "matchExpressions": [
                {"key": each.key, "operator": "In", "values": list(each.values)}
                for each in term.match_label_expressions
            ]
        }
        for term in storage.allowed_topologies
    ]
    spec: Document = {
        "capacity": dict(claim.spec.resources.requests),
        "accessModes": list(claim.spec.access_modes),
        "volumeMode": claim.spec.volume_mode,
        "storageClassName": storage.metadata.name,
        "csi": {"driver": storage.provisioner, "volumeHandle": name},
    }
    if attributes_class := claim.spec.volume_attributes_class_name:
        spec["volumeAttributesClassName"] = attributes_class
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    found[ObjectKey(*VOLUME, "", name)] = {
        "apiVersion": "v1",
        "kind": VOLUME[1],
        "metadata": {"name": name, "uid": name},
        "spec": spec,
    }
    return name


def _bind(found: dict[ObjectKey, Document], key: ObjectKey, volume: str) -> None:
    bound = {"phase": "Bound"}
    claim, volume_key = found[key], ObjectKey(*VOLUME, "", volume)
    reference = ClaimRef(key.namespace, key.name, claim["metadata"]["uid"])
    found[key] = {**with_spec(claim, {"volumeName": volume}), "status": bound}
    found[volume_key] = {**volume_claimed(found[volume_key], reference), "status": bound}


def complete_budgets(found: Mapping[ObjectKey, Document]) -> None:
    """Give budgets without a status the numbers that their controller would write.

    A running pod without conditions is healthy. Objects that cannot be read are left for the
    decoder to refuse.
    """
    missing = [
        (key, document)
        for key, document in found.items()
        if key[:2] == BUDGET and not document.get("status")
    ]
    if not missing:
        return
    by_uid = {document["metadata"]["uid"]: document for document in found.values()}
    pods_of = defaultdict[str, list[Document]](list)
    for key, document in found.items():
        if key[:2] == ("", "Pod"):
            pods_of[key.namespace].append(document)
    for key, budget in missing:
        try:
            selects = _selection(budget["spec"])
            pods = [p for p in pods_of[key.namespace] if selects(p) and not is_finished(p)]
            healthy = sum(map(_is_healthy, pods))
            budget["status"] = budget_counts(budget, pods, healthy, by_uid.get)[0]
        except (AttributeError, KeyError, TypeError, ValueError):
            continue


def _selection(spec: Document) -> Callable[[Document], bool]:
    """The pods that a budget selects: none if no API server accepts its selector."""
    try:
        selects = label_selector(spec.get("selector"))
    except RequestError:
        return lambda _pod: False
    return lambda pod: selects(pod["metadata"].get("labels") or {})


def _is_healthy(pod: Document) -> bool:
    return is_active(pod) and (_reports_no_conditions(pod) or is_ready(pod))


def _reports_no_conditions(pod: Document) -> bool:
    return pod["status"].get("phase") == "Running" and not pod["status"].get("conditions")


def spent_budget(budget: Document, pod: Document) -> Document | None:
    """A budget once ``pod`` is evicted, as the API server writes it; None if it does not change."""
    status, spec = budget.get("status") or {}, budget.get("spec") or {}
    allowed = status.get(_ALLOWED) or 0
    if allowed <= 0 or not _selection(spec)(pod) or not counts_for_budgets(pod):
        return None
    if not _reports_no_conditions(pod) and is_exempt(pod, budget):
        return None
    return {**budget, "status": {**status, _ALLOWED: allowed - 1}}


def unused_reservations(pods: Collection[Pod]) -> list[Pod]:
    """The reservation pods whose GPU none of ``pods`` shares."""
    reservations = [(gpu, pod) for pod in pods if (gpu := reserved_group(pod)) is not None]
    if not reservations:
        return []
    shared = {gpu for pod in pods if not has_finished(pod) for gpu in shared_groups(pod)}
    return [pod for gpu, pod in reservations if gpu not in shared]
