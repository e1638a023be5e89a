"""From watched changes to plans: the pure part of the scheduler, set up by the configuration.

The scheduler, ``kai-py queues``, ``kai-py gangs`` and dry runs all plan through this. ``apply``,
``assume``, ``forget``, ``prepare`` and ``freeze`` belong to one thread; ``decide`` may run in
another while the first goes on applying changes, but not while it prepares or freezes.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from msgspec import Raw, structs
from msgspec.structs import replace

from kai_py.api.choices import NO_SCORE, BuiltInScore, FillStrategy, Profile
from kai_py.api.extensions import ExtensionError, ExtensionGroup, load_extension
from kai_py.api.node_departures import DepartureRules, DepartureSignals, DepartureTreatment
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.kai import KaiQueue
from kai_py.api.records.unstructured import Unstructured, unstructured_decoder
from kai_py.config import BudgetsConfig, Configuration, ConfigurationError
from kai_py.dialects.grouping import KaiGrouping
from kai_py.dialects.kai.priority import KindDefaults
from kai_py.dialects.kai.queues import kai_queue_info
from kai_py.dialects.kai.workloads import KaiQueueNaming
from kai_py.dra.class_info import GpuDefinition
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.features import AllocationStrategy
from kai_py.dra.inventory import Inventory
from kai_py.dra.rows import ParsedSlice
from kai_py.dra.spending import SelectorAllowance, Spending, StepAllowance
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owner_chain import GroupKind, OwnerObject
from kai_py.grouping.rule_table import RuleTable, shipped_rules
from kai_py.grouping.workload_gang import gang_of_workload
from kai_py.plan.actions.registry import ACTIONS, register_action, registered_actions
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.opening import OptionalParts, counted_quota
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Action, Plan
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.spot_choices import SpotRules
from kai_py.plan.session.startups import GANGS_NOT_READY, StartupRecord
from kai_py.plan.session.turns import CycleWatch
from kai_py.plan.state.cluster_totals import gpus_of_nodes
from kai_py.plan.state.queues import PastUsage, Quota
from kai_py.policy.ageing import Ageing
from kai_py.policy.fairness_rules import PROFILES
from kai_py.policy.lost_work import NO_LOSS_RULES, LossRules
from kai_py.policy.runtime_history import ExpectedEnds
from kai_py.policy.score.registry import WeightedScore, register_score, registered_scores
from kai_py.policy.usage_history import ExternalUsage, UsageByQueue, UsageHistory
from kai_py.snapshot.builder import SnapshotBuilder
from kai_py.snapshot.quarantine import OnFailure, Quarantine, ignore_failure
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.settings import SnapshotSettings
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_objects import queue_info
from kai_py.snapshot.tables.queues import QueueInfo
from kai_py.watch.kinds import KIND_BY_COLLECTION, WatchedQueue

KAI_DEFAULT_QUEUE = "default-queue"
"""Where KAI puts workloads that name no queue."""
KUEUE_QUEUE = "kueue"
"""The queue of workloads that name none where Kueue owns the quota."""


class Planner:
    """A snapshot builder and everything a cycle needs beside it."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        on_owner_kind: Callable[[GroupKind], None] | None = None,
        on_unneeded_kind: Callable[[GroupKind], None] = lambda _: None,
        on_failure: OnFailure = ignore_failure,
        gives_shared_gpus: bool = False,
    ) -> None:
        """``on_owner_kind`` is called once with every kind that owns pods of ours.

        ``on_unneeded_kind``: with one that cannot be read, when it owns none any more.
        ``on_failure``: with each object that is set aside, and the exception.
        ``gives_shared_gpus``: as in ``SnapshotSettings``; not for plans that are not carried out,
        where pods may be those of another scheduler or of a file.
        """
        self._quarantine = Quarantine(on_failure, KIND_BY_COLLECTION)
        devices = configuration.devices
        strategy = AllocationStrategy.FIRST_FIT if devices.parity else AllocationStrategy.BEST_FIT
        self._devices = ClusterDevices(
            GpuDefinition(
                devices.gpu_drivers,
                devices.gpu_classes,
                mig_slices_per_gpu=PROFILES[configuration.rules].mig_slices_per_gpu,
            ),
            Inventory(strategy=strategy),
            allocator_steps=configuration.budgets.allocator_steps,
            spending=_spending(configuration.budgets),
            quarantine=self._quarantine,
        )
        self._rules = RuleTable(configuration.grouping, shipped_rules())
        self._grouping = KaiGrouping(
            self._rules,
            addressing(configuration),
            kueue_assigns_nodes=configuration.kueue.coexistence,
            tiers=configuration.volcano.tiers,
        )
        self._settings = cycle_settings(configuration)
        self._memory = CycleMemory(self._devices, _past_usage(configuration))
        self.builder = SnapshotBuilder(
            self._grouping.identify,
            self._devices,
            spec_of_queue,
            SnapshotSettings(
                scheduler_name=configuration.scheduler_name,
                scheduler_aliases=configuration.scheduler_aliases,
                nomination_seconds=configuration.eviction.hold_expiry,
                max_grace_seconds=configuration.eviction.max_grace_period,
                pool_label=configuration.node_pool.label,
                pool=configuration.node_pool.name,
                shared_claim_queue_label=_claim_label(configuration),
                default_queue=_kueue_queue(configuration),
                open_queues=configuration.open_queues is not False,
                departure_signals=DepartureSignals.of(configuration.node_departures.table),
                gives_shared_gpus=gives_shared_gpus,
            ),
            watch_kind=on_owner_kind,
            on_unneeded_kind=on_unneeded_kind,
            quarantine=self._quarantine,
        )

    def gang_of_workload(
        self, api_version: str, kind: str, workload: OwnerObject, template: ObjectMeta
    ) -> GangSpec | None:
        """The gang of a workload without pods; see ``workload_gang``."""
        return gang_of_workload(api_version, kind, workload, self._grouping.identify, template)

    def is_grouped(self, kind: GroupKind) -> bool:
        """Whether a rule says how pods below owners of a kind are grouped."""
        return kind in self._rules.kinds()

    def owner_decoder(self, kind: GroupKind) -> Callable[[bytes | Raw], Unstructured] | None:
        """A decoder of the fields that rules for a kind of owners name; None: metadata only."""
        paths = self._rules.paths(kind)
        return unstructured_decoder(paths) if paths else None

    def record_usage(self, amounts: UsageByQueue, measured_at: float) -> None:
        """Past usage of queues, as it was ``measured_at`` a time, where that is configured."""
        if isinstance(self._memory.history, ExternalUsage):
            self._memory.history.record(amounts, measured_at)

    def prepare(self, now: float) -> Iterator[None]:
        """Do most of the work of the next ``freeze`` in steps; changes may be applied between."""
        yield from self.builder.steps(now)

    def freeze(self, now: float) -> Snapshot:
        """The cluster as known; ``now`` in seconds since the epoch."""
        return self.builder.snapshot(now)

    def decide(
        self,
        snapshot: Snapshot,
        actions: tuple[Action, ...] | None = None,
        watch: CycleWatch | None = None,
    ) -> Plan:
        """Run one cycle; ``actions`` in place of those configured."""
        settings = (
            self._settings if actions is None else structs.replace(self._settings, actions=actions)
        )
        plan = run_cycle(snapshot, settings, self._memory, watch)
        if any(each.error for each in (*plan.set_aside, *plan.failed_extensions)):
            # The failure may come from what is remembered.
            self.reset()
        return plan

    def quota(self, snapshot: Snapshot) -> Quota:
        """The queues of the snapshot that was decided last, as its cycle found them."""
        parts = OptionalParts(may_fail=True)
        return counted_quota(snapshot, self._settings, self._memory, parts)

    def published_slices(self) -> Collection[ParsedSlice]:
        """The ResourceSlices of the last snapshot, parsed."""
        return self._devices.inventory.slices().values()

    def expected_ends(self, now: float) -> ExpectedEnds:
        """When pods are expected to end, by what they declare and by what ended earlier."""
        return ExpectedEnds(self._memory.runtimes, now)

    def next_deadline(self, snapshot: Snapshot) -> float | None:
        """When a plan could differ though nothing changes, seconds since the epoch."""
        return next_deadline(snapshot, self._settings, self._memory)

    def node_gpus(self, snapshot: Snapshot) -> Floats:
        """(nodes,) GPUs of each node of the snapshot that was decided last."""
        published = self._devices.node_gpus(snapshot.nodes)
        return gpus_of_nodes(snapshot, self._devices.accounting, published)

    def kept_startups(self) -> StartupRecord:
        """The gangs that do not get ready, for a later leader; not while a plan is made."""
        return self._memory.startups.kept()

    def recall_startups(self, record: StartupRecord, now: float) -> None:
        """Take over what an earlier leader knew of them; before the first plan."""
        self._memory.startups.recall(record)
        for device, seconds in self._memory.startups.devices_to_avoid(now):
            self.builder.avoid_device(device, GANGS_NOT_READY, seconds)

    def reset(self) -> None:
        """Drop what earlier cycles remembered, after one that failed half-way."""
        self._memory.forget_results()


