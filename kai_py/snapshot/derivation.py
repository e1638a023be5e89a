"""Derivation of a pod: its demand, what it occupies on its node, and its gang's member.

All are functions of the pod, of the objects that it names, and of its placement: bound, being
bound, terminating. What is wrong with a pod is part of the result.

A pod that requests a part of a GPU and runs without a label that says of which one counts as having
a GPU to itself: capacity that may be in use is not given away. KAI keeps a reservation pod on every
shared GPU, which requests the whole GPU and carries the label of the group; it and the group are
one GPU, counted once. Any other pod that requests whole GPUs has them to itself, whatever its
labels say.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_py.api.gpu_reservation import MANAGED_BY, MANAGER, VISIBLE_GPUS
from kai_py.api.gpu_share import (
    GPU_RESOURCE,
    GpuShare,
    GpuShareError,
    SharedGpu,
    gpu_share,
    has_claimed_share,
    is_reservation_pod,
    legacy_mig_devices,
    legacy_mig_profile,
    shared_gpus,
)
from kai_py.api.quantity import QuantityError
from kai_py.api.queue import ADMISSION_GATE, CHECKPOINT_BY_KEY, CHECKPOINTED_KEY
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import PodRef
from kai_py.api.times import parse_time
from kai_py.grouping.admitted import ADMITTED_KEY
from kai_py.grouping.gang import GangSpec
from kai_py.snapshot.accounting import GPU, Accounting, total
from kai_py.snapshot.assumptions import PodPlacement
from kai_py.snapshot.dependencies import RecordingOwners
from kai_py.snapshot.extended_resources import extended_resources
from kai_py.snapshot.gangs import Charge, Member, PodState
from kai_py.snapshot.gpu_nodes import REPLICA_RESOURCE, gpu_replicas
from kai_py.snapshot.node_usage import NodeUsageState, PodUsage
from kai_py.snapshot.pod_volumes import NO_VOLUMES, PodVolumes, pod_volumes
from kai_py.snapshot.requests import claimed_amounts, excessive_request
from kai_py.snapshot.resources import Floats, largest_amount
from kai_py.snapshot.shape import Shape, ShapeTable
from kai_py.snapshot.tables.claims import PodClaims, group_claims, pod_claims
from kai_py.snapshot.tables.gpus import NOMINAL_MIB, SharedGpuUsage
from kai_py.snapshot.tables.known_names import MissingObject
from kai_py.snapshot.tables.numa import observed_zones
from kai_py.snapshot.tables.pod_table import DerivedPod, PodTable, Uids


def assigned_gpus(pod: Pod, share: GpuShare | None) -> tuple[SharedGpu, ...]:
    """The shared GPUs of a device plugin that a pod has part of, or of which it reserves one.

    By its labels, or by its name if it has none and is on a node. What a claim gives it are no GPUs
    of a device plugin; only the scheduler may write that into the pod's status.
    """
    if share is None:
        return shared_gpus(pod) if is_reservation_pod(pod) else ()
    if has_claimed_share(pod):
        return ()
    labelled = shared_gpus(pod)
    if labelled or not pod.spec.node_name:
        return labelled
    return tuple(SharedGpu(f"{pod.metadata.uid}-{n}") for n in range(share.devices))


def shared_gpu_usage(
    shape: Shape, gpus: tuple[SharedGpu, ...], pod: Pod | None = None
) -> SharedGpuUsage | None:
    """The part of ``gpus`` that a pod of ``shape`` has; None if it shares none.

    Without ``pod`` it is none that a reservation pod serves, nor one itself.
    """
    if shape.gpu_share is not None:
        given = pod is not None and _has_visible_gpus(pod)
        return SharedGpuUsage(gpus, shape.gpu_share, needs_reservation=given)
    if pod is None or not is_reservation_pod(pod):
        return None
    if len(gpus) != 1 or shape.requests.get(GPU_RESOURCE) != 1:
        return None
    return SharedGpuUsage(gpus, leaves=pod.metadata.labels.get(MANAGED_BY) == MANAGER)


def _has_visible_gpus(pod: Pod) -> bool:
    """Whether the pod was bound with GPUs that reservation pods keep for it."""
    annotations = pod.metadata.annotations
    bound = bool(pod.spec.node_name) and ADMITTED_KEY in annotations
    return bound and VISIBLE_GPUS in annotations


class GpuMemory(PodTable):
    """MiB and replicas of a GPU per node, and the pods whose charge depends on them."""

    def __init__(self) -> None:
        """Nothing is known before the first state."""
        self._generation = -1
        self._memory: Floats | None = None
        self._by_node: dict[str, float] = {}
        self._smallest = NOMINAL_MIB
        self._tracked: dict[str, None] = {}
        self._replicas: dict[str, float] = {}
        self._with_plugin_gpus: dict[str, None] = {}

    def place(self, pod: DerivedPod) -> Uids:
        """Remember a pod that requests an amount of GPU memory, or GPUs of a device plugin."""
        demand = pod.parsed.demand
        self.release(pod.uid)
        if demand.gpu_share is not None and demand.gpu_share.memory:
            self._tracked[pod.uid] = None
        if not PLUGIN_GPUS.isdisjoint(demand.shape.requests):
            self._with_plugin_gpus[pod.uid] = None
        return ()

    def release(self, uid: str) -> Uids:
        """The pod is not charged any more."""
        self._tracked.pop(uid, None)
        self._with_plugin_gpus.pop(uid, None)
        return ()

    def replicas(self, requests: Mapping[str, float], node: str) -> float:
        """How many pods a device plugin gives each of the requested GPUs on ``node``.

        Without a node replicas count for the most that they can be, other GPUs for themselves.
        """
        if not self._replicas or PLUGIN_GPUS.isdisjoint(requests):
            return 1.0
        if node:
            return self._replicas.get(node, 1.0)
        return min(self._replicas.values()) if REPLICA_RESOURCE in requests else 1.0

    def on_node(self, node: str) -> float:
        """MiB of a GPU on ``node``; without a node, or a label on it, of the smallest GPU."""
        return self._by_node.get(node, self._smallest)

    def update(self, state: NodeUsageState) -> Iterable[str]:
        """Take in the nodes; returns the pods, by uid, whose charge may have changed."""
        sharing = state.gpu_sharing
        if state.nodes.generation == self._generation and sharing.memory is self._memory:
            return ()
        self._generation, self._memory = state.nodes.generation, sharing.memory
        rows = np.flatnonzero(sharing.memory_known)
        by_node = {state.nodes.names[row]: float(sharing.memory[row]) for row in rows}
        counts = gpu_replicas(state.nodes)
        replicas = {
            state.nodes.names[row]: float(counts[row]) for row in np.flatnonzero(counts > 1)
        }
        changed = self._with_plugin_gpus if replicas != self._replicas else {}
        self._replicas = replicas
        if by_node != self._by_node:
            self._by_node, self._smallest = by_node, sharing.smallest
            changed = changed | self._tracked
        return tuple(changed)


PLUGIN_GPUS = frozenset({GPU_RESOURCE, REPLICA_RESOURCE})
"""Resources of which one unit may be a replica of a GPU."""
UNREADABLE_SHAPE = Shape(number=-1, requests={})


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What a pod requests. ``waiting_for``, ``missing`` and ``problem`` are as in ``Member``.

    A pod whose requests cannot be read has ``UNREADABLE_SHAPE``: it requests nothing and is never
    placed. ``closes_node``: it is unknown what it takes of its node, which takes no more pods.
    """

    shape: Shape
    claims: PodClaims
    gpu_share: GpuShare | None
    volumes: PodVolumes = NO_VOLUMES
    waiting_for: str = ""
    missing: MissingObject | None = None
    problem: str = ""
    closes_node: bool = False
    unrequested_mig: Mapping[str, float] = field(default_factory=dict)
    """MIG devices of a running pod that it names by annotation and does not request."""

    @property
    def charged_by_shape(self) -> bool:
        """Whether all pods of the shape cost the same, wherever they are."""
        special = self.shape.gpu_share is not None or self.unrequested_mig
        return not self.shape.has_claims and not special


