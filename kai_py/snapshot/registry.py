"""All tables of the snapshot: the one place where a table is created, listed and read out.

A feature is added by a table in ``tables``, an entry in ``pod_tables`` or ``object_tables`` (or
both), and its field in ``snapshot``. The order of the entries is of no importance.
"""

from collections.abc import Callable

from kai_py.api.records.core import Pod
from kai_py.snapshot.charges import PodCharges
from kai_py.snapshot.dependencies import Dependencies, ReadableKinds, RecordingOwners
from kai_py.snapshot.gang_members import GangMembers, IgnoredMarkerTable, NodePods
from kai_py.snapshot.gang_table import GangTable
from kai_py.snapshot.object_cache import ObjectCache
from kai_py.snapshot.own_pods import OwnPods
from kai_py.snapshot.parsed_pods import Identify, ParsedPods
from kai_py.snapshot.pod_claims import POD_GROUPS
from kai_py.snapshot.quarantine import Quarantine
from kai_py.snapshot.settings import DeviceRegistry, SnapshotSettings
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.admissions import Admissions
from kai_py.snapshot.tables.assumptions import Assumptions, ClaimOverlays, StuckTerminations
from kai_py.snapshot.tables.budgets import DisruptionBudgets
from kai_py.snapshot.tables.ended_pods import ClaimsOfLeavingPods, Completions, ReleasableClaims
from kai_py.snapshot.tables.gpu_nodes import GpuMemory
from kai_py.snapshot.tables.group_schedulers import GroupSchedulers
from kai_py.snapshot.tables.known_names import KnownNames, MisnamedSchedulers
from kai_py.snapshot.tables.node_usage import NodeUsageState, NodeUsageTable
from kai_py.snapshot.tables.numa import NumaReports
from kai_py.snapshot.tables.pod_rules import PodRuleTable
from kai_py.snapshot.tables.pod_table import ObjectTables, PodTables
from kai_py.snapshot.tables.queue_access import QueueAccess
from kai_py.snapshot.tables.queues import QueueInfo, QueueInfos
from kai_py.snapshot.tables.readiness import StartingPods, UnhealthyPods
from kai_py.snapshot.tables.refusals import Refusals
from kai_py.snapshot.tables.uncounted_failures import UncountedFailures
from kai_py.snapshot.tables.volumes import (
    AttachLimits,
    AvailableVolumes,
    StorageCapacities,
    VolumeAttachments,
)
from kai_py.snapshot.topology import Topologies


