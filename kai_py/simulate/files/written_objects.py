"""Objects as the writes of a plan leave them: each function returns a changed document."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from kai_py.api.gpu_share import shared_gpu_metadata
from kai_py.api.queue import ADMISSION_GATE
from kai_py.api.records.job import SUSPENDED_AT_KEY, SUSPENDED_BY_KEY
from kai_py.api.records.resource import DELETE_PROTECTION_FINALIZER
from kai_py.api.records.unstructured import value_at
from kai_py.api.references import ClaimRef
from kai_py.plan.plan import ClaimToCreate, Placement
from kai_py.simulate.files.objects import Document


def with_spec(document: Document, fields: Mapping[str, Any]) -> Document:
    """The document with some fields of its spec replaced."""
    return {**document, "spec": {**(document.get("spec") or {}), **fields}}


def with_annotations(document: Document, annotations: Mapping[str, str]) -> Document:
    """The document with some annotations added or replaced."""
    meta = document["metadata"]
    written = {**(meta.get("annotations") or {}), **annotations}
    return {**document, "metadata": {**meta, "annotations": written}}


def admitted_pod(pod: Document) -> Document:
    """The pod without the scheduler's own scheduling gate."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    left = [each for each in gates if each.get("name") != ADMISSION_GATE]
    return with_spec(pod, {"schedulingGates": left})


def suspended_job(job: Document, suspended_at: str) -> Document:
    """``job`` as the scheduler suspends it."""
    scheduler = value_at(job, "spec.template.spec.schedulerName") or ""
    marks = {SUSPENDED_BY_KEY: scheduler, SUSPENDED_AT_KEY: suspended_at}
    return with_spec(with_annotations(job, marks), {"suspend": True})


def resumed_job(job: Document) -> Document:
    """``job`` as the scheduler resumes it."""
    meta = job["metadata"]
    marks = (SUSPENDED_BY_KEY, SUSPENDED_AT_KEY)
    annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if k not in marks}
    resumed = {**job, "metadata": {**meta, "annotations": annotations}}
    return with_spec(resumed, {"suspend": False})


def protected_claim(claim: Document) -> Document:
    """The claim with the finalizer that keeps it while it is allocated."""
    meta = claim["metadata"]
    finalizers = meta.get("finalizers") or []
    if DELETE_PROTECTION_FINALIZER in finalizers:
        return claim
    protected = [*finalizers, DELETE_PROTECTION_FINALIZER]
    return {**claim, "metadata": {**meta, "finalizers": protected}}


def with_consumer(status: Document, consumer: Document, allocation: Document | None) -> Document:
    """A claim's status with one more consumer, and with the allocation if it is a new one."""
    listed = status.get("reservedFor") or []
    changed = {**status, "reservedFor": [*listed, *([] if consumer in listed else [consumer])]}
    return changed if allocation is None else {**changed, "allocation": allocation}


def without_consumers(status: Document, consumers: Collection[str]) -> Document:
    """A claim's status without some consumers; the last one takes its devices along."""
    listed = status.get("reservedFor") or ()
    remaining = [each for each in listed if each.get("uid") not in consumers]
    if remaining:
        return {**status, "reservedFor": remaining}
    ended = {"reservedFor", "allocation", "devices"}
    return {key: value for key, value in status.items() if key not in ended}


def created_claim(wanted: ClaimToCreate) -> Document:
    """The claim for a pod's extended resources, before it is allocated."""
    meta = wanted.claim.metadata
    return {
        "metadata": {
            "name": meta.name,
            "annotations": meta.annotations,
            "ownerReferences": msgspec.to_builtins(meta.owner_references),
        },
        "spec": msgspec.to_builtins(wanted.claim.spec),
    }


def extended_resource_status(wanted: ClaimToCreate) -> Document:
    """The fields of a pod's status that name the claim for its extended resources."""
    uses = list(msgspec.to_builtins(wanted.uses))
    named = {"resourceClaimName": wanted.claim.metadata.name, "requestMappings": uses}
    return {"extendedResourceClaimStatus": named}


def volume_claimed(volume: Document, claim: ClaimRef) -> Document:
    """A pre-provisioned volume, bound to the claim."""
    reference = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
    return with_spec(volume, {"claimRef": reference})


def with_gpu_share(pod: Document, placement: Placement) -> Document:
    """The pod with the names of the GPUs that it shares, in place of former ones."""
    if not placement.gpus:
        return pod
    metadata = pod["metadata"]
    former, _ = shared_gpu_metadata(placement.former_gpus)
    labels, annotations = shared_gpu_metadata(placement.gpus)
    kept = {k: v for k, v in (metadata.get("labels") or {}).items() if k not in former}
    shared = {
        "labels": {**kept, **labels},
        "annotations": {**(metadata.get("annotations") or {}), **annotations},
    }
    return {**pod, "metadata": {**metadata, **shared}}
