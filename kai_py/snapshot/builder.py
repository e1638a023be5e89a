"""Builds snapshots incrementally: a cycle costs what changed since the last one.

The watch feeds the builder with old/new pairs of objects, commit with what it is about to write.
Every change is treated alike: it is applied, the pods that it touches are derived again from the
objects that they name, the tables see them, and ``snapshot`` hands out what the tables keep.
"""

from collections.abc import Callable, Generator, Iterable
from itertools import chain

from kai_py.api.pod_phases import SUCCEEDED, is_finished
from kai_py.api.records.core import Pod
from kai_py.api.records.node import Node
from kai_py.api.records.resource import ResourceClaim, ResourceSlice
from kai_py.api.records.unstructured import same_owner
from kai_py.grouping.composite_groups import Key
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owner_chain import GroupKind
from kai_py.snapshot.dependencies import DeletedOwners, Dependencies, ReadableKinds
from kai_py.snapshot.derived_pod import AssumedBinding, DerivedPod, PodPlacement
from kai_py.snapshot.missing_objects import CLAIMS, TEMPLATES
from kai_py.snapshot.object_cache import DeviceKey, FailedDevices, ObjectCache
from kai_py.snapshot.outdated_pods import OutdatedPods
from kai_py.snapshot.own_pods import OwnPods
from kai_py.snapshot.parsed_pods import Identify
from kai_py.snapshot.placeholders import SuspendedJobs
from kai_py.snapshot.pod_usage import pod_usage, shared_gpus_of
from kai_py.snapshot.quarantine import InvalidObject, Quarantine
from kai_py.snapshot.registry import SnapshotTables
from kai_py.snapshot.resumed_jobs import ResumedJobs
from kai_py.snapshot.settings import DEFAULT_SETTINGS, DeviceRegistry, SnapshotSettings
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.ended_pods import ReleasableClaims
from kai_py.snapshot.tables.node_usage import NodeUsageState
from kai_py.snapshot.tables.pod_table import Uids
from kai_py.snapshot.tables.queues import QueueInfo
from kai_py.snapshot.tables.readiness import newly_unhealthy
from kai_py.snapshot.tables.refusals import is_refused

STEP = 32
"""Pods that are derived, and gangs that are put together, in one step."""

COUNTED_KINDS = (CLAIMS, TEMPLATES, "extendedresources")
"""Kinds whose requests are charged by devices of a class; placeholders name templates of claims."""

READING = "reading it"
DERIVING = "deriving what it requests"


