"""Pods of ours as members of their gangs, with what they are charged, and by node.

A member is a function of its pod, of what the pod demands, and of its placement. Also here: waiting
pods that ask for more than one gang, and the markers of those they are not in.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.queue import CHECKPOINT_BY_KEY, CHECKPOINTED_KEY
from kai_py.api.records.core import Pod
from kai_py.api.references import PodRef
from kai_py.api.times import parse_time
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owner_chain import controlling_owner
from kai_py.snapshot.accounting import GPU, Accounting
from kai_py.snapshot.charges import PodCharges
from kai_py.snapshot.derived_pod import DerivedPod, PodPlacement
from kai_py.snapshot.gang_table import GangTable
from kai_py.snapshot.gangs import JoinedClaim, Member, PodState
from kai_py.snapshot.numa_alignment import observed_zones
from kai_py.snapshot.pod_demand import PodDemand
from kai_py.snapshot.pod_usage import claimed_by
from kai_py.snapshot.settings import DeviceRegistry
from kai_py.snapshot.snapshot import IgnoredMarkers
from kai_py.snapshot.tables.admissions import Admissions
from kai_py.snapshot.tables.pod_table import PodTable, Uids


class GangMembers(PodTable):
    """Keeps the members of ``gangs`` in step with pods."""

    def __init__(
        self,
        gangs: GangTable,
        charges: PodCharges,
        devices: DeviceRegistry,
        shared_claim_queue_label: str,
        *,
        admissions: Admissions,
        queue_exists: Callable[[str], bool],
    ) -> None:
        """``shared_claim_queue_label``: as in the settings."""
        self._gangs = gangs
        self._charges = charges
        self._devices = devices
        self._label = shared_claim_queue_label
        self._admissions, self._queue_exists = admissions, queue_exists
        self._moved: dict[str, None] = {}

    def moved(self) -> Uids:
        """Pods on nodes that name another queue than they were admitted to."""
        return tuple(self._moved)

    def place(self, pod: DerivedPod) -> Uids:
        """Join the pod to its gang; returns pods that are no longer charged with a shared claim."""
        spec, demand = pod.parsed.gang_spec, pod.parsed.demand
        if spec is None:
            return self.release(pod.uid)
        if pod.placement.node:
            spec = self._in_admitted_queue(pod.uid, spec)
        joining = member(
            pod.parsed.pod,
            demand,
            pod.placement,
            gpus=pod.gpus,
            spec=spec,
            cost=self._charges.charge_of(pod.parsed.pod, demand, pod.placement.node),
            relies_on=self._charges.relies_on(pod.parsed.pod, demand),
            waiting_for=unlabelled_claim(demand, self._devices.accounting, self._label, spec.queue),
        )
        self._gangs.join(pod.uid, spec, joining, pod.parsed.expected)
        return self._charges.take_to_recharge()

    def release(self, uid: str) -> Uids:
        """The pod is in no gang any more; others are charged with the claims it shared."""
        self._gangs.remove_pod(uid)
        self._moved.pop(uid, None)
        return self._charges.remove(uid)

    def _in_admitted_queue(self, uid: str, spec: GangSpec) -> GangSpec:
        """``spec`` in the queue that the pod was admitted to, as long as that exists.

        Where the objects name another one by now, the gang stays in that queue until none of its
        pods runs: those to come join the ones that run, and are admitted by their queue.
        """
        terms = self._admissions.terms(uid)
        if terms is None or terms.queue == spec.queue:
            self._moved.pop(uid, None)
            return spec
        self._moved[uid] = None
        return replace(spec, queue=terms.queue) if self._queue_exists(terms.queue) else spec


class NodePods(PodTable):
    """Pods of ours by node, which nodes exist, in whatever pool, and which were rebooted."""

    def __init__(self) -> None:
        """Start empty."""
        self._existing: dict[str, None] = {}
        self._pods: dict[str, dict[str, None]] = {}
        self._node_of: dict[str, str] = {}
        self._boots: dict[str, str] = {}
        self._deleted: dict[str, None] = {}
        self._rebooted: dict[str, str] = {}

    def set_node(self, name: str, *, exists: bool, boot_id: str = "") -> Uids:
        """A node came, changed or went; returns the pods on it if it came or went.

        The boot of a node that went counts while pods are on it: one that is made again under its
        name may have booted since.
        """
        on_it = tuple(self._pods.get(name, ()))
        booted = self._boots.get(name, "")
        if boot_id and exists:
            self._boots[name] = boot_id
            if booted and booted != boot_id:
                self._rebooted.update(dict.fromkeys(on_it, name))
        elif not (exists or on_it):
            self._boots.pop(name, None)
        if exists == (name in self._existing):
            return ()
        if exists:
            self._existing[name] = None
            self._deleted.pop(name, None)
        else:
            del self._existing[name]
            self._deleted[name] = None
        return on_it

    def deleted_nodes(self) -> frozenset[str]:
        """Nodes that were deleted while pods were on them."""
        self._deleted = {name: None for name in self._deleted if name in self._pods}
        return frozenset(self._deleted)

    def rebooted(self) -> Mapping[str, str]:
        """Pods, by uid, that were on a node when it was rebooted, and the node."""
        return dict(self._rebooted)

    def exists(self, name: str) -> bool:
        """Whether there is such a node."""
        return name in self._existing

    def place(self, pod: DerivedPod) -> Uids:
        """Note where a pod of ours is."""
        node = "" if pod.parsed.gang_spec is None else pod.placement.node
        if self._node_of.get(pod.uid, "") != node:
            self.release(pod.uid)
            if node:
                self._node_of[pod.uid] = node
                self._pods.setdefault(node, {})[pod.uid] = None
        return ()

    def release(self, uid: str) -> Uids:
        """The pod is on no node any more."""
        node = self._node_of.pop(uid, "")
        self._rebooted.pop(uid, None)
        pods = self._pods.get(node)
        if pods is not None:
            pods.pop(uid, None)
            if not pods:
                del self._pods[node]
                if node not in self._existing:
                    self._boots.pop(node, None)
        return ()


class IgnoredMarkerTable(PodTable):
    """Ignored markers by pod uid."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_pod: dict[str, IgnoredMarkers] = {}

    def place(self, pod: DerivedPod) -> Uids:
        """Take in what a pod without a node asks for."""
        spec = pod.parsed.gang_spec
        if spec is None or not spec.ignored_markers or pod.placement.node:
            return self.release(pod.uid)
        reference = PodRef.of(pod.parsed.pod.metadata)
        self._by_pod[pod.uid] = IgnoredMarkers(reference, spec.key, spec.ignored_markers)
        return ()

    def release(self, uid: str) -> Uids:
        """Forget a pod that is no longer pending."""
        self._by_pod.pop(uid, None)
        return ()

    def snapshot(self, others: Iterable[IgnoredMarkers]) -> tuple[IgnoredMarkers, ...]:
        """All ignored markers, and ``others``, in order of their pods."""
        return tuple(sorted([*self._by_pod.values(), *others], key=lambda each: each.pod))


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
    relies_on: tuple[JoinedClaim, ...] = (),
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
        queue=spec.queue,
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
        unready_claims=demand.claims.unready,
        group_reservation=demand.claims.group_reservation,
        gpus=gpus,
        volumes_to_provision=demand.volumes.to_provision,
        unbound_volume_claims=demand.volumes.unbound_claims,
        attachments=demand.volumes.attachments,
        numa_zones=observed_zones(pod),
        order=spec.order,
        failure_limits=spec.failure_limits,
        is_owned=controlling_owner(meta) is not None,
        workloads=spec.workloads,
        may_preempt=pod.spec.preemption_policy != "Never",
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates),
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