def _spending(budgets: BudgetsConfig) -> Spending:
    return Spending(
        StepAllowance(budgets.allocator_steps_per_gang, budgets.allocator_steps_per_cycle),
        SelectorAllowance(budgets.selector_cost_per_claims, budgets.selector_cost_per_cycle),
    )


def _claim_label(configuration: Configuration) -> str:
    """KAI's users label claims that they share; others need not."""
    return configuration.kai.queue_label if configuration.rules is Profile.KAI else ""


def _past_usage(configuration: Configuration) -> PastUsage | None:
    chosen = configuration.fair_share
    if chosen.prometheus is not None:
        return ExternalUsage(chosen.prometheus.stale_after)
    return UsageHistory(chosen.half_life) if chosen.half_life else None


def cycle_settings(configuration: Configuration) -> CycleSettings:
    """What of the configuration a cycle follows."""
    profile = PROFILES[configuration.rules]
    return CycleSettings(
        rules=replace(
            profile,
            usage_weight=configuration.fair_share.usage_weight,
            default_preempt_min_runtime=configuration.eviction.preempt_min_runtime,
            default_reclaim_min_runtime=configuration.eviction.reclaim_min_runtime,
            min_runtime_method=configuration.eviction.reclaim_resolve_method,
            relocates_ownerless=(
                profile.relocates_ownerless or configuration.eviction.consolidate_ownerless
            ),
        ),
        gpu_strategy=configuration.placement.gpu,
        cpu_strategy=configuration.placement.cpu,
        sharing_strategy=configuration.placement.shared_gpus or configuration.placement.gpu,
        scores=_scores(configuration),
        default_scores=_default_scores(configuration),
        victim_probes=configuration.budgets.victims,
        victim_probes_per_gang=configuration.budgets.victims_per_gang,
        max_relocated_pods=configuration.eviction.consolidate_at_most,
        staleness_grace=configuration.eviction.staleness_grace,
        departures=_departure_rules(configuration),
        spot=SpotRules(
            tuple(sorted(configuration.spot.labels.items())), configuration.spot.price_ratio
        ),
        ageing=Ageing(configuration.order.ageing or 0.0, configuration.order.ageing_limit),
        reservation_seconds=configuration.eviction.hold_expiry,
        cooldown=configuration.eviction.cooldown,
        loss_rules=_loss_rules(configuration),
        suspend_jobs=configuration.eviction.suspend_jobs,
        actions=_actions(configuration),
        extra_actions=_extra_actions(configuration),
    )


