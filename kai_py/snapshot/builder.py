"""Builds snapshots incrementally: a cycle costs what changed since the last one.

The builder is fed with old/new pairs by the watch and with assumptions by commit. It keeps pods,
gangs and node rows up to date; ``freeze`` only rebuilds the gangs whose pods changed. What a pod
is derived from (owners, namespace, claims, volumes) is remembered, so that a change of any of them
derives just those pods again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kai_py.api.gpu_share import SharedGpu
from kai_py.api.records.core import Node, Pod
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.records.unstructured import Unstructured, same_owner
from kai_py.api.references import PodRef
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owners import GroupKind
from kai_py.snapshot.assumptions import (
    FINISHED_PHASES,
    SUCCEEDED,
    Assumptions,
    PodPlacement,
    StuckTerminations,
)
from kai_py.snapshot.charges import PodCharges
from kai_py.snapshot.dependencies import (
    DeletedOwners,
    Dependencies,
    GroupSchedulers,
    ReadableKinds,
    RecordingOwners,
)
from kai_py.snapshot.derivation import (
    GpuMemory,
    member,
    pod_usage,
    shared_gpus_of,
    unlabelled_claim,
)
from kai_py.snapshot.gang_table import GangTable, copy_sums
from kai_py.snapshot.node_usage import NodeUsageTable
from kai_py.snapshot.object_cache import DeviceKey, FailedDevices, Key, ObjectCache
from kai_py.snapshot.parsed_pods import Identify, ParsedPod, ParsedPods
from kai_py.snapshot.settings import DEFAULT_SETTINGS, DeviceRegistry, SnapshotSettings
from kai_py.snapshot.snapshot import IgnoredMarkers, Snapshot
from kai_py.snapshot.suspended_jobs import changed_placeholders
from kai_py.snapshot.tables.budgets import DisruptionBudgets
from kai_py.snapshot.tables.claims import POD_GROUPS, ClaimOverlays
from kai_py.snapshot.tables.numa import NumaReports
from kai_py.snapshot.tables.pod_rules import PlacedPods
from kai_py.snapshot.tables.queues import QueueInfo, QueueInfos
from kai_py.snapshot.tables.releasable_claims import ReleasableClaims
from kai_py.snapshot.tables.topology import Topologies
from kai_py.snapshot.tables.volumes import (
    AttachLimits,
    AvailableVolumes,
    StorageCapacities,
    VolumeAttachments,
)


class SnapshotBuilder:
    """Mutable behind, immutable in front: see ``freeze``."""

    def __init__(
        self,
        identify: Identify,
        devices: DeviceRegistry,
        queue_info: Callable[[object], QueueInfo],
        settings: SnapshotSettings = DEFAULT_SETTINGS,
        *,
        watch_kind: Callable[[GroupKind], None] | None = None,
    ) -> None:
        """Start empty. ``queue_spec`` turns a watched Queue object into its spec.

        ``follow`` is told once of every kind that owns pods of ours and is not watched yet; without
        it such owners stay unknown.
        """
        self._devices = devices
        self._settings = settings
        self._node_usage = NodeUsageTable()
        self._gangs = GangTable(settings.preemptible_below)
        self._placed_pods = PlacedPods()
        self._objects = ObjectCache()
        self._dependencies = Dependencies()
        self._owner_kinds = ReadableKinds(watch_kind)
        self._group_schedulers = GroupSchedulers()
        self._deleted_owners = DeletedOwners(self._objects, self._dependencies)
        self._ignored_markers: dict[str, IgnoredMarkers] = {}
        self._pods: dict[str, Pod] = {}
        self._queues = QueueInfos(queue_info, settings.default_queue)
        self._topologies = Topologies()
        self._assumptions = Assumptions(settings.nomination_seconds)
        self._overlays = ClaimOverlays(self._objects, self._assumptions, self._derive_dependents)
        self._stuck_terminations = StuckTerminations()
        self._gpu_memory = GpuMemory()
        self._parsed_pods = ParsedPods(
            identify, devices, self._gpu_memory, self._dependencies, self._owners
        )
        self.releasable_claims = ReleasableClaims(
            self._group_schedulers,
            settings.scheduler_names,
            lambda namespace, name: self._objects.get(POD_GROUPS, namespace, name) is not None,
        )
        self._charges = PodCharges(
            devices, self._pods, self._dependencies, self._gpu_memory, self._is_unplaced
        )
        self._budgets = DisruptionBudgets()
        self._failed_devices = FailedDevices(self._objects)
        self._numa = NumaReports()
        self._attach_limits = AttachLimits()
        self._attachments = VolumeAttachments()
        self._available_volumes = AvailableVolumes()
        self._storage_capacities = StorageCapacities()
        self._tables = (
            self.releasable_claims,
            self._available_volumes,
            self._storage_capacities,
            self._numa,
            self._attach_limits,
            self._attachments,
            self._topologies,
        )

    def apply(self, kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a watched object; ``kind`` is its ``Kind.collection_name``."""
        for table in self._tables:
            table.apply(old, new)
        if kind == "pods":
            self._apply_pod(old, new)
        elif kind == "nodes":
            self._apply_node(old, new)
        elif kind.partition(".")[0] == "queues":
            self._queues.apply(kind, old, new)
            self._devices.set_limits(self._queues.device_limits())
        elif kind == "poddisruptionbudgets":
            self._budgets.apply(old, new, self._pods.values())
        elif not same_owner(old, new):
            self._apply_object(kind, old, new)

    def assume(
        self,
        pod: PodRef,
        node: str,
        claims: Mapping[str, AllocationResult] | None = None,
        gpus: tuple[SharedGpu, ...] = (),
        new_claim: ResourceClaim | None = None,
        *,
        volumes: tuple[str, ...] = (),
    ) -> None:
        """Count ``pod`` as bound to ``node``, and ``claims`` (by uid) as allocated, from now on.

        ``gpus``: the shared GPUs of which it gets a part. ``making``: the claim that is being made
        for its extended resources, as it will be. ``volumes``: those that its claims get.
        """
        self._assumptions.bind(pod.uid, node, claims or {}, gpus, new_claim)
        self._numa.assume_bound(pod.uid, node)
        self._available_volumes.assume(pod.uid, volumes)
        if new_claim is not None:
            self._objects.assume_claim(new_claim)
            self._parsed_pods.forget(pod.uid)
        for uid in claims or {}:
            self._overlays.show(uid)
        self._place_pod(pod.uid)

    def forget(self, pod_uid: str) -> None:
        """Take an assumption back: the pod is pending again, its claims as the API has them."""
        self._overlays.forget(pod_uid)
        self._numa.forget(pod_uid)
        self._available_volumes.forget(pod_uid)
        self._derive(pod_uid)

    def expect_eviction(self, pod_uid: str) -> None:
        """Count a pod as leaving: its eviction is being written."""
        self._assumptions.evict(pod_uid)
        self._derive(pod_uid)

    def cancel_eviction(self, pod_uid: str) -> None:
        """The eviction was refused: the pod stays."""
        if self._assumptions.cancel_eviction(pod_uid):
            self._derive(pod_uid)

    def set_owner_kind(self, kind: GroupKind, *, readable: bool) -> None:
        """Whether owners of a kind can be read; if not, the walk from their pods ends there."""
        self._owner_kinds.set(kind, readable=readable)
        self._derive_dependents((("kind", *kind),))

    def nominate(self, pod_uid: str, node: str, now: float) -> None:
        """Keep room on ``node`` for a pod that was nominated."""
        self._assumptions.nominate(pod_uid, node, now)

    def back_off(self, gang: str, until: float) -> None:
        """Give a gang no room before ``until``: a decision about it could not be carried out."""
        self._assumptions.back_off(gang, until)

    def avoid_device(self, device: DeviceKey, reason: str, seconds: float) -> None:
        """Give a device that could not be made ready to nobody for a while."""
        self._failed_devices.avoid(device, reason, seconds)

    def snapshot(self, now: float) -> Snapshot:
        """The cluster as known at ``now``."""
        self._failed_devices.expire(now)
        if self._devices.sync(self._objects.devices()):
            for kind in ("resourceclaims", "extendedresources"):
                for uid in self._dependencies.dependents_of_kind(kind):
                    self._derive(uid)
        self._deleted_owners.drop_unused()
        for uid in self._stuck_terminations.newly_stuck(now):
            self._derive(uid)
        state = self._node_usage.snapshot()
        for uid in self._gpu_memory.update(state):
            self._derive(uid)
        self._gangs.update(now)
        return Snapshot(
            now=now,
            resources=state.resources,
            nodes=state.nodes,
            used=state.used,
            releasing=state.releasing,
            host_ports=state.host_ports,
            attached=state.attached,
            attach_limits=self._attach_limits.by_node(),
            attachments=self._attachments.by_node(),
            exclusive_claims=state.exclusive_claims,
            available_volumes=self._available_volumes.snapshot(),
            storage_capacities=self._storage_capacities.snapshot(),
            gangs=self._gangs.snapshot(),
            pending=tuple(sorted(self._gangs.pending)),
            queues=self._queues.specs(),
            queue_allocated=copy_sums(self._gangs.allocated),
            queue_requested=copy_sums(self._gangs.requested),
            queue_non_preemptible=copy_sums(self._gangs.non_preemptible),
            below_min_members=self._gangs.below_min_members(),
            started_in_part=self._gangs.started_in_part(),
            devices=self._objects.devices(),
            nominations=self._assumptions.nominations(now),
            in_backoff=self._assumptions.in_backoff(now),
            gpu_sharing=state.gpu_sharing,
            placed_pods=self._placed_pods.snapshot(),
            namespaces=self._objects.namespace_labels(),
            topologies=self._topologies.levels(),
            terminating=tuple(self._gangs.terminating.values()),
            ignored_markers=tuple(self._ignored_markers.values()),
            releasable_claims=self.releasable_claims.snapshot(),
            group_claim_users=self.releasable_claims.group_claim_users(self._gangs.gangs.values()),
            budgets=self._budgets.snapshot(),
            numa=self._numa.snapshot(),
        )

    def _apply_node(self, old: object | None, new: object | None) -> None:
        node = new if new is not None else old
        if isinstance(node, Node):
            kept = new is not None and self._settings.in_pool(node.metadata)
            self._node_usage.set_node(node.metadata.name, node if kept else None)

    def _apply_object(self, kind: str, old: object | None, new: object | None) -> None:
        """Something that pods may be derived from."""
        touched = self._objects.apply(kind, old, new)
        if kind == POD_GROUPS and isinstance(old, Unstructured) and new is None:
            self.releasable_claims.forget_group(old.metadata.namespace, old.metadata.name)
        if not self._deleted_owners.keep(old, new):
            self._derive_dependents(touched)
        for uid, stand_in in changed_placeholders(old, new):
            self._apply_pod(self._pods.get(uid), stand_in)
        if isinstance(new, ResourceClaim):
            self._overlays.update(new)

    def _apply_pod(self, old: object | None, new: object | None) -> None:
        if isinstance(new, Pod):
            uid = new.metadata.uid
            known, self._pods[uid] = self._pods.get(uid), new
            self._budgets.set_pod(new)
            self._assumptions.observe_pod(new)
            self._stuck_terminations.set_pod(new)
            same = known is not None and known.metadata == new.metadata
            if known and same and known.spec == new.spec and new.status.phase in FINISHED_PHASES:
                self._finish_pod(new, self._gangs.gang_of(uid))
            else:
                self._derive(uid)
            self._derive_dependents(self._group_schedulers.set(new))
            if not same:
                self._derive_dependents((("uid", uid),))
        elif isinstance(old, Pod):
            self._remove_pod(old.metadata.uid)

    def _remove_pod(self, uid: str) -> None:
        gone = self._pods.pop(uid, None)
        if gone is not None:
            self._budgets.remove_pod(gone)
        self._stuck_terminations.remove_pod(uid)
        self._ignored_markers.pop(uid, None)
        self._overlays.forget(uid)
        self._assumptions.remove_pod(uid)
        self._dependencies.forget(uid)
        self._parsed_pods.forget(uid)
        self._gpu_memory.forget(uid)
        self._placed_pods.remove(uid)
        self._node_usage.set_usage(uid, None)
        self._numa.forget(uid)
        self._available_volumes.forget(uid)
        self._gangs.remove_pod(uid)
        self._charges.remove(uid, self._derive)
        self._derive_dependents(self._group_schedulers.remove(uid))

    def _set_placed_pod(self, pod: Pod, node: str) -> None:
        """With the first pod that refuses others, the labels of waiting pods begin to matter."""
        refused = self._placed_pods.any_anti_affinity
        self._placed_pods.set(pod, node)
        if self._placed_pods.any_anti_affinity and not refused:
            for uid in self._gangs.unplaced_pods():
                if uid != pod.metadata.uid:
                    self._derive(uid)

    def _derive_dependents(self, keys: Iterable[Key]) -> None:
        """Derive the pods that were derived from any of these."""
        for uid in self._dependencies.dependents(keys):
            self._derive(uid)

    def _derive(self, uid: str) -> None:
        """Bring everything derived from a pod in line with the pod and what it names."""
        self._parsed_pods.forget(uid)
        self._place_pod(uid)

    def _place_pod(self, uid: str) -> None:
        """Bring everything derived from a pod in line with where it stands."""
        self._ignored_markers.pop(uid, None)
        pod = self._pods.get(uid)
        if pod is None:
            return
        standing = self._assumptions.placement(pod)
        if uid in self._stuck_terminations:
            standing = replace(standing, stuck_terminating=True)
        ours = self._settings.is_ours(pod)
        if pod.status.phase in FINISHED_PHASES or (not ours and not standing.node):
            self._finish_pod(pod)
            return
        self._set_placed_pod(pod, standing.node)
        reading = self._parsed_pods.parse(
            pod, ours=ours, labels_matter=self._placed_pods.any_anti_affinity
        )
        asks, spec = reading.demand, reading.gang_spec
        gpus = shared_gpus_of(reading.pod, asks, standing)
        self._gpu_memory.track(uid, asks.gpu_share)
        self._numa.set_alignment(uid, asks.shape.alignment)
        self._node_usage.set_usage(uid, pod_usage(reading.pod, asks, standing, gpus))
        if spec is not None:
            self._join_gang(reading, spec, standing, gpus)
        for relieved in self._charges.take_to_recharge():
            self._derive(relieved)

    def _join_gang(
        self,
        parsed: ParsedPod,
        spec: GangSpec,
        placement: PodPlacement,
        gpus: tuple[SharedGpu, ...],
    ) -> None:
        """The pod is a member of its gang; what was read of it is kept while it waits."""
        pod, asks = parsed.pod, parsed.demand
        uid = pod.metadata.uid
        if placement.node:
            self._parsed_pods.forget(uid)
        else:
            self._parsed_pods.cache(parsed)
            self._note_ignored_markers(pod, spec)
        cost = self._charges.charge_of(pod, asks, placement.node)
        label, accounting = self._settings.shared_claim_queue_label, self._devices.accounting
        why = unlabelled_claim(asks, accounting, label, spec.queue)
        joining = member(pod, asks, placement, gpus=gpus, spec=spec, cost=cost, waiting_for=why)
        self._gangs.join(uid, spec, joining, parsed.expected)

    def _note_ignored_markers(self, pod: Pod, spec: GangSpec) -> None:
        if spec.ignored_markers:
            meta = pod.metadata
            reference = PodRef.of(meta)
            self._ignored_markers[meta.uid] = IgnoredMarkers(
                reference, spec.key, spec.ignored_markers
            )

    def _finish_pod(self, pod: Pod, gang: str = "") -> None:
        """The pod holds nothing any more; a gang remembers who of it ran to the end.

        ``gang``: the key of its gang if it is known.
        """
        uid = pod.metadata.uid
        self._parsed_pods.forget(uid)
        self._ignored_markers.pop(uid, None)
        self._placed_pods.remove(uid)
        self._node_usage.set_usage(uid, None)
        self._numa.forget(uid)
        if pod.status.phase == SUCCEEDED and self._settings.is_ours(pod):
            self._gangs.succeed(uid, gang or self._parsed_pods.gang_key(pod))
        else:
            self._gangs.remove_pod(uid)
            self._dependencies.set(uid, ())
        self._charges.remove(uid, self._derive)

    def _owners(self) -> RecordingOwners:
        return RecordingOwners(self._objects, self._pods, self._owner_kinds, self._group_schedulers)

    def _is_unplaced(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is None or not self._assumptions.placement(pod).node
