"""Execution of plans in a simulated cluster.

A plan is executed at once, in order; what is refused is tried again after a backoff. There are no
other writers than the cluster's controllers (``cluster``). The writes are those of ``commit``:
claims get their allocation and their consumers, pods that share GPUs the names of their GPU groups,
then pods are bound; victims go through the Eviction API, so disruption budgets are enforced here as
well. A gang with a claim whose devices are known not to get ready does not start: its claims are
released, these devices avoided.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec import Struct, field

from kai_py.api.groups import grouped
from kai_py.api.queue import CHECKPOINT_BY_KEY
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.resource_versions import allocation_document
from kai_py.api.references import ClaimRef, PodRef
from kai_py.api.times import format_time
from kai_py.commit.claims.binding_conditions import DevicesNotReady, never_ready
from kai_py.commit.retry import ObjectBackoff, RetryPolicy
from kai_py.commit.settings import FAILED_DEVICE_SECONDS
from kai_py.embedded.apiserver import ApiServer
from kai_py.embedded.errors import RequestError
from kai_py.embedded.resources import CLAIMS, JOBS, PODS, VOLUME_CLAIMS, VOLUMES
from kai_py.embedded.subresources import bind, evict
from kai_py.plan.plan import ClaimToCreate, Eviction, GangPlacement, Placement, Plan
from kai_py.simulate.files.objects import Document
from kai_py.simulate.files.written_objects import (
    admitted_pod,
    created_claim,
    extended_resource_status,
    protected_claim,
    resumed_job,
    suspended_job,
    volume_claimed,
    with_annotations,
    with_consumer,
    with_gpu_share,
    with_spec,
    without_consumers,
)
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.derived_pod import AssumedBinding

log = logging.getLogger(__name__)

REFUSALS = RetryPolicy(base=10.0, maximum=60.0, uniform=lambda _low, high: high)
"""Waits after refusals: at first the Eviction API's Retry-After, at most those of ``commit``."""

FindClaim = Callable[[ClaimRef], ResourceClaim | None]


def devices_not_ready(
    gang: GangPlacement, find_claim: FindClaim, timeout: float, now: float
) -> list[DevicesNotReady]:
    """Devices of claims that the gang has already, as far as they will not get ready.

    ``timeout``: seconds that devices have to get ready; ``now``: seconds since the epoch.
    """
    named = dict.fromkeys(claim for each in gang.pods for claim in each.reserve)
    claims = filter(None, map(find_claim, named))
    found = (never_ready(claim, timeout, datetime.fromtimestamp(now, UTC)) for claim in claims)
    return [each for each in found if each is not None]


def avoid_devices(builder: SnapshotBuilder, failed: Iterable[DevicesNotReady]) -> None:
    """Do not allocate these devices for a while, as the scheduler does not."""
    for device, condition in (each for found in failed for each in found.devices):
        builder.avoid_device(device, condition, FAILED_DEVICE_SECONDS)