def _departure_rules(configuration: Configuration) -> DepartureRules:
    """KAI moves no gang off a node that is about to go, unless its workload asks for it."""
    chosen = configuration.node_departures
    native = configuration.rules is Profile.NATIVE
    treatment = chosen.treatment if native else DepartureTreatment.GO_DOWN
    return DepartureRules(
        treatment, chosen.checkpoint_grace, restart_whole=native and chosen.restart_whole
    )


def _loss_rules(configuration: Configuration) -> LossRules:
    """KAI does not weigh what evictions destroy."""
    chosen = configuration.eviction
    if configuration.rules is not Profile.NATIVE:
        return NO_LOSS_RULES
    return LossRules(
        patience=chosen.patience,
        settling=chosen.settling_time,
        evictions_per_day=chosen.evictions_per_day,
        restart_cost=chosen.restart_cost,
        reserve_after=configuration.order.reserve_after,
        by_loss=True,
    )


def _scores(configuration: Configuration) -> tuple[WeightedScore, ...]:
    """The configured scores, loaded where an installed package has them."""
    placement = configuration.placement
    scores = tuple(WeightedScore(each.name, each.weight) for each in placement.scores)
    if placement.strategy is not None and placement.strategy != NO_SCORE:
        scores = (WeightedScore(placement.strategy),)
    for each in scores:
        if each.name not in registered_scores():
            register_score(each.name, _load(ExtensionGroup.SCORES, each.name))
    return scores