def pod_demand(
    pod: Pod,
    owners: RecordingOwners,
    shapes: ShapeTable,
    accounting: Accounting,
    *,
    labels_matter: bool,
    claims: PodClaims | None = None,
) -> PodDemand:
    """Resolve the claims and volumes of ``pod`` and find its shape; ``claims`` if known."""
    if claims is None:
        claims = pod_claims(pod, owners.claim, group_claims(pod, owners.named))
    volumes = pod_volumes(pod, owners)
    equivalents = total(accounting.plugin_equivalents(use.spec) for use in claims.uses)
    problem, share = _gpu_share(pod)
    try:
        shape = shapes.intern(
            pod,
            claims.uses,
            volumes.selectors,
            equivalents,
            share,
            extended=extended_resources(pod, owners.device_class_for, share),
            volumes=volumes.requirements,
            labels_matter=labels_matter,
        )
        problem = problem or _unrequested_mig(pod) or excessive_request(shape.requests)
    except QuantityError as error:
        problem, shape = str(error), UNREADABLE_SHAPE
    first = claims if claims.waiting_for else volumes
    closes = shape is UNREADABLE_SHAPE or claims.unreadable
    mig = legacy_mig_devices(pod) if pod.spec.node_name else {}
    return PodDemand(
        shape, claims, share, volumes, first.waiting_for, first.missing, problem, closes, mig
    )