class PlanExecution(Struct, frozen=True):
    """Writes what plans decide to ``api``, and tells ``builder`` what it can't see there.

    ``wake`` requests another plan, after a refusal. ``binding_timeout``: seconds that the devices
    of a claim have to get ready.
    """

    api: ApiServer
    builder: SnapshotBuilder
    wake: Callable[[], None]
    find_claim: FindClaim
    binding_timeout: float
    refusals: ObjectBackoff = field(default_factory=lambda: ObjectBackoff(REFUSALS))
    """Of gangs that could not be started, and of pods (by uid) that could not be evicted."""

    def execute(self, plan: Plan) -> list[Eviction]:
        """Write everything that ``plan`` decided; the evictions that were not refused."""
        now = self.api.clock.now()
        for gang in plan.placements:
            if gang.resume:
                self._resume(gang)
            else:
                self._start(gang)
        for nomination in plan.nominations:
            self.builder.nominate(nomination.pod.uid, nomination.node, now)
        suspending = (each for each in plan.evictions if each.suspend)
        suspended = grouped(suspending, lambda eviction: eviction.gang)
        refused = {gang for gang, evictions in suspended.items() if not self._suspend(evictions)}
        for request in plan.checkpoints:
            by = {CHECKPOINT_BY_KEY: format_time(request.by)}
            self._edit_pods(request.pods, partial(with_annotations, annotations=by))
        for admission in plan.admissions:
            self._edit_pods(admission.pods, admitted_pod)
        return [
            each
            for each in plan.evictions
            if (each.gang not in refused if each.suspend else self._evict(each))
        ]

    def release(self, claim: ClaimRef, consumers: Collection[str]) -> bool:
        """Take a claim from consumers, by uid; whether that changed it."""
        before = self.api.store.revision

        def released(document: Document) -> Document:
            status = document.get("status") or {}
            return {**document, "status": without_consumers(status, consumers)}

        self.api.edit(CLAIMS, claim.name, claim.namespace, released, subresource="status")
        return self.api.store.revision != before

    def _edit_pods(self, pods: Iterable[PodRef], change: Callable[[Document], Document]) -> None:
        for pod in pods:
            try:
                self.api.edit(PODS, pod.name, pod.namespace, change)
            except RequestError as error:
                log.info("pod %s: %s", pod, error.message)

    def _resume(self, gang: GangPlacement) -> None:
        for each in gang.pods:
            self.builder.assume(AssumedBinding(each.pod.uid, each.node))
        try:
            self.api.edit(JOBS, gang.owner.name, gang.owner.namespace, resumed_job)
        except RequestError as error:
            log.info("%s: %s", gang.gang, error.message)
            for each in gang.pods:
                self.builder.forget(each.pod.uid)
            self._back_off(gang.gang)

    def _start(self, gang: GangPlacement) -> None:
        now = self.api.clock.now()
        failed = devices_not_ready(gang, self.find_claim, self.binding_timeout, now)
        try:
            if failed:
                self._undo(gang, failed)
                return
            for placement in gang.pods:
                self._reserve(placement)
            for placement in gang.pods:
                if placement.gpus:  # what assigns pods to one GPU
                    pod, change = placement.pod, partial(with_gpu_share, placement=placement)
                    self.api.edit(PODS, pod.name, pod.namespace, change)
            for placement in gang.pods:
                for claim, volume in placement.volumes:
                    self._bind_volume(volume, claim)
                self._bind(placement)
        except RequestError as error:
            log.info("%s: %s", gang.gang, error.message)
            self._back_off(gang.gang)

    def _undo(self, gang: GangPlacement, failed: Iterable[DevicesNotReady]) -> None:
        """Release the claims of a gang whose devices were not made ready, and avoid these."""
        avoid_devices(self.builder, failed)
        uses = [(claim, each.pod.uid) for each in gang.pods for claim in each.reserve]
        released = [self.release(claim, (uid,)) for claim, uid in uses]
        if not any(released):
            self._back_off(gang.gang)

    def _bind(self, placement: Placement) -> None:
        pod, target = placement.pod, {"kind": "Node", "name": placement.node}
        # No exporter reports what is left of the node's NUMA zones: what is assumed counts there.
        self.builder.assume(AssumedBinding(pod.uid, placement.node))
        try:
            bind(
                self.api,
                pod.name,
                pod.namespace,
                {"metadata": {"uid": pod.uid}, "target": target},
            )
        except RequestError:
            self.builder.forget(pod.uid)
            raise

    def _reserve(self, placement: Placement) -> None:
        allocations = {new.claim: allocation_document(new.allocation) for new in placement.allocate}
        wanted = placement.create_claim
        if wanted is not None and wanted.claim.status.allocation is not None:
            created = self._create_claim(placement.pod, wanted)
            allocations[created] = allocation_document(wanted.claim.status.allocation)
        for claim in dict.fromkeys((*allocations, *placement.reserve)):
            claim_object = self.api.edit(CLAIMS, claim.name, claim.namespace, protected_claim)
            consumer = msgspec.to_builtins(placement.consumer(claim))
            status = claim_object.get("status") or {}
            changed = with_consumer(status, consumer, allocations.get(claim))
            self.api.patch_status(CLAIMS, claim_object, changed)

    def _bind_volume(self, volume: str, claim: ClaimRef) -> None:
        """Bind a pre-provisioned volume, as Kubernetes' volume controller would."""
        self.api.edit(VOLUMES, volume, "", partial(volume_claimed, claim=claim))
        named = partial(with_spec, fields={"volumeName": volume})
        self.api.edit(VOLUME_CLAIMS, claim.name, claim.namespace, named)

    def _create_claim(self, pod: PodRef, desired: ClaimToCreate) -> ClaimRef:
        """Create the claim for a pod's extended resources and write it into the pod's status."""
        claim = self.api.create(CLAIMS, created_claim(desired), pod.namespace)
        current = self.api.get(PODS, pod.name, pod.namespace)
        self.api.patch_status(PODS, current, extended_resource_status(desired))
        return ClaimRef(pod.namespace, claim["metadata"]["name"], claim["metadata"]["uid"])

    def _suspend(self, evictions: Sequence[Eviction]) -> bool:
        """Suspend the Job of these pods, which its controller ends; whether it was accepted."""
        job, now = evictions[0].owner, self.api.clock.now()
        for each in evictions:
            self.builder.expect_eviction(each.pod.uid)
        try:
            change = partial(suspended_job, suspended_at=format_time(now))
            self.api.edit(JOBS, job.name, job.namespace, change)
        except RequestError as error:
            log.info("Job %s/%s: %s", job.namespace, job.name, error.message)
            self._keep(evictions)
            return False
        return True

    def _evict(self, eviction: Eviction) -> bool:
        pod = eviction.pod
        options = {"deleteOptions": {"preconditions": {"uid": pod.uid}}}
        # As in ``commit``: what ends a pod that is not expected to end counts as a drain.
        self.builder.expect_eviction(pod.uid)
        try:
            evict(self.api, pod.name, pod.namespace, options)
        except RequestError as error:
            log.info("pod %s: %s", pod, error.message)
            self._keep((eviction,))
            return False
        return True

    def _keep(self, evictions: Sequence[Eviction]) -> None:
        """Pods of a gang stay, as their eviction was refused."""
        now = self.api.clock.now()
        wait = self.refusals.record_failure(evictions[0].pod.uid, now)
        for each in evictions:
            self.builder.cancel_eviction(each.pod.uid, now + wait)
        self.api.clock.call_later(wait, self.wake)

    def _back_off(self, gang: str) -> None:
        now = self.api.clock.now()
        wait = self.refusals.record_failure(gang, now)
        self.builder.back_off(gang, now + wait)
        self.api.clock.call_later(wait, self.wake)