class SnapshotBuilder:
    """The mutable side of snapshots; what ``snapshot`` hands out never changes."""

    def __init__(
        self,
        identify: Identify,
        devices: DeviceRegistry,
        queue_info: Callable[[object], QueueInfo],
        settings: SnapshotSettings = DEFAULT_SETTINGS,
        *,
        watch_kind: Callable[[GroupKind], None] | None = None,
        on_unneeded_kind: Callable[[GroupKind], None] = lambda _: None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """Start empty. ``queue_info`` turns a watched Queue object into its description.

        ``watch_kind`` is called once with every kind that owns pods of ours and is not watched yet;
        without it such owners stay unknown. ``on_unneeded_kind`` is called when one that cannot be
        read owns none any more. ``quarantine``: for what can't be processed; without it, errors.
        """
        self._quarantine = quarantine or Quarantine()
        self._devices = devices
        self._settings = settings
        self._own = OwnPods(settings)
        self._pods: dict[str, Pod] = {}
        self._objects = ObjectCache()
        self._dependencies = Dependencies()
        self._owner_kinds = ReadableKinds(watch_kind, on_unneeded_kind)
        self._deleted_owners = DeletedOwners(self._objects, self._dependencies)
        self._failed_devices = FailedDevices(self._objects)
        self._suspended_jobs = SuspendedJobs()
        self._resumed_jobs = ResumedJobs(settings.nomination_seconds)
        self._outdated = OutdatedPods()
        self._tables = SnapshotTables(
            identify,
            devices,
            queue_info,
            settings,
            own=self._own,
            pods=self._pods,
            objects=self._objects,
            dependencies=self._dependencies,
            owner_kinds=self._owner_kinds,
            quarantine=self._quarantine,
        )

    @property
    def releasable_claims(self) -> ReleasableClaims:
        """Claims whose pods have ended, and the PodGroups that claims are reserved for."""
        return self._tables.releasable_claims

    def apply(self, kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a watched object; ``kind`` is its ``Kind.collection_name``."""
        record = new if new is not None else old
        if isinstance(record, Pod):
            self._own.observe(self._pods.get(record.metadata.uid), new, self.assumed_node)
        for table in self._tables.object_tables.following(kind):
            self._quarantine.apply(table, kind, old, new)
        try:
            if kind == "pods":
                self._apply_pod(old, new)
            elif kind == "nodes":
                self._apply_node(old, new)
            elif not same_owner(old, new):
                self._apply_object(kind, old, new)
        except Exception as error:
            self._quarantine.report_record(kind, record, READING, error)
        else:
            self._quarantine.clear_record(kind, record, READING)
        if new is None:
            self._quarantine.forget_record(kind, record)

    def gang_of(self, pod: Pod) -> GangSpec | None:
        """The gang of a pod of ours, None for pods of other schedulers."""
        return self._tables.parsed_pods.gang_of(pod) if self._own.includes(pod) else None

    def assume(self, binding: AssumedBinding) -> None:
        """Count a pod as bound, and what goes with the binding as allocated, from now on."""
        self._resumed_jobs.assume(binding.pod_uid, binding.node)
        touched = dict.fromkeys(chain.from_iterable(self._tables.pod_tables.assume(binding)))
        if binding.pod_uid not in touched:
            # Nothing that the pod refers to has changed: what is cached about it still holds.
            self._place_pod(binding.pod_uid)
        self._derive_all([touched])

    def assumed_pods(self) -> frozenset[str]:
        """Uids of the pods that are counted as bound, while the watch does not show it."""
        return self._tables.assumptions.bound_uids()

    def assumed_node(self, pod_uid: str) -> str:
        """The node on which a pod is counted, while the watch does not show it; "" for none."""
        return self._tables.assumptions.node_of(pod_uid)

    def forget(self, pod_uid: str) -> None:
        """Withdraw an assumption: the pod is pending again, its claims are as the API has them."""
        self._derive_all([*self._tables.pod_tables.forget(pod_uid), (pod_uid,)])
        self._end_resuming(self._resumed_jobs.job_of(pod_uid), resumed=False)

    def expect_eviction(self, pod_uid: str) -> None:
        """Count a pod as terminating: its eviction is being written."""
        if pod_uid not in self._pods:
            return  # it is gone already, and nothing would end the expectation
        if job_uid := self._resumed_jobs.job_of(pod_uid):
            self._end_resuming(job_uid)
            return
        self._tables.assumptions.evict(pod_uid)
        self._place_pod(pod_uid)

    def cancel_eviction(self, pod_uid: str, refused_until: float = 0.0) -> None:
        """The pod stays, and if its eviction was refused, is no victim before ``refused_until``."""
        if self._tables.assumptions.cancel_eviction(pod_uid, refused_until):
            self._place_pod(pod_uid)

    def set_owner_kind(self, kind: GroupKind, *, readable: bool) -> None:
        """Note whether owners of a kind can be read; if not, their pods count as without them."""
        self._owner_kinds.set(kind, readable=readable)
        self._objects.set_readable(kind, readable=readable)
        self._derive_dependents((("kind", *kind),))

    def nominate(self, pod_uid: str, node: str, now: float) -> None:
        """Reserve ``node`` for a pod that was nominated."""
        self._tables.assumptions.nominate(pod_uid, node, now)

    def back_off(self, gang: str, until: float, reason: str = "") -> None:
        """Do not place a gang before ``until``: a decision about it could not be carried out."""
        self._tables.assumptions.back_off(gang, until, reason)

    def avoid_device(self, device: DeviceKey, reason: str, seconds: float) -> None:
        """Do not allocate a device that could not be made ready, for ``seconds``."""
        self._failed_devices.avoid(device, reason, seconds)

    def snapshot(self, now: float) -> Snapshot:
        """The cluster as known at ``now`` (seconds since the epoch)."""
        steps = self._steps(now)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self._outdated.open()
                pauses = self._failed_devices.next_end(), self._resumed_jobs.next_end()
                return self._tables.snapshot(now, end.value, min(pauses))

    def steps(self, now: float) -> Generator[None, None, None]:
        """The work of ``snapshot`` in steps of bounded length, in which each pod has one turn.

        Changes may be applied between two steps. Then ``snapshot`` costs what has changed.
        """
        self._outdated.open()
        yield from self._steps(now)
        self._outdated.close()

    def _steps(self, now: float) -> Generator[None, None, NodeUsageState]:
        tables = self._tables
        self._failed_devices.expire(now)
        for job_uid in self._resumed_jobs.expired(now):
            self._end_resuming(job_uid)
        tables.gangs.refresh(tables.refusals.update(now))
        tables.gangs.refresh(tables.uncounted_failures.update(now))
        objects = self._objects.devices()
        yield from self._devices.prepare(objects)
        if self._devices.sync(self._objects.devices()):
            for kind in COUNTED_KINDS:
                self._outdated.require(self._dependencies.dependents_of_kind(kind))
        tables.node_usage.set_published_memory(self._devices.published_gpu_memory())
        self._deleted_owners.drop_unused()
        self._owner_kinds.drop_unneeded(self._dependencies)
        self._outdated.require(tables.stuck_terminations.update(now))
        yield from self._derive_outdated()
        # This changes only charges, so that ``state`` is still right below.
        state = tables.node_usage.snapshot()
        self._outdated.require(tables.gpu_memory.update(state))
        yield from self._derive_outdated()
        if tables.queue_access.update():
            tables.gangs.check_access_again()
            self._outdated.require(tables.gang_members.moved())
            yield from self._derive_outdated()
        left = tables.gangs.update(now, STEP)
        while left > 0:
            yield
            left = min(left - STEP, tables.gangs.update(now, STEP))
        return state

    def _apply_node(self, old: object | None, new: object | None) -> None:
        node = new if new is not None else old
        if isinstance(node, Node):
            name, exists = node.metadata.name, new is not None
            boot_id = node.status.node_info.boot_id
            on_it = self._tables.node_pods.set_node(name, exists=exists, boot_id=boot_id)
            self._tables.gangs.charge_again(on_it)
            present = exists and self._settings.in_pool(node.metadata)
            self._tables.node_usage.set_node(name, node if present else None)

    def _apply_object(self, kind: str, old: object | None, new: object | None) -> None:
        """Take in an object that pods may be derived from."""
        old, new = self._of_pool(old), self._of_pool(new)
        if old is None and new is None:
            return
        touched = self._objects.apply(kind, old, new)
        if isinstance(old, ResourceSlice):
            self._failed_devices.withdraw(old, new if isinstance(new, ResourceSlice) else None)
        if not self._deleted_owners.keep(old, new):
            self._derive_dependents(touched)
        self._end_resuming(self._resumed_jobs.change(old, new))
        for uid, placeholder in self._suspended_jobs.change(old, new):
            if placeholder is not None or not self._resumed_jobs.job_of(uid):
                self._apply_pod(self._pods.get(uid), placeholder)
        if isinstance(new, ResourceClaim):
            self._derive_all([self._tables.claim_overlays.update(new)])

    def _end_resuming(self, job_uid: str, *, resumed: bool = True) -> None:
        """Let the pods of a Job that exist take the places of its placeholders; "": of no Job."""
        if not job_uid:
            return
        nodes, pods = self._resumed_jobs.end(job_uid)
        for placeholder in [self._pods[uid] for uid in nodes if resumed and uid in self._pods]:
            self._remove_pod(placeholder)
        for pod, node in zip(pods, nodes.values(), strict=False):
            self._tables.assumptions.nominate_from_next(pod.metadata.uid, node)
            self._apply_pod(None, pod)

    def _of_pool(self, record: object | None) -> object | None:
        """The object, unless its devices are another pool's."""
        if isinstance(record, ResourceSlice) and not self._settings.may_allocate(record):
            return None
        return record

    def _apply_pod(self, old: object | None, new: object | None) -> None:
        if isinstance(new, Pod) and new.metadata.uid not in self._pods:
            resumed = self._resumed_jobs.add(new)
            if resumed is not None:
                self._end_resuming(resumed)
                return
        if isinstance(new, Pod):
            for device in newly_unhealthy(old, new, self._objects.claim):
                self._failed_devices.avoid_unhealthy(device)
            uid = new.metadata.uid
            known, self._pods[uid] = self._pods.get(uid), new
            touched = self._tables.pod_tables.observe(new)
            same = known is not None and known.metadata == new.metadata
            if known and same and known.spec == new.spec and is_finished(new):
                self._finish_pod(new, self._tables.gangs.gang_of(uid))
            elif known and self._tables.parsed_pods.keep(known, new):
                self._place_pod(uid)
            else:
                self._derive(uid)
            self._derive_all(touched)
            if not same:
                self._derive_dependents((("uid", uid),))
        elif isinstance(old, Pod) and not self._resumed_jobs.discard(old.metadata.uid):
            self._remove_pod(old)

    def _remove_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._pods.pop(uid, None)
        tables = self._tables.pod_tables
        self._derive_all([*tables.forget(uid), *tables.release(uid), *tables.remove(pod)])

    def _finish_pod(self, pod: Pod, gang: GangSpec | None = None) -> None:
        """Release a pod that has ended or is not ours; its gang learns how it ended.

        ``gang``: its gang if that is known.
        """
        touched = self._tables.pod_tables.release(pod.metadata.uid)
        succeeded = pod.status.phase == SUCCEEDED
        if (succeeded or is_refused(pod)) and self._own.includes(pod):
            try:
                spec = gang or self._tables.parsed_pods.last_gang(pod)
                if succeeded:
                    self._tables.gangs.succeed(pod.metadata.uid, spec)
                    self._tables.completions.note(pod)
                else:
                    self._tables.refusals.note(pod, spec.key)
            except Exception as error:
                self._quarantine.report_record("pods", pod, DERIVING, error)
            else:
                self._quarantine.clear_record("pods", pod, DERIVING)
        else:
            self._dependencies.clear(pod.metadata.uid)
        self._derive_all(touched)

    def _derive_dependents(self, keys: Iterable[Key]) -> None:
        """Derive the pods that were derived from any of these objects; many of them later."""
        dependents = self._dependencies.dependents(keys)
        if len(dependents) > STEP:
            self._outdated.add(dependents)
        else:
            self._derive_all([dependents])

    def _derive_outdated(self) -> Generator[None, None, None]:
        """Derive the pods that were left for later."""
        while uids := self._outdated.take(STEP):
            self._derive_all([uids])
            yield

    def _derive_all(self, touched: Iterable[Uids]) -> None:
        """Derive pods again, each before the next is asked for: a lazy result may depend on it."""
        for uid in chain.from_iterable(touched):
            self._derive(uid)

    def _derive(self, uid: str) -> None:
        """Bring the tables in line with a pod and the objects that it names."""
        self._outdated.discard(uid)
        self._tables.parsed_pods.invalidate(uid)
        self._place_pod(uid)

    def _place_pod(self, uid: str) -> None:
        """Bring the tables in line with where a pod is."""
        pod = self._pods.get(uid)
        if pod is None:
            return
        placement = self._placement(pod)
        ours = self._own.includes(pod)
        pod = self._tables.admissions.as_admitted(pod, ours=ours)
        if is_finished(pod) or (not ours and not placement.node):
            self._finish_pod(pod)
            return
        try:
            touched = self._tables.pod_tables.place(self._derived(pod, placement, ours=ours))
        except Exception as error:
            invalid = self._quarantine.report_record("pods", pod, DERIVING, error)
            touched = self._place_invalid(pod, placement, invalid, ours=ours)
        else:
            self._quarantine.clear_record("pods", pod, DERIVING)
        self._derive_all(touched)

    def _place_invalid(
        self, pod: Pod, placement: PodPlacement, invalid: InvalidObject, *, ours: bool
    ) -> list[Uids]:
        """Count what can be read of a pod that is set aside, in every table that takes it."""
        parsed = self._tables.parsed_pods.parse_invalid(pod, invalid.message, ours=ours)
        usage = pod_usage(pod, parsed.demand, placement, (), ours=ours)
        derived = DerivedPod(pod.metadata.uid, parsed, placement, (), usage)
        touched: list[Uids] = []
        for table in self._tables.pod_tables.placing:
            try:
                touched.append(table.place(derived))
            except Exception as error:
                self._quarantine.report(invalid.object, type(table).__name__, error)
        return touched

    def _placement(self, pod: Pod) -> PodPlacement:
        placement = self._tables.assumptions.placement(pod)
        return self._tables.stuck_terminations.on(placement, pod.metadata.uid)

    def _derived(self, pod: Pod, placement: PodPlacement, *, ours: bool) -> DerivedPod:
        labels_matter = ours and self._tables.pod_rules.labels_matter(pod)
        parsed = self._tables.parsed_pods.parse(pod, ours=ours, labels_matter=labels_matter)
        gpus = shared_gpus_of(parsed.pod, parsed.demand, placement)
        usage = pod_usage(parsed.pod, parsed.demand, placement, gpus, ours=ours)
        return DerivedPod(pod.metadata.uid, parsed, placement, gpus, usage)