def _extra_actions(configuration: Configuration) -> tuple[str, ...]:
    """The configured actions of installed packages, loaded."""
    for name in configuration.extra_actions:
        if name not in registered_actions():
            register_action(name, _load(ExtensionGroup.ACTIONS, name))
    return configuration.extra_actions


def _load(group: ExtensionGroup, name: str) -> Any:
    try:
        return load_extension(group, name)
    except ExtensionError as error:
        raise ConfigurationError(str(error)) from error


def _default_scores(configuration: Configuration) -> tuple[WeightedScore, ...]:
    """Ours, unless scores are configured; spreading and KAI's rules use none."""
    placement = configuration.placement
    asked = (placement.gpu, placement.cpu, placement.shared_gpus or placement.gpu)
    packs = all(each is FillStrategy.BINPACK for each in asked)
    named = placement.strategy is not None or bool(placement.scores)
    ours = configuration.rules is Profile.NATIVE and not named
    return (WeightedScore(BuiltInScore.FRUGAL),) if packs and ours else ()


def _actions(configuration: Configuration) -> tuple[Action, ...]:
    off = {
        Action.CONSOLIDATE: not configuration.eviction.consolidate,
        Action.RECLAIM: not configuration.eviction.reclaim or configuration.kueue.coexistence,
        Action.PREEMPT: not configuration.eviction.preempt,
    }
    return tuple(action for action in ACTIONS if not off.get(action, False))


def addressing(configuration: Configuration) -> KaiQueueNaming:
    """In whose words workloads address queues."""
    speaks_kai = configuration.rules is Profile.KAI
    return KaiQueueNaming(
        queue_label=configuration.kai.queue_label,
        all_workloads=speaks_kai,
        default_queue=_default_queue(configuration),
        kind_defaults=tuple(
            KindDefaults(each.kind, each.group, each.priority_class, each.preemptibility or "")
            for each in configuration.kai.kind_defaults
        ),
    )


def _default_queue(configuration: Configuration) -> str:
    if configuration.default_queue:
        return configuration.default_queue
    if configuration.kueue.coexistence:
        return KUEUE_QUEUE
    return KAI_DEFAULT_QUEUE if configuration.rules is Profile.KAI else ""


def _kueue_queue(configuration: Configuration) -> QueueInfo | None:
    """The queue of all workloads whose quota Kueue owns."""
    if not configuration.kueue.coexistence:
        return None
    return QueueInfo(name=_default_queue(configuration), unlimited=True)


def spec_of_queue(watched: object) -> QueueInfo:
    """The spec of a watched Queue, ours or KAI's."""
    if isinstance(watched, KaiQueue):
        return kai_queue_info(watched)
    if not isinstance(watched, WatchedQueue):
        raise TypeError(f"{type(watched).__name__} is not a watched Queue")
    created = watched.metadata.creation_timestamp
    return queue_info(watched.queue, created.timestamp() if created else 0.0)
