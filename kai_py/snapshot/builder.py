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
from kai_py.api.records.document import Document
from kai_py.api.records.resource import AllocationResult, ResourceClaim
from kai_py.api.records.sameness import same_owner
from kai_py.api.references import PodRef
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owners import GroupKind
from kai_py.snapshot.assumptions import FINISHED, SUCCEEDED, Assumptions, Standing
from kai_py.snapshot.attach_limits import AttachLimits
from kai_py.snapshot.budgets import DisruptionBudgets
from kai_py.snapshot.claim_overlays import ClaimOverlays
from kai_py.snapshot.departed import DepartedOwners
from kai_py.snapshot.dependencies import Dependencies, OwnerKinds, RecordingOwners
from kai_py.snapshot.derivation import (
    gpus_of,
    holding,
    member,
    unlabelled_claim,
)
from kai_py.snapshot.failed_devices import DeviceKey, FailedDevices
from kai_py.snapshot.gang_ledger import GangLedger, copied
from kai_py.snapshot.gpu_holdings import CardMemory
from kai_py.snapshot.group_claims import GROUPS
from kai_py.snapshot.group_schedulers import GroupSchedulers
from kai_py.snapshot.known_queues import KnownQueues
from kai_py.snapshot.known_topologies import KnownTopologies
from kai_py.snapshot.ledger import NodeLedger
from kai_py.snapshot.neighbour import Neighbours
from kai_py.snapshot.numa import NumaReports
from kai_py.snapshot.object_cache import Key, ObjectCache
from kai_py.snapshot.overdue import OverdueDeletions
from kai_py.snapshot.pod_charges import PodCharges
from kai_py.snapshot.queue_specs import QueueSpec
from kai_py.snapshot.readings import Identify, Reading, Readings
from kai_py.snapshot.settings import DEFAULTS, DeviceBook, SnapshotSettings
from kai_py.snapshot.snapshot import Disregarded, Snapshot
from kai_py.snapshot.storage_offers import StorageOffers
from kai_py.snapshot.suspended import changed_stand_ins
from kai_py.snapshot.unclaimed_volumes import UnclaimedVolumes
from kai_py.snapshot.vacated import VacatedClaims
from kai_py.snapshot.volume_attachments import VolumeAttachments