def _unrequested_mig(pod: Pod) -> str:
    """What is wrong with a pending pod that only an annotation says needs a MIG device."""
    profile = legacy_mig_profile(pod)
    if not profile or pod.spec.node_name:
        return ""
    return f"annotation {profile} gives it no MIG device: request {profile} in resources.limits"


def shared_gpus_of(pod: Pod, demand: PodDemand, placement: PodPlacement) -> tuple[SharedGpu, ...]:
    """The shared GPUs of which the pod has a part: those being written, else those it names."""
    if placement.gets_claim and demand.gpu_share is not None:
        return ()
    return placement.gpus or assigned_gpus(pod, demand.gpu_share)


def pod_usage(
    pod: Pod,
    demand: PodDemand,
    placement: PodPlacement,
    gpus: tuple[SharedGpu, ...],
    *,
    ours: bool,
) -> PodUsage | None:
    """What the pod occupies on its node; None without a node. ``ours``: it names this scheduler."""
    if not placement.node:
        return None
    shape = demand.shape
    requests = (
        total((shape.requests, shape.plugin_equivalents))
        if shape.plugin_equivalents
        else shape.requests
    )
    shared = shared_gpu_usage(shape, gpus, pod)
    if shared is not None and shape.gpu_share is None:
        requests = {name: amount for name, amount in requests.items() if name != GPU_RESOURCE}
    taken = claimed_by(pod, placement)
    if taken:
        requests = total((requests, taken))
    if demand.closes_node:
        requests = {**requests, "pods": largest_amount("pods")}
    return PodUsage(
        placement.node,
        requests,
        shape.host_ports,
        placement.terminating and not placement.stuck_terminating,
        shared,
        legacy_mig=ours and _has_unknown_mig(pod),
        attachments=demand.volumes.attachments,
        exclusive=shape.volumes.exclusive_claims,
    )


def claimed_by(pod: Pod, placement: PodPlacement) -> Mapping[str, float]:
    """What its claims take of its node beside its requests, by its status or as assumed."""
    try:
        return claimed_amounts(pod) or placement.node_amounts
    except QuantityError:
        return placement.node_amounts


def _has_unknown_mig(pod: Pod) -> bool:
    """Whether KAI may have given the pod MIG devices by annotation.

    Any pod may be annotated. Other schedulers give none, nor do we: what we have bound is recorded.
    """
    return bool(legacy_mig_profile(pod)) and ADMITTED_KEY not in pod.metadata.annotations


def charge(
    demand: PodDemand,
    accounting: Accounting,
    *,
    gpu_memory: float,
    is_charged: Callable[[ResourceClaim], bool],
    replicas: float = 1.0,
) -> dict[str, float]:
    """What the pod costs its queue where a GPU has ``gpu_memory`` MiB, by quota resource.

    ``is_charged``: whether this pod, of those that share a claim, is charged with it. ``replicas``:
    how many pods a device plugin gives each of its GPUs.
    """
    requests = demand.shape.requests
    costs = [accounting.requests(with_replicas(requests, replicas) if replicas > 1 else requests)]
    if demand.charged_by_shape:
        return costs[0]
    costs.append(accounting.requests(demand.unrequested_mig))
    costs.append(accounting.extended(demand.shape.extended.requests))
    if demand.shape.gpu_share is not None:
        costs.append(accounting.gpu_share(demand.shape.gpu_share, gpu_memory))
    for use in demand.claims.uses:
        if use.claim is None:
            costs.append(accounting.claim_spec(use.spec))
        elif is_charged(use.claim):
            costs.append(accounting.claim(use.claim))
    return total(costs)


