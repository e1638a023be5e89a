"""Pods of ours parsed together with the objects that they name, cached until they are ready.

What was parsed changes only with what the pod requests or with one of these objects, not with its
node or its state: the pod is not parsed again for a binding, an eviction or a report of the
kubelet. A pod that is ready changes so seldom that caching it is not worth the memory.

A pod that is invalid, so that it could not be derived in full, still counts with what can be read
of it: it is a gang of its own that is not placed. On a node it takes what its containers request,
as far as the amounts can be read, and its queue is charged with it. Where some cannot be read, its
node takes no more pods of ours while it runs there. The devices of its claims are counted by the
claims.
"""

from collections.abc import Callable

from msgspec import structs

from kai_py.api.gpu_reservation import unmarked_container
from kai_py.api.gpu_share import legacy_mig_profile
from kai_py.api.quantity import QuantityError
from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.core import Container, Pod, PodSpec, ResourceRequirements
from kai_py.api.records.partial import has_unreadable_requests, unreadable_fields
from kai_py.api.records.record import QuantityText
from kai_py.grouping.admitted import ADMITTED_KEY
from kai_py.grouping.gang import GangSpec, Subgroup, pod_owner
from kai_py.grouping.gang_template import annotation_or_label
from kai_py.grouping.owner_chain import Owners
from kai_py.snapshot.dependencies import Dependencies, RecordingOwners
from kai_py.snapshot.derived_pod import DerivedPod, ParsedPod
from kai_py.snapshot.expected_members import ExpectedMemberTable
from kai_py.snapshot.extended_resources import requests_share_by_name
from kai_py.snapshot.placeholders import (
    is_placeholder,
    placeholder_problem,
    with_admission_defaults,
)
from kai_py.snapshot.pod_claims import PodClaims
from kai_py.snapshot.pod_demand import PodDemand, pod_demand
from kai_py.snapshot.requests import as_resized
from kai_py.snapshot.resources import amount
from kai_py.snapshot.settings import DeviceRegistry
from kai_py.snapshot.shape import ShapeTable
from kai_py.snapshot.tables.gpu_nodes import GpuMemory
from kai_py.snapshot.tables.pod_table import PodTable, Uids
from kai_py.snapshot.tables.readiness import ready_condition


def invalid_demand(pod: Pod, shapes: ShapeTable, problem: str) -> PodDemand:
    """The readable requests of ``pod`` and nothing else; ``problem`` says why."""
    containers = tuple(
        Container(resources=ResourceRequirements(requests=_readable(each.resources)))
        for each in (*pod.spec.containers, *pod.spec.init_containers)
    )
    readable = structs.replace(pod, spec=PodSpec(containers=containers))
    listed = [each.resources for each in (*pod.spec.containers, *pod.spec.init_containers)]
    counted = (each.resources.requests for each in containers)
    complete = all(
        got.keys() == {**each.limits, **each.requests}.keys()
        for got, each in zip(counted, listed, strict=True)
    )
    closes = not complete or has_unreadable_requests(pod)
    shape = shapes.intern(readable)
    return PodDemand(shape, PodClaims(), None, problem=problem, closes_node=closes)


def invalid_gang(pod: Pod, problem: str) -> GangSpec:
    """A gang of ``pod`` alone, in the queue that it names itself."""
    meta = pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Pod/{meta.name}",
        owner=pod_owner(meta),
        queue=annotation_or_label(meta, QUEUE_NAME_KEY),
        tree=Subgroup(min_members=1),
        problem=f"pod {meta.namespace}/{meta.name}: {problem}",
    )


def _readable(resources: ResourceRequirements) -> dict[str, QuantityText]:
    listed = {**resources.limits, **resources.requests}
    return {name: text for name, text in listed.items() if _is_readable(name, text)}


def _is_readable(name: str, text: QuantityText) -> bool:
    try:
        amount(name, text)
    except QuantityError:
        return False
    return True


Identify = Callable[[Pod, Owners], GangSpec]


class UnreadableError(ValueError):
    """Some fields of an object could not be decoded; the message names them."""