class SnapshotTables:
    """The tables by name, and as the lists through which changes go to them."""

    def __init__(
        self,
        identify: Identify,
        devices: DeviceRegistry,
        queue_info: Callable[[object], QueueInfo],
        settings: SnapshotSettings,
        *,
        own: OwnPods,
        pods: dict[str, Pod],
        objects: ObjectCache,
        dependencies: Dependencies,
        owner_kinds: ReadableKinds,
        quarantine: Quarantine,
    ) -> None:
        """``pods`` (by uid), ``objects`` and ``dependencies`` stay up to date by the builder."""
        self._pods, self._objects, self._quarantine = pods, objects, quarantine
        self._create_independent(settings)
        default, is_open = settings.default_queue, settings.open_queues
        self._queues = QueueInfos(queue_info, default, devices.set_limits, open_queues=is_open)
        self.queue_access = QueueAccess(self._queues.specs, objects.namespace_labels)
        self.gangs = GangTable(
            settings.preemptible_below,
            self.admissions,
            self.queue_access.accepts,
            self.node_pods.exists,
            quarantine,
            refusals=self.refusals.of,
            uncounted_failures=self.uncounted_failures.of_jobs,
        )
        self.claim_overlays = ClaimOverlays(objects, dependencies)
        schedulers = GroupSchedulers(dependencies)
        self.parsed_pods = ParsedPods(
            identify,
            devices,
            self.gpu_memory,
            dependencies,
            lambda: RecordingOwners(objects, pods, owner_kinds, schedulers.of),
            gives_shared_gpus=settings.gives_shared_gpus,
        )
        self.releasable_claims = ReleasableClaims(
            schedulers,
            settings.scheduler_names,
            lambda namespace, name: objects.get(POD_GROUPS, namespace, name) is not None,
        )
        charges = PodCharges(devices, pods, dependencies, self.gpu_memory, self._is_unplaced)
        self.gang_members = GangMembers(
            self.gangs,
            charges,
            devices,
            settings.shared_claim_queue_label,
            admissions=self.admissions,
            queue_exists=self.queue_access.exists,
        )
        self._budgets = DisruptionBudgets(own.includes)
        self._starting = StartingPods(own.includes)
        self.object_tables = self._object_tables()
        self.pod_tables = self._pod_tables(schedulers)

    def snapshot(self, now: float, state: NodeUsageState, next_device: float) -> Snapshot:
        """The snapshots of all tables at ``now``; ``state``: of ``node_usage``.

        ``next_device``: when the next device that failed may be allocated again.
        """
        gangs, changes = self.gangs, self.gangs.snapshot()
        return Snapshot(
            now=now,
            resources=state.resources,
            nodes=state.nodes,
            used=state.used,
            releasing=state.releasing,
            host_ports=state.host_ports,
            disks=state.disks,
            attached=state.attached,
            attach_limits=self._attach_limits.by_node(),
            attachments=self._attachments.by_node(),
            exclusive_claims=state.exclusive_claims,
            available_volumes=self._available_volumes.snapshot(),
            storage_capacities=self._storage_capacities.snapshot(),
            gangs=changes.now,
            gang_changes=changes,
            pending=gangs.pending(),
            queues=self._queues.specs(),
            queue_allocated=gangs.allocated.snapshot(),
            queue_requested=gangs.requested.snapshot(),
            queue_non_preemptible=gangs.non_preemptible.snapshot(),
            queue_leaving=gangs.leaving.snapshot(),
            below_min_members=gangs.below_min_members(),
            started_in_part=gangs.started_in_part(),
            choosing_spot=gangs.choosing_spot(),
            sharing=gangs.sharing(),
            disrupted=gangs.disrupted(),
            completed=self.completions.snapshot(now),
            deleted_nodes=self.node_pods.deleted_nodes(),
            rebooted=self.node_pods.rebooted(),
            refused=self.refusals.gangs(),
            devices=self._objects.devices(),
            next_device=next_device,
            next_overdue=self.stuck_terminations.next_change(),
            unhealthy=self._unhealthy.snapshot(),
            starting=self._starting.snapshot(),
            nominations=self.assumptions.nominations(now),
            in_backoff=self.assumptions.in_backoff(now),
            refused_evictions=self.assumptions.refused_evictions(now),
            gpu_sharing=state.gpu_sharing,
            pod_rules=self.pod_rules.snapshot(),
            namespaces=self._objects.namespace_labels(),
            topologies=self._topologies.levels(),
            known_names=self._known_names.snapshot(),
            terminating=tuple(gangs.terminating.values()),
            ignored_markers=self._ignored_markers.snapshot(gangs.ignored_queues()),
            releasable_claims=self.releasable_claims.snapshot() + self._leaving.snapshot(),
            group_claim_users=self.releasable_claims.group_claim_users(gangs.gangs.values()),
            budgets=self._budgets.snapshot(),
            numa=self._numa.snapshot(),
            invalid_objects=self._quarantine.snapshot(),
            misnamed_schedulers=self._misnamed.snapshot(),
        )

    def _create_independent(self, settings: SnapshotSettings) -> None:
        """Create the tables that need no other table."""
        self.node_usage = NodeUsageTable(settings.departure_signals)
        self.refusals = Refusals()
        self.uncounted_failures = UncountedFailures()
        self.completions = Completions()
        self.assumptions = Assumptions(settings.nomination_seconds)
        self.stuck_terminations = StuckTerminations(settings.max_grace_seconds)
        self._misnamed = MisnamedSchedulers((settings.scheduler_name, *settings.scheduler_aliases))
        self.gpu_memory = GpuMemory()
        self.pod_rules = PodRuleTable()
        self._topologies = Topologies()
        self._known_names = KnownNames()
        self._numa = NumaReports()
        self._ignored_markers = IgnoredMarkerTable()
        self._unhealthy = UnhealthyPods()
        self._leaving = ClaimsOfLeavingPods()
        self._attach_limits = AttachLimits()
        self._attachments = VolumeAttachments()
        self._available_volumes = AvailableVolumes()
        self._storage_capacities = StorageCapacities()
        self.node_pods = NodePods()
        self.admissions = Admissions()

    def _object_tables(self) -> ObjectTables:
        """The tables to which changes of other objects than pods go."""
        return ObjectTables(
            self.releasable_claims,
            self.uncounted_failures,
            self._queues,
            self.queue_access,
            self._topologies,
            self._known_names,
            self._budgets,
            self._numa,
            self._attach_limits,
            self._attachments,
            self._available_volumes,
            self._storage_capacities,
        )

    def _pod_tables(self, schedulers: GroupSchedulers) -> PodTables:
        """The tables to which changes of pods go."""
        return PodTables(
            self.assumptions,
            self.stuck_terminations,
            schedulers,
            self._budgets,
            self.parsed_pods,
            self.claim_overlays,
            self._available_volumes,
            self.pod_rules,
            self._ignored_markers,
            self._known_names,
            self._misnamed,
            self._unhealthy,
            self._leaving,
            self._starting,
            self.refusals,
            self.uncounted_failures,
            self.gpu_memory,
            self._numa,
            self.node_usage,
            self.node_pods,
            self.admissions,
            self.gang_members,
        )

    def _is_unplaced(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is None or not self.assumptions.placement(pod).node
