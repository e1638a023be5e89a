"""Execution of a plan where there are no other writers: at once, in order, without retries.

The writes are those of ``commit``: claims get their allocation and their consumers, pods that share
GPUs the names of their GPU groups, then pods are bound; victims go through the Eviction API, so
disruption budgets are enforced here as well.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec

from kai_py.api.gpu_share import shared_gpu_metadata
from kai_py.api.queue import CHECKPOINT_BY_KEY
from kai_py.api.records.job import SUSPENDED_AT_KEY, SUSPENDED_BY_KEY
from kai_py.api.records.resource import DELETE_PROTECTION_FINALIZER
from kai_py.api.records.resource_versions import allocation_document
from kai_py.api.references import ClaimRef, PodRef
from kai_py.api.times import format_time
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.documents import Json
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import CLAIMS, JOBS, PODS, VOLUME_CLAIMS, VOLUMES
from kai_py.embedded.subresources import bind, evict
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import ClaimToCreate, Eviction, GangPlacement, Placement, Plan
from kai_py.snapshot.builder import SnapshotBuilder

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
        for pod in request.pods:
            _annotate(pod, {CHECKPOINT_BY_KEY: format_time(request.by)}, api)
    for eviction in plan.evictions:
        if not eviction.suspend:
            _evict(eviction, api, builder, wake)


def _annotate(pod: PodRef, annotations: Mapping[str, str], api: ApiServer) -> None:
    def annotated(present: Json) -> Json:
        meta = present["metadata"]
        written = {**(meta.get("annotations") or {}), **annotations}
        return {**present, "metadata": {**meta, "annotations": written}}

    try:
        api.edit(PODS, pod.name, pod.namespace, annotated)
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
            _write_gpu_share(placement, api)
        for placement in gang.pods:
            pod = placement.pod
            for claim, volume in placement.volumes:
                _bind_volume(volume, claim, api)
            target = {"target": {"kind": "Node", "name": placement.node}}
            bind(api, pod.name, pod.namespace, {"metadata": {"uid": pod.uid}, **target})
    except RequestError as error:
        log.info("%s: %s", gang.gang, error.message)
        _back_off(gang.gang, api, builder, wake)


def _reserve(placement: Placement, api: ApiServer) -> None:
    allocations = {new.claim: allocation_document(new.allocation) for new in placement.allocate}
    if (
        placement.create_claim is not None
        and placement.create_claim.claim.status.allocation is not None
    ):
        created = _create_claim(placement.pod, placement.create_claim, api)
        allocations[created] = allocation_document(placement.create_claim.claim.status.allocation)
    for claim in dict.fromkeys((*allocations, *placement.reserve)):
        claim_object = _with_finalizer(claim, api)
        status = claim_object.get("status") or {}
        listed = status.get("reservedFor") or []
        consumer = msgspec.to_builtins(placement.consumer(claim))
        change: Json = {"reservedFor": [*listed, *([] if consumer in listed else [consumer])]}
        if claim in allocations:
            change["allocation"] = allocations[claim]
        api.patch_status(CLAIMS, claim_object, change)


def _write_gpu_share(placement: Placement, api: ApiServer) -> None:
    """Write on the pod which GPUs it shares; this is what assigns pods to one GPU."""
    if not placement.gpus:
        return

    def with_gpu_share(present: Json) -> Json:
        return {**present, "metadata": metadata_with_gpu_share(present["metadata"], placement)}

    api.edit(PODS, placement.pod.name, placement.pod.namespace, with_gpu_share)


def metadata_with_gpu_share(metadata: Json, placement: Placement) -> Json:
    """A pod's metadata with the names of the GPUs that it shares, in place of former ones."""
    former, _ = shared_gpu_metadata(placement.former_gpus)
    labels, annotations = shared_gpu_metadata(placement.gpus)
    kept = {k: v for k, v in (metadata.get("labels") or {}).items() if k not in former}
    return {
        **metadata,
        "labels": {**kept, **labels},
        "annotations": {**(metadata.get("annotations") or {}), **annotations},
    }


def _bind_volume(volume: str, claim: ClaimRef, api: ApiServer) -> None:
    """Bind a pre-provisioned volume, as Kubernetes' volume controller would."""
    reference = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}

    def with_claim(present: Json) -> Json:
        return {**present, "spec": {**present["spec"], "claimRef": reference}}

    def with_volume(present: Json) -> Json:
        return {**present, "spec": {**present["spec"], "volumeName": volume}}

    api.edit(VOLUMES, volume, "", with_claim)
    api.edit(VOLUME_CLAIMS, claim.name, claim.namespace, with_volume)


def _create_claim(pod: PodRef, desired: ClaimToCreate, api: ApiServer) -> ClaimRef:
    """Create the claim for a pod's extended resources and write it into the pod's status."""
    meta = desired.claim.metadata
    claim = api.create(
        CLAIMS,
        {
            "metadata": {
                "name": meta.name,
                "annotations": meta.annotations,
                "ownerReferences": msgspec.to_builtins(meta.owner_references),
            },
            "spec": msgspec.to_builtins(desired.claim.spec),
        },
        pod.namespace,
    )
    uses = msgspec.to_builtins(desired.uses)
    claim_status = {"resourceClaimName": meta.name, "requestMappings": list(uses)}
    current = api.get(PODS, pod.name, pod.namespace)
    api.patch_status(PODS, current, {"extendedResourceClaimStatus": claim_status})
    return ClaimRef(pod.namespace, meta.name, claim["metadata"]["uid"])


def _suspend(job: Owner, api: ApiServer) -> None:
    """Suspend a Job; its controller ends the pods."""
    suspended_at = format_time(api.clock.now())
    try:
        api.edit(JOBS, job.name, job.namespace, lambda each: suspended_job(each, suspended_at))
    except RequestError as error:
        log.info("Job %s/%s: %s", job.namespace, job.name, error.message)


def suspended_job(job: Json, suspended_at: str) -> Json:
    """``job`` as the scheduler suspends it."""
    scheduler = job["spec"]["template"]["spec"].get("schedulerName", "")
    marks = {SUSPENDED_BY_KEY: scheduler, SUSPENDED_AT_KEY: suspended_at}
    meta = job["metadata"]
    annotations = {**(meta.get("annotations") or {}), **marks}
    return {
        **job,
        "metadata": {**meta, "annotations": annotations},
        "spec": {**job["spec"], "suspend": True},
    }


def resumed_job(job: Json) -> Json:
    """``job`` as the scheduler resumes it."""
    meta = job["metadata"]
    marks = (SUSPENDED_BY_KEY, SUSPENDED_AT_KEY)
    annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if k not in marks}
    return {
        **job,
        "metadata": {**meta, "annotations": annotations},
        "spec": {**job["spec"], "suspend": False},
    }


def _with_finalizer(claim: ClaimRef, api: ApiServer) -> Json:
    def protect(present: Json) -> Json:
        meta = dict(present["metadata"])
        finalizers = meta.get("finalizers") or []
        if DELETE_PROTECTION_FINALIZER not in finalizers:
            meta["finalizers"] = [*finalizers, DELETE_PROTECTION_FINALIZER]
        return {**present, "metadata": meta}

    return api.edit(CLAIMS, claim.name, claim.namespace, protect)


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