class ParsedPods(PodTable):
    """Parses pods, notes what they depend on, and caches those of ours."""

    def __init__(
        self,
        identify: Identify,
        devices: DeviceRegistry,
        gpu_memory: GpuMemory,
        dependencies: Dependencies,
        owners: Callable[[], RecordingOwners],
        *,
        gives_shared_gpus: bool,
    ) -> None:
        """``owners`` makes what one pod looks up the objects with that it names.

        ``gives_shared_gpus``: as in ``SnapshotSettings``.
        """
        self._gives_shared_gpus = gives_shared_gpus
        self._identify = identify
        self._devices = devices
        self._dependencies = dependencies
        self._owners = owners
        self._shapes = ShapeTable()
        self._expected = ExpectedMemberTable(self._shapes, gpu_memory)
        self._cached: dict[str, ParsedPod] = {}

    def parse(self, pod: Pod, *, ours: bool, labels_matter: bool) -> ParsedPod:
        """The pod as it is cached, or else parsed now; ``labels_matter`` as for shapes.

        Raises ``UnreadableError`` where fields of the pod could not be decoded.
        """
        if unreadable := unreadable_fields(pod.metadata):
            raise UnreadableError(unreadable)
        pod = as_resized(pod)
        cached = self._cached.get(pod.metadata.uid)
        # A bound pod is parsed again when it has changed: it counts as it was admitted, and with
        # what its kubelet has given it.
        if cached is not None and (cached.pod is pod or not pod.spec.node_name) and cached.is_valid:
            return cached
        owners = self._owners()
        try:
            return self._parse(pod, owners, ours=ours, labels_matter=labels_matter)
        finally:
            # Also after a failure: when what it has looked up changes, another attempt is due.
            self._dependencies.set(pod.metadata.uid, owners.looked_up)

    def _parse(
        self, pod: Pod, owners: RecordingOwners, *, ours: bool, labels_matter: bool
    ) -> ParsedPod:
        accounting = self._devices.accounting
        admitted, claims = with_admission_defaults(pod, owners)
        demand = pod_demand(
            admitted, owners, self._shapes, accounting, labels_matter=labels_matter, claims=claims
        )
        if self._gives_shared_gpus and (unmarked := _unmarked_share(admitted, demand)):
            demand = structs.replace(demand, problem=unmarked)
        spec = self._identify(admitted, owners) if ours else None
        problem = placeholder_problem(pod, owners)
        if spec is not None and problem:
            spec = structs.replace(spec, problem=problem)
        expected = () if spec is None else spec.expected
        members = self._expected.members(expected, owners, accounting)
        return ParsedPod(admitted, demand, spec, members)

    def parse_invalid(self, pod: Pod, problem: str, *, ours: bool) -> ParsedPod:
        """What is left of a pod that cannot be parsed, and why."""
        demand = invalid_demand(pod, self._shapes, problem)
        spec = invalid_gang(pod, problem) if ours else None
        return ParsedPod(pod, demand, spec, is_valid=False)

    def gang_of(self, pod: Pod) -> GangSpec:
        """The gang of a pod as its owners are now; what it depends on is not noted."""
        return self._identify(pod, self._owners())

    def last_gang(self, pod: Pod) -> GangSpec:
        """The gang of a pod that has ended; it depends on its owners only."""
        owners = self._owners()
        spec = self._identify(pod, owners)
        self._dependencies.set(pod.metadata.uid, owners.looked_up)
        return spec

    def keep(self, before: Pod, now: Pod) -> bool:
        """Reuse what was parsed of a pod if it requests the same; whether it does.

        What claims, shares of GPUs and MIG devices mean depends on node and status of the pod.
        """
        uid = now.metadata.uid
        cached = self._cached.get(uid)
        if cached is None or cached.pod is not before or not cached.is_valid:
            return False
        if not cached.demand.charged_by_shape or not asks_for_the_same(before, now):
            return False
        if legacy_mig_profile(now):
            return False
        self._cached[uid] = ParsedPod(now, cached.demand, cached.gang_spec, cached.expected)
        return True

    def invalidate(self, uid: str) -> None:
        """The pod, or something that it names, has changed."""
        self._cached.pop(uid, None)

    def place(self, pod: DerivedPod) -> Uids:
        """Cache a pod of ours that is not ready."""
        if pod.parsed.gang_spec is None or _is_ready(pod.parsed.pod):
            self._cached.pop(pod.uid, None)
        else:
            self._cached[pod.uid] = pod.parsed
        return ()

    def release(self, uid: str) -> Uids:
        """The pod has ended or is gone."""
        self._cached.pop(uid, None)
        return ()

    def remove(self, pod: Pod) -> Uids:
        """The pod is gone and depends on nothing."""
        self._dependencies.clear(pod.metadata.uid)
        return ()


def _unmarked_share(pod: Pod, demand: PodDemand) -> str:
    """Why a pending pod can get no part of a GPU, of a device plugin or by a claim."""
    if demand.gpu_share is None or demand.problem or pod.spec.node_name:
        return ""
    if is_placeholder(pod.metadata.uid) or requests_share_by_name(pod):
        return ""
    return unmarked_container(pod)


def _is_ready(pod: Pod) -> bool:
    ready = ready_condition(pod)
    return ready is not None and ready.status == "True"


def asks_for_the_same(before: Pod, now: Pod) -> bool:
    """Whether a pod without claims requests what it requested before.

    It may differ in what a binding writes (its node, the terms of admission), its status, and
    whether it is being deleted.
    """
    spec, meta = now.spec, now.metadata
    if spec.resource_claims or now.status.extended_resource_claim_status is not None:
        return False
    annotations = before.metadata.annotations
    if not before.spec.node_name and ADMITTED_KEY in meta.annotations:
        annotations = {**annotations, ADMITTED_KEY: meta.annotations[ADMITTED_KEY]}
    kept = structs.replace(
        before.metadata,
        annotations=annotations,
        resource_version=meta.resource_version,
        generation=meta.generation,
        deletion_timestamp=meta.deletion_timestamp,
        deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
    )
    if kept != meta:
        return False
    same = (
        before.spec
        if before.spec.node_name
        else structs.replace(before.spec, node_name=spec.node_name)
    )
    return same == spec