def with_replicas(requests: Mapping[str, float], replicas: float) -> dict[str, float]:
    """``requests`` with replicas of GPUs as the parts of GPUs that they are."""
    gpus = sum(requests.get(name, 0.0) for name in PLUGIN_GPUS) / replicas
    others = {name: amount for name, amount in requests.items() if name not in PLUGIN_GPUS}
    return others | {GPU_RESOURCE: gpus}


def unlabelled_claim(demand: PodDemand, accounting: Accounting, label: str, queue: str) -> str:
    """What is wrong where a claim for GPUs that pods may share is not marked as that of ``queue``.

    Without a ``label`` such claims need no mark. Claims made for one pod never do.
    """
    for use in demand.claims.uses if label else ():
        claim = use.claim
        if claim is None or any(owner.controller for owner in claim.metadata.owner_references):
            continue
        if claim.metadata.labels.get(label) != queue and accounting.claim_spec(use.spec).get(GPU):
            name = claim.metadata.name
            return f'resourceclaim "{name}" is shared: its label {label} must name queue "{queue}"'
    return ""


def member(
    pod: Pod,
    demand: PodDemand,
    placement: PodPlacement,
    *,
    gpus: tuple[SharedGpu, ...],
    spec: GangSpec,
    cost: Mapping[str, float],
    relies_on: tuple[tuple[str, Charge], ...] = (),
    waiting_for: str = "",
) -> Member:
    """The pod as a member of the gang that ``spec`` describes; ``cost`` is its charge.

    ``relies_on`` is as in ``Member``. ``waiting_for``: what it waits for beside the objects that it
    names.
    """
    meta = pod.metadata
    by = meta.annotations.get(CHECKPOINT_BY_KEY, "")
    asked = parse_time(by) if by else None
    return Member(
        pod=PodRef.of(meta),
        shape=demand.shape,
        subgroup=spec.subgroup,
        state=_pod_state(pod, placement),
        node=placement.node,
        claimed_amounts=claimed_by(pod, placement) if placement.node else {},
        nominated=placement.nominated,
        priority=pod.spec.priority,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        bound_since=_bound_since(pod),
        charge=cost,
        relies_on=relies_on,
        labels=meta.labels,
        claims=(*demand.claims.references, *demand.claims.extended_claims),
        group_reservation=demand.claims.group_reservation,
        gpus=gpus,
        volumes_to_provision=demand.volumes.to_provision,
        unbound_volume_claims=demand.volumes.unbound_claims,
        attachments=demand.volumes.attachments,
        numa_zones=observed_zones(pod),
        order=spec.order,
        failure_limits=spec.failure_limits,
        may_preempt=pod.spec.preemption_policy != "Never",
        gated_by_us_only=tuple(gate.name for gate in pod.spec.scheduling_gates)
        == (ADMISSION_GATE,),
        waiting_for=demand.waiting_for or spec.pod_problem or waiting_for,
        missing=demand.missing,
        stuck_terminating=placement.stuck_terminating,
        lingering=placement.lingering and bool(placement.node),
        overdue=placement.overdue,
        problem=demand.problem and f"pod {meta.namespace}/{meta.name}: {demand.problem}",
        disruption=_disruption(pod),
        checkpoint_by=None if asked is None else asked.timestamp(),
        checkpointed=asked is not None and meta.annotations.get(CHECKPOINTED_KEY) == by,
    )


def _gpu_share(pod: Pod) -> tuple[str, GpuShare | None]:
    """What is wrong with the pod's request for a part of a GPU, and the part."""
    try:
        return "", gpu_share(pod)
    except GpuShareError as error:
        return str(error), None


def _pod_state(pod: Pod, placement: PodPlacement) -> PodState:
    if placement.terminating:
        return PodState.RELEASING
    if placement.node:
        return PodState.BOUND
    return PodState.GATED if pod.spec.scheduling_gates else PodState.PENDING


def _disruption(pod: Pod) -> str:
    found = (c for c in pod.status.conditions if c.type == "DisruptionTarget")
    return next((c.reason or c.type for c in found if c.status == "True"), "")


def _bound_since(pod: Pod) -> float:
    """Unix seconds, 0 while the pod is not bound; without a condition the pod's start time."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            since = condition.last_transition_time
            return since.timestamp() if since else 0.0
    return pod.status.start_time.timestamp() if pod.status.start_time else 0.0
