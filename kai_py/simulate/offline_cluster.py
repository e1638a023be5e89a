"""A cluster that consists of documents only: planned for, and changed as plans decide.

There is no API server and there are no controllers, as there are in ``cluster``: what a plan
decides happens at once, and nothing else does. Placed pods run, evicted pods are gone with their
claims; terminating pods, reservation pods of GPUs that no pod shares, and what claims hold for pods
that have ended, or still wait, are gone after the first cycle. Nothing makes new pods for those
that were evicted; a Job that is suspended waits until it is resumed. A gang with a claim whose
devices are known not to get ready does not start: its claims are released, these devices avoided.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import Any

import msgspec

from kai_py.api.records.core import Pod
from kai_py.api.records.partial import read_partly, with_unreadable
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.resource_versions import allocation_document
from kai_py.api.records.unstructured import mapping_at
from kai_py.api.references import ClaimRef, PodRef
from kai_py.api.times import format_time
from kai_py.commit.claims.binding_conditions import DevicesNotReady
from kai_py.commit.claims.recovery import find_leftover_claims, planned_pods
from kai_py.config import Configuration
from kai_py.embedded.documents import RAW_FIELD, named_claims, owners_of
from kai_py.grouping.gang import Owner
from kai_py.grouping.owner_chain import GroupKind
from kai_py.plan.plan import ClaimToCreate, Eviction, GangPlacement, Placement, Plan
from kai_py.planner import Planner
from kai_py.simulate.files.complete_objects import owner_uids
from kai_py.simulate.files.controllers import BUDGET, spent_budget, unused_reservations
from kai_py.simulate.files.object_files import ObjectKey, RejectedObject, key_of
from kai_py.simulate.files.objects import Document
from kai_py.simulate.files.unusable_objects import refused_amounts, without_amounts
from kai_py.simulate.files.written_objects import (
    admitted_pod,
    created_claim,
    extended_resource_status,
    resumed_job,
    suspended_job,
    volume_claimed,
    with_consumer,
    with_gpu_share,
    with_spec,
    without_consumers,
)
from kai_py.simulate.plan_execution import avoid_devices, devices_not_ready
from kai_py.snapshot.derived_pod import AssumedBinding
from kai_py.watch.discovery import METADATA
from kai_py.watch.kinds import WATCHED_BY_NAME
from kai_py.watch.resource import Decode, Kind
from kai_py.watch.wire import without_nulls

CLAIM_API = "resource.k8s.io/v1"
POD = ("", "Pod")
BACKOFF = 1.0
"""Seconds, as all cycles take place at one time: until the end."""


class OfflineCluster:
    """Documents by key, the records that the planner reads of them, and the planner."""

    def __init__(self, configuration: Configuration, now: float) -> None:
        """Start without objects; every cycle takes place at ``now``, seconds since the epoch."""
        self.planner = Planner(configuration)
        self._scheduler_names = {configuration.scheduler_name, *configuration.scheduler_aliases}
        self.rejected: list[RejectedObject] = []
        self._now = now
        self._documents: dict[ObjectKey, Document] = {}
        self._budgets: list[ObjectKey] = []
        self._records: dict[ObjectKey, Any] = {}
        self._owner_kinds: dict[GroupKind, Kind[Any]] = {}
        self._writes = 0
        self._binding_timeout = configuration.commit.binding_timeout
        self.undone: dict[str, str] = {}
        """Gangs that the last plan placed and that did not start, and why."""

    def load(
        self, documents: Mapping[ObjectKey, Document], absent: Set[ObjectKey] = frozenset()
    ) -> None:
        """Take in objects; those that cannot be read are named in ``rejected``.

        Of ``absent`` owners only the name is known.
        """
        owners = owner_uids(documents.values())
        # A pod is derived again when an object that it names comes in, so pods come last.
        for key, document in sorted(documents.items(), key=lambda each: each[0][:2] == POD):
            if key[:2] in WATCHED_BY_NAME or document["metadata"]["uid"] in owners:
                self._load(key, document, is_name=key in absent)

    def cycle(self) -> Plan:
        """One cycle of the scheduler; nothing is carried out."""
        return self.planner.decide(self.planner.freeze(self._now))

    def carry_out(self, plan: Plan) -> bool:
        """Make everything happen that ``plan`` decided, and what was under way before.

        Whether anything changed.
        """
        self.undone = {}
        for gang in plan.placements:
            self._start(gang)
        for nomination in plan.nominations:
            self.planner.builder.nominate(nomination.pod.uid, nomination.node, self._now)
        for eviction in plan.evictions:
            self._evict(eviction)
        for pod in (pod for admission in plan.admissions for pod in admission.pods):
            self._write(_pod_key(pod), admitted_pod(self._documents[_pod_key(pod)]))
        terminating = [
            key
            for key, document in self._documents.items()
            if key[:2] == POD and document["metadata"].get("deletionTimestamp")
        ]
        for key in terminating:
            self._remove_pod(key)
        releasable = self.planner.builder.releasable_claims.snapshot()
        released = [self._release(_claim_key(claim), (uid,)) for claim, uid in releasable]
        released += self._release_leftovers(plan)
        released += self._release_gpus()
        return not plan.is_empty or bool(terminating) or any(released)

    def allocations(self, pod: PodRef) -> dict[str, Document]:
        """The allocations of a pod's claims, by ``namespace/name`` of the claim."""
        found = {}
        for claim in self._claims_of(pod):
            allocation = mapping_at(self._documents[claim], "status").get("allocation")
            if allocation:
                found[f"{claim.namespace}/{claim.name}"] = allocation
        return found

    def _load(self, key: ObjectKey, document: Document, *, is_name: bool) -> None:
        version = document["apiVersion"].rpartition("/")[2]
        kind = self._kind(key, version)
        if problem := kind.version_problem(document["apiVersion"]):
            self.rejected.append(RejectedObject(str(key), problem))
            return
        is_known = not is_name or key[:2] in WATCHED_BY_NAME
        decode = kind.versions[version] if is_known else METADATA
        encoded = msgspec.json.encode(document)
        if b"null" in encoded:
            document = without_nulls(document, raw_field=RAW_FIELD)
        try:
            record = decode(encoded)
            problem = refused_amounts(key, document)
            document = without_amounts(key, document) if problem else document
        except (ValueError, RecursionError) as error:
            problem = str(error)
        if problem:
            self.rejected.append(RejectedObject(str(key), problem))
            partial = _partly(kind, decode, document)
            if partial is None:
                return
            record, document = partial
            if isinstance(record, Pod) and not record.spec.node_name:
                return
        self._documents[key] = document
        self._records[key] = record
        if key[:2] == BUDGET:
            self._budgets.append(key)
        self.planner.builder.apply(kind.collection_name, None, record)

    def _kind(self, key: ObjectKey, version: str) -> Kind[Any]:
        """The kind of an object, also of owners that are not watched by themselves."""
        group_kind = GroupKind(key.group, key.kind)
        watched = WATCHED_BY_NAME.get(group_kind) or self._owner_kinds.get(group_kind)
        if watched is None:
            decode = self.planner.owner_decoder(group_kind) or METADATA
            watched = Kind(key.kind, f"{key.kind.lower()}s", {version: decode}, key.group)
            self._owner_kinds[group_kind] = watched
        return watched

    def _write(self, key: ObjectKey, document: Document) -> None:
        """Replace or add a document."""
        self._writes += 1
        meta = {**document["metadata"], "resourceVersion": f"planned-{self._writes}"}
        self._documents[key] = document = {**document, "metadata": meta}
        version = document["apiVersion"].rpartition("/")[2]
        kind = self._kind(key, version)
        decode = kind.versions[version]
        record, before = decode(msgspec.json.encode(document)), self._records.get(key)
        if before is not None and before.metadata.unreadable:
            record = with_unreadable(record, before.metadata.unreadable)
        self.planner.builder.apply(kind.collection_name, before, record)
        self._records[key] = record

    def _remove(self, key: ObjectKey) -> None:
        document = self._documents.pop(key)
        kind = self._kind(key, document["apiVersion"].rpartition("/")[2])
        self.planner.builder.apply(kind.collection_name, self._records.pop(key), None)

    def _start(self, gang: GangPlacement) -> None:
        if gang.resume:
            self._edit_job(gang.owner, resumed_job)
            return
        failed = devices_not_ready(
            gang,
            lambda claim: self._records.get(_claim_key(claim)),
            self._binding_timeout,
            self._now,
        )
        if failed:
            self._undo(gang, failed)
            return
        for placement in gang.pods:
            self._place(placement)

    def _undo(self, gang: GangPlacement, failed: Collection[DevicesNotReady]) -> None:
        """Release the claims of a gang whose devices were not made ready, and avoid these."""
        reasons = [each.reason for each in failed]
        self.undone[gang.gang] = f"{reasons[0]}."
        avoid_devices(self.planner.builder, failed)
        uses = [(_claim_key(claim), each.pod.uid) for each in gang.pods for claim in each.reserve]
        released = [self._release(claim, (uid,)) for claim, uid in uses]
        if not any(released):
            self.planner.builder.back_off(gang.gang, self._now + BACKOFF, reasons[0])

    def _place(self, placement: Placement) -> None:
        pod = placement.pod
        key = _pod_key(pod)
        if placement.create_claim is not None:
            self._create_claim(pod, placement.create_claim)
        allocations = {
            each.claim: allocation_document(each.allocation) for each in placement.allocate
        }
        for claim in dict.fromkeys((*allocations, *placement.reserve)):
            self._reserve(
                claim, allocations.get(claim), msgspec.to_builtins(placement.consumer(claim))
            )
        for volume_claim, volume in placement.volumes:
            self._bind_volume(volume_claim, volume)
        document = with_gpu_share(self._documents[key], placement)
        bound = with_spec(document, {"nodeName": placement.node})
        running = {"phase": "Running", "startTime": format_time(self._now)}
        # No exporter reports what is left of the node's NUMA zones: what is assumed counts there.
        self.planner.builder.assume(AssumedBinding(pod.uid, placement.node))
        self._write(key, _with_status(bound, running))

    def _reserve(self, claim: ClaimRef, allocation: Document | None, consumer: Document) -> None:
        key = _claim_key(claim)
        document = self._documents[key]
        status = with_consumer(mapping_at(document, "status"), consumer, allocation)
        self._write(key, {**document, "status": status})

    def _create_claim(self, pod: PodRef, wanted: ClaimToCreate) -> None:
        """Add the claim for a pod's extended resources and name it in the pod's status."""
        uid = f"{pod.uid}-extended-resources"
        created = created_claim(wanted)
        created["metadata"] |= {"namespace": pod.namespace, "uid": uid}
        allocation = wanted.claim.status.allocation
        status = with_consumer(
            {},
            {"resource": "pods", "name": pod.name, "uid": pod.uid},
            None if allocation is None else allocation_document(allocation),
        )
        claim = {"apiVersion": CLAIM_API, "kind": "ResourceClaim", **created, "status": status}
        self._write(key_of(claim), claim)
        document = self._documents[_pod_key(pod)]
        self._write(_pod_key(pod), _with_status(document, extended_resource_status(wanted)))

    def _bind_volume(self, claim: ClaimRef, volume: str) -> None:
        key = ObjectKey("", "PersistentVolumeClaim", claim.namespace, claim.name)
        volume_key = ObjectKey("", "PersistentVolume", "", volume)
        named = with_spec(self._documents[key], {"volumeName": volume})
        claimed = volume_claimed(self._documents[volume_key], claim)
        for each, document in ((key, named), (volume_key, claimed)):
            self._write(each, _with_status(document, {"phase": "Bound"}))

    def _evict(self, eviction: Eviction) -> None:
        if eviction.suspend:
            suspended_at = format_time(self._now)
            self._edit_job(eviction.owner, partial(suspended_job, suspended_at=suspended_at))
        key = _pod_key(eviction.pod)
        if key in self._documents:
            self._spend_budgets(key)
            self._remove_pod(key)

    def _spend_budgets(self, pod: ObjectKey) -> None:
        for key in self._budgets:
            if key.namespace == pod.namespace:
                spent = spent_budget(self._documents[key], self._documents[pod])
                if spent is not None:
                    self._write(key, spent)

    def _remove_pod(self, key: ObjectKey) -> None:
        """Remove a pod; its claims lose a consumer, and those that it owns are gone."""
        uid = self._documents[key]["metadata"]["uid"]
        claims = self._claims_of(PodRef(key.namespace, key.name, uid))
        self._remove(key)
        for claim in claims:
            if any(each.get("uid") == uid for each in owners_of(self._documents[claim])):
                self._remove(claim)
            else:
                self._release(claim, (uid,))

    def _release(self, claim: ObjectKey, pods: Collection[str]) -> bool:
        """Take a claim from pods that have ended; whether that changed it."""
        document = self._documents[claim]
        status = mapping_at(document, "status")
        released = without_consumers(status, pods)
        if released == status:
            return False
        self._write(claim, {**document, "status": released})
        return True

    def _release_leftovers(self, plan: Plan) -> Iterator[bool]:
        """Take allocated claims from pods that wait, and for which the plan does not use them."""
        records = list(self._records.values())
        found = find_leftover_claims(
            [each for each in records if isinstance(each, ResourceClaim)],
            [each for each in records if isinstance(each, Pod)],
            self._scheduler_names,
            planned_pods(plan),
            self.planner.builder.releasable_claims.our_groups(),
        )
        for each in found:
            yield self._release(_claim_key(each.claim), each.consumers)

    def _release_gpus(self) -> Iterator[bool]:
        """Remove the reservation pods of GPUs that no pod shares any more."""
        pods = [each for each in self._records.values() if isinstance(each, Pod)]
        for pod in unused_reservations(pods):
            self._remove_pod(_pod_key(PodRef.of(pod.metadata)))
            yield True

    def _claims_of(self, pod: PodRef) -> list[ObjectKey]:
        """The claims that a pod names and that exist."""
        document = self._documents.get(_pod_key(pod))
        if document is None:
            return []
        names = named_claims({**document, "status": mapping_at(document, "status")})
        keys = (_claim_key(ClaimRef(pod.namespace, name, "")) for name in names)
        return [key for key in keys if key in self._documents]

    def _edit_job(self, owner: Owner, change: Callable[[Document], Document]) -> None:
        key = ObjectKey("batch", "Job", owner.namespace, owner.name)
        document = self._documents.get(key)
        if document is not None:
            self._write(key, change(document))


def _partly(
    kind: Kind[Any], decode: Decode[Any], document: Document
) -> tuple[Any, Document] | None:
    """An object that holds capacity, without the fields that cannot be read."""
    with contextlib.suppress(ValueError, RecursionError):
        return read_partly(decode, msgspec.json.encode(document)) if kind.holds_capacity else None
    return None


def _with_status(document: Document, fields: Document) -> Document:
    return {**document, "status": {**mapping_at(document, "status"), **fields}}


def _pod_key(pod: PodRef) -> ObjectKey:
    return ObjectKey("", "Pod", pod.namespace, pod.name)


def _claim_key(claim: ClaimRef) -> ObjectKey:
    return ObjectKey("resource.k8s.io", "ResourceClaim", claim.namespace, claim.name)


def named(pods: Iterable[PodRef]) -> list[str]:
    """Pods as ``namespace/name``, sorted."""
    return sorted(f"{pod.namespace}/{pod.name}" for pod in pods)