class SnapshotBuilder:
    """Mutable behind, immutable in front: see ``freeze``."""

    def __init__(
        self,
        identify: Identify,
        devices: DeviceBook,
        queue_spec: Callable[[object], QueueSpec],
        settings: SnapshotSettings = DEFAULTS,
        *,
        follow: Callable[[GroupKind], None] | None = None,
    ) -> None:
        """Start empty. ``queue_spec`` turns a watched Queue object into its spec.

        ``follow`` is told once of every kind that owns pods of ours and is not watched yet; without
        it such owners stay unknown.
        """
        self._devices = devices
        self._settings = settings
        self._ledger = NodeLedger()
        self._gangs = GangLedger(settings.preemptible_below)
        self._neighbours = Neighbours()
        self._objects = ObjectCache()
        self._dependencies = Dependencies()
        self._owner_kinds = OwnerKinds(follow)
        self._group_schedulers = GroupSchedulers()
        self._departed = DepartedOwners(self._objects, self._dependencies)
        self._disregarded: dict[str, Disregarded] = {}
        self._pods: dict[str, Pod] = {}
        self._queues = KnownQueues(queue_spec, settings.own_queue)
        self._topologies = KnownTopologies()
        self._assumed = Assumptions(settings.hold_seconds)
        self._overlays = ClaimOverlays(self._objects, self._assumed, self._derive_all)
        self._overdue = OverdueDeletions()
        self._card_memory = CardMemory()
        self._readings = Readings(
            identify, devices, self._card_memory, self._dependencies, self._owners
        )
        self.vacated = VacatedClaims(
            self._group_schedulers,
            settings.scheduler_names,
            lambda namespace, name: self._objects.get(GROUPS, namespace, name) is not None,
        )
        self._charges = PodCharges(
            devices, self._pods, self._dependencies, self._card_memory, self._waits
        )
        self._budgets = DisruptionBudgets()
        self._failed_devices = FailedDevices(self._objects)
        self._numa = NumaReports()
        self._attach_limits = AttachLimits()
        self._attachments = VolumeAttachments()
        self._unclaimed = UnclaimedVolumes()
        self._storage_offers = StorageOffers()
        self._tables = (
            self.vacated,
            self._unclaimed,
            self._storage_offers,
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
            self._devices.count_by(self._queues.device_limits())
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
        making: ResourceClaim | None = None,
        *,
        volumes: tuple[str, ...] = (),
    ) -> None:
        """Count ``pod`` as bound to ``node``, and ``claims`` (by uid) as allocated, from now on.

        ``gpus``: the shared GPUs of which it gets a part. ``making``: the claim that is being made
        for its extended resources, as it will be. ``volumes``: those that its claims get.
        """
        self._assumed.bind(pod.uid, node, claims or {}, gpus, making)
        self._numa.expect(pod.uid, node)
        self._unclaimed.promise(pod.uid, volumes)
        if making is not None:
            self._objects.show_claim_in_making(making)
            self._readings.forget(pod.uid)
        for uid in claims or {}:
            self._overlays.show(uid)
        self._stand(pod.uid)

    def forget(self, pod_uid: str) -> None:
        """Take an assumption back: the pod is pending again, its claims as the API has them."""
        self._overlays.forget(pod_uid)
        self._numa.forget(pod_uid)
        self._unclaimed.forget(pod_uid)
        self._derive(pod_uid)

    def expect_leaving(self, pod_uid: str) -> None:
        """Count a pod as leaving: its eviction is being written."""
        self._assumed.evict(pod_uid)
        self._derive(pod_uid)

    def expect_staying(self, pod_uid: str) -> None:
        """The eviction was refused: the pod stays."""
        if self._assumed.spare(pod_uid):
            self._derive(pod_uid)

    def set_owner_kind(self, kind: GroupKind, *, readable: bool) -> None:
        """Whether owners of a kind can be read; if not, the walk from their pods ends there."""
        self._owner_kinds.set(kind, readable=readable)
        self._derive_all((("kind", *kind),))

    def hold(self, pod_uid: str, node: str, now: float) -> None:
        """Keep room on ``node`` for a pod that was nominated."""
        self._assumed.hold(pod_uid, node, now)

    def hold_back(self, gang: str, until: float) -> None:
        """Give a gang no room before ``until``: a decision about it could not be carried out."""
        self._assumed.hold_back(gang, until)

    def avoid(self, device: DeviceKey, why: str, seconds: float) -> None:
        """Give a device that could not be made ready to nobody for a while."""
        self._failed_devices.avoid(device, why, seconds)

    def freeze(self, now: float) -> Snapshot:
        """The cluster as known at ``now``."""
        self._failed_devices.tick(now)
        if self._devices.sync(self._objects.devices()):
            for kind in ("resourceclaims", "extendedresources"):
                for uid in self._dependencies.of_kind(kind):
                    self._derive(uid)
        self._departed.forget()
        for uid in self._overdue.noticed(now):
            self._derive(uid)
        state = self._ledger.freeze()
        for uid in self._card_memory.changed(state):
            self._derive(uid)
        self._gangs.settle(now)
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
            unclaimed_volumes=self._unclaimed.free(),
            storage_offers=self._storage_offers.standing(),
            gangs=self._gangs.standing(),
            pending=tuple(sorted(self._gangs.pending)),
            queues=self._queues.specs(),
            queue_usage=copied(self._gangs.usage),
            queue_demand=copied(self._gangs.demand),
            queue_fixed=copied(self._gangs.fixed),
            short=self._gangs.short(),
            staged=self._gangs.staged(),
            devices=self._objects.devices(),
            holds=self._assumed.holds(now),
            held_back=self._assumed.held_back(now),
            gpu_sharing=state.gpu_sharing,
            neighbours=self._neighbours.standing(),
            namespaces=self._objects.namespace_labels(),
            topologies=self._topologies.levels(),
            leaving=tuple(self._gangs.leaving.values()),
            disregarded=tuple(self._disregarded.values()),
            vacancies=self.vacated.vacancies(),
            group_users=self.vacated.group_users(self._gangs.gangs.values()),
            budgets=self._budgets.standing(),
            numa=self._numa.nodes(),
        )

    def _apply_node(self, old: object | None, new: object | None) -> None:
        node = new if new is not None else old
        if isinstance(node, Node):
            kept = new is not None and self._settings.in_pool(node.metadata)
            self._ledger.set_node(node.metadata.name, node if kept else None)

    def _apply_object(self, kind: str, old: object | None, new: object | None) -> None:
        """Something that pods may be derived from."""
        touched = self._objects.apply(kind, old, new)
        if kind == GROUPS and isinstance(old, Document) and new is None:
            self.vacated.forget_group(old.metadata.namespace, old.metadata.name)
        if not self._departed.keep(old, new):
            self._derive_all(touched)
        for uid, stand_in in changed_stand_ins(old, new):
            self._apply_pod(self._pods.get(uid), stand_in)
        if isinstance(new, ResourceClaim):
            self._overlays.settle(new)

    def _apply_pod(self, old: object | None, new: object | None) -> None:
        if isinstance(new, Pod):
            uid = new.metadata.uid
            known, self._pods[uid] = self._pods.get(uid), new
            self._budgets.set_pod(new)
            self._assumed.see(new)
            self._overdue.see(new)
            same = known is not None and known.metadata == new.metadata
            if known and same and known.spec == new.spec and new.status.phase in FINISHED:
                self._end(new, self._gangs.gang_of(uid))
            else:
                self._derive(uid)
            self._derive_all(self._group_schedulers.set(new))
            if not same:
                self._derive_all((("uid", uid),))
        elif isinstance(old, Pod):
            self._remove(old.metadata.uid)

    def _remove(self, uid: str) -> None:
        gone = self._pods.pop(uid, None)
        if gone is not None:
            self._budgets.remove_pod(gone)
        self._overdue.remove(uid)
        self._disregarded.pop(uid, None)
        self._overlays.forget(uid)
        self._assumed.remove(uid)
        self._dependencies.forget(uid)
        self._readings.forget(uid)
        self._card_memory.forget(uid)
        self._neighbours.remove(uid)
        self._ledger.set_holding(uid, None)
        self._numa.forget(uid)
        self._unclaimed.forget(uid)
        self._gangs.leave(uid)
        self._charges.leave(uid, self._derive)
        self._derive_all(self._group_schedulers.remove(uid))

    def _set_neighbour(self, pod: Pod, node: str) -> None:
        """With the first pod that refuses others, the labels of waiting pods begin to matter."""
        refused = self._neighbours.refuse
        self._neighbours.set(pod, node)
        if self._neighbours.refuse and not refused:
            for uid in self._gangs.waiting():
                if uid != pod.metadata.uid:
                    self._derive(uid)

    def _derive_all(self, keys: Iterable[Key]) -> None:
        """Derive the pods that were derived from any of these."""
        for uid in self._dependencies.of(keys):
            self._derive(uid)

    def _derive(self, uid: str) -> None:
        """Bring everything derived from a pod in line with the pod and what it names."""
        self._readings.forget(uid)
        self._stand(uid)

    def _stand(self, uid: str) -> None:
        """Bring everything derived from a pod in line with where it stands."""
        self._disregarded.pop(uid, None)
        pod = self._pods.get(uid)
        if pod is None:
            return
        standing = self._assumed.standing(pod)
        if uid in self._overdue:
            standing = replace(standing, overdue=True)
        ours = self._settings.is_ours(pod)
        if pod.status.phase in FINISHED or (not ours and not standing.node):
            self._end(pod)
            return
        self._set_neighbour(pod, standing.node)
        reading = self._readings.of(pod, ours=ours, labels_matter=self._neighbours.refuse)
        asks, spec = reading.asks, reading.spec
        gpus = gpus_of(reading.pod, asks, standing)
        self._card_memory.watch(uid, asks.share)
        self._numa.see(uid, asks.shape.alignment)
        self._ledger.set_holding(uid, holding(reading.pod, asks, standing, gpus))
        if spec is not None:
            self._join(reading, spec, standing, gpus)
        for relieved in self._charges.relieved():
            self._derive(relieved)

    def _join(
        self, reading: Reading, spec: GangSpec, standing: Standing, gpus: tuple[SharedGpu, ...]
    ) -> None:
        """The pod is a member of its gang; what was read of it is kept while it waits."""
        pod, asks = reading.pod, reading.asks
        uid = pod.metadata.uid
        if standing.node:
            self._readings.forget(uid)
        else:
            self._readings.keep(reading)
            self._disregard(pod, spec)
        cost = self._charges.of(pod, asks, standing.node)
        label, accounting = self._settings.claim_label, self._devices.accounting
        why = unlabelled_claim(asks, accounting, label, spec.queue)
        joining = member(pod, asks, standing, gpus=gpus, spec=spec, cost=cost, obstacle=why)
        self._gangs.join(uid, spec, joining, reading.expected)

    def _disregard(self, pod: Pod, spec: GangSpec) -> None:
        if spec.disregarded:
            meta = pod.metadata
            reference = PodRef.of(meta)
            self._disregarded[meta.uid] = Disregarded(reference, spec.key, spec.disregarded)

    def _end(self, pod: Pod, gang: str = "") -> None:
        """The pod holds nothing any more; a gang remembers who of it ran to the end.

        ``gang``: the key of its gang if it is known.
        """
        uid = pod.metadata.uid
        self._readings.forget(uid)
        self._disregarded.pop(uid, None)
        self._neighbours.remove(uid)
        self._ledger.set_holding(uid, None)
        self._numa.forget(uid)
        if pod.status.phase == SUCCEEDED and self._settings.is_ours(pod):
            self._gangs.succeed(uid, gang or self._readings.gang(pod))
        else:
            self._gangs.leave(uid)
            self._dependencies.set(uid, ())
        self._charges.leave(uid, self._derive)

    def _owners(self) -> RecordingOwners:
        return RecordingOwners(self._objects, self._pods, self._owner_kinds, self._group_schedulers)

    def _waits(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is None or not self._assumed.standing(pod).node
