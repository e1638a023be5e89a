"""Objects as the writes of a plan leave them, and its execution in a simulated cluster.

A plan is executed at once, in order, without retries. There are no other writers than the cluster's
controllers (``cluster``). The writes are those of ``commit``: claims get their allocation and their
consumers, pods that share GPUs the names of their GPU groups, then pods are bound; victims go
through the Eviction API, so disruption budgets are enforced here as well.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from kai_py.api.gpu_share import shared_gpu_metadata
from kai_py.api.queue import ADMISSION_GATE, CHECKPOINT_BY_KEY
from kai_py.api.records.job import SUSPENDED_AT_KEY, SUSPENDED_BY_KEY
from kai_py.api.records.resource import DELETE_PROTECTION_FINALIZER
from kai_py.api.records.resource_versions import allocation_document
from kai_py.api.references import ClaimRef, PodRef
from kai_py.api.times import format_time
from kai_py.commit.claims.recovery import LeftoverClaim
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import lookup
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import CLAIMS, JOBS, PODS, VOLUME_CLAIMS, VOLUMES
from kai_py.embedded.subresources import bind, evict
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import ClaimToCreate, Eviction, GangPlacement, Placement, Plan
from kai_py.simulate.objects import Document
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.tables.pod_table import AssumedBinding


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
    scheduler = lookup(job, "spec.template.spec.schedulerName") or ""
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


log = logging.getLogger(__name__)

REFUSAL_SECONDS = 10.0
"""Backoff of a gang whose victims may not be evicted now, as the Eviction API's Retry-After."""


def execute(plan: Plan, api: ApiServer, builder: SnapshotBuilder, wake: Callable[[], None]) -> None:
    """Write everything that ``plan`` decided; ``wake`` requests another plan after a refusal."""
    now = api.clock.now()
    for gang in plan.placements:
        if gang.resume:
            _resume(gang, api, builder, wake)
        else:
            _start(gang, api, builder, wake)
    for nomination in plan.nominations:
        builder.nominate(nomination.pod.uid, nomination.node, now)
    suspended = {each.gang: each.owner for each in plan.evictions if each.suspend}
    for job in suspended.values():
        _suspend(job, api)
    for request in plan.checkpoints:
        asked = partial(with_annotations, annotations={CHECKPOINT_BY_KEY: format_time(request.by)})
        _edit_pods(request.pods, asked, api)
    for admission in plan.admissions:
        _edit_pods(admission.pods, admitted_pod, api)
    for eviction in plan.evictions:
        if not eviction.suspend:
            _evict(eviction, api, builder, wake)


def _edit_pods(
    pods: Iterable[PodRef], change: Callable[[Document], Document], api: ApiServer
) -> None:
    for pod in pods:
        try:
            api.edit(PODS, pod.name, pod.namespace, change)
        except RequestError as error:
            log.info("pod %s: %s", pod, error.message)


def _resume(
    gang: GangPlacement, api: ApiServer, builder: SnapshotBuilder, wake: Callable[[], None]
) -> None:
    try:
        api.edit(JOBS, gang.owner.name, gang.owner.namespace, resumed_job)
    except RequestError as error:
        log.info("%s: %s", gang.gang, error.message)
        _back_off(gang.gang, api, builder, wake)


def _start(
    gang: GangPlacement, api: ApiServer, builder: SnapshotBuilder, wake: Callable[[], None]
) -> None:
    try:
        for placement in gang.pods:
            _reserve(placement, api)
        for placement in gang.pods:
            if placement.gpus:  # what assigns pods to one GPU
                pod, change = placement.pod, partial(with_gpu_share, placement=placement)
                api.edit(PODS, pod.name, pod.namespace, change)
        for placement in gang.pods:
            pod = placement.pod
            for claim, volume in placement.volumes:
                _bind_volume(volume, claim, api)
            _bind(placement, api, builder)
    except RequestError as error:
        log.info("%s: %s", gang.gang, error.message)
        _back_off(gang.gang, api, builder, wake)


def _bind(placement: Placement, api: ApiServer, builder: SnapshotBuilder) -> None:
    pod, target = placement.pod, {"kind": "Node", "name": placement.node}
    # No exporter reports what is left of the node's NUMA zones: what is assumed counts there.
    builder.assume(AssumedBinding(pod.uid, placement.node))
    try:
        bind(api, pod.name, pod.namespace, {"metadata": {"uid": pod.uid}, "target": target})
    except RequestError:
        builder.forget(pod.uid)
        raise


def _reserve(placement: Placement, api: ApiServer) -> None:
    allocations = {new.claim: allocation_document(new.allocation) for new in placement.allocate}
    if (
        placement.create_claim is not None
        and placement.create_claim.claim.status.allocation is not None
    ):
        created = _create_claim(placement.pod, placement.create_claim, api)
        allocations[created] = allocation_document(placement.create_claim.claim.status.allocation)
    for claim in dict.fromkeys((*allocations, *placement.reserve)):
        claim_object = api.edit(CLAIMS, claim.name, claim.namespace, protected_claim)
        consumer = msgspec.to_builtins(placement.consumer(claim))
        status = claim_object.get("status") or {}
        changed = with_consumer(status, consumer, allocations.get(claim))
        api.patch_status(CLAIMS, claim_object, changed)


def _bind_volume(volume: str, claim: ClaimRef, api: ApiServer) -> None:
    """Bind a pre-provisioned volume, as Kubernetes' volume controller would."""
    api.edit(VOLUMES, volume, "", partial(volume_claimed, claim=claim))
    named = partial(with_spec, fields={"volumeName": volume})
    api.edit(VOLUME_CLAIMS, claim.name, claim.namespace, named)


def release_leftover(leftover: LeftoverClaim, api: ApiServer) -> bool:
    """Release a claim that pods on no node have; whether that changed it."""
    name, namespace = leftover.claim.name, leftover.claim.namespace
    before = api.store.revision

    def release(claim: Document) -> Document:
        status = claim.get("status") or {}
        return {**claim, "status": without_consumers(status, leftover.consumers)}

    api.edit(CLAIMS, name, namespace, release, subresource="status")
    return api.store.revision != before


def _create_claim(pod: PodRef, desired: ClaimToCreate, api: ApiServer) -> ClaimRef:
    """Create the claim for a pod's extended resources and write it into the pod's status."""
    claim = api.create(CLAIMS, created_claim(desired), pod.namespace)
    current = api.get(PODS, pod.name, pod.namespace)
    api.patch_status(PODS, current, extended_resource_status(desired))
    return ClaimRef(pod.namespace, claim["metadata"]["name"], claim["metadata"]["uid"])


def _suspend(job: Owner, api: ApiServer) -> None:
    """Suspend a Job; its controller ends the pods."""
    try:
        change = partial(suspended_job, suspended_at=format_time(api.clock.now()))
        api.edit(JOBS, job.name, job.namespace, change)
    except RequestError as error:
        log.info("Job %s/%s: %s", job.namespace, job.name, error.message)


def _evict(
    eviction: Eviction, api: ApiServer, builder: SnapshotBuilder, wake: Callable[[], None]
) -> None:
    pod = eviction.pod
    options = {"deleteOptions": {"preconditions": {"uid": pod.uid}}}
    try:
        evict(api, pod.name, pod.namespace, options)
    except RequestError as error:
        log.info("pod %s: %s", pod, error.message)
        _back_off(eviction.preemptor, api, builder, wake)


def _back_off(
    gang: str, api: ApiServer, builder: SnapshotBuilder, wake: Callable[[], None]
) -> None:
    builder.back_off(gang, api.clock.now() + REFUSAL_SECONDS)
    api.clock.call_later(REFUSAL_SECONDS, wake)
