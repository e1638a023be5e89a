"""The state of a cycle before its first action, from a snapshot, settings and memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.settings import CycleSettings
from kai_py.plan.extensions import Extensions, step_key
from kai_py.plan.placement.compute_domains import ComputeDomains
from kai_py.plan.placement.fit import ShapeFits
from kai_py.plan.placement.gang import Placer
from kai_py.plan.placement.pods import ShapePlacer
from kai_py.plan.placement.scoring import scoring_of
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.spot_choices import NO_SPOT, CycleSpot
from kai_py.plan.session.startups import ReadyRule, with_avoided_nodes
from kai_py.plan.session.turns import CycleWatch, Turns
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.eviction_limits import EvictionLimits
from kai_py.plan.state.queues import NOTHING, Quota, due_amounts, quota_of
from kai_py.plan.state.reservations import Reservations
from kai_py.plan.state.statement import Statement
from kai_py.policy.ageing import QueueAgeing
from kai_py.policy.fairness_rules import CountedDemand
from kai_py.policy.lost_work import NO_LOSS_RULES
from kai_py.policy.runtime_history import ExpectedEnds
from kai_py.policy.spares import Spares, spare_rows
from kai_py.snapshot.snapshot import Snapshot


def open_cycle(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    watch: CycleWatch,
    ready_times: Mapping[str, ReadyRule],
) -> CycleState:
    """The state of the cycle, once it is known what running gangs did since the last one."""
    observed = _observe(snapshot, settings, memory, ready_times)
    state = open_session(observed.snapshot, settings, memory, watch)
    state.spot = observed.spot
    for name, error in observed.failed.items():
        state.turns.fail_turn(step_key(name), error)
    return state


@dataclass
class _Observed:
    """The snapshot as the cycle plans with it. ``failed``: what of it could not be found out."""

    snapshot: Snapshot
    spot: CycleSpot = NO_SPOT
    failed: dict[str, Exception] = field(default_factory=dict)


def _observe(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    ready_times: Mapping[str, ReadyRule],
) -> _Observed:
    """Take in what the snapshot says of gangs that run, and apply what their starts have taught."""
    found = _Observed(snapshot)

    def choose_spot() -> None:
        found.snapshot, found.spot = memory.spot.applied(found.snapshot, settings.spot)

    def observe_starts() -> None:
        memory.startups.observe(found.snapshot, ready_times)
        found.snapshot = with_avoided_nodes(found.snapshot, memory.startups)

    def observe_ends() -> None:
        memory.runtimes.observe(found.snapshot.gangs, snapshot.completed, snapshot.now)

    for name, run in (
        ("spot nodes", choose_spot),
        ("starts", observe_starts),
        ("ends", observe_ends),
    ):
        try:
            run()
        except Exception as error:
            found.failed[name] = error
    return found


def open_session(
    snapshot: Snapshot, settings: CycleSettings, memory: CycleMemory, watch: CycleWatch
) -> CycleState:
    """The state of the cycle before its first action."""
    memory.start_cycle(snapshot, settings)
    memory.devices.sync(snapshot.devices)
    memory.devices.spending.poll = watch.poll
    quota = _quota(snapshot, settings, memory)
    devices = CycleDevices(memory.devices, snapshot)
    statement = Statement(snapshot, quota, devices, settings.sharing_strategy)
    ageing = QueueAgeing.for_queues(snapshot.queues, settings.ageing, snapshot.now)
    ends = ExpectedEnds(memory.runtimes, snapshot.now)
    extensions = memory.extensions_at(snapshot.now)
    placer = Placer(
        _shape_placer(snapshot, settings, memory, extensions),
        Reservations(ageing, ends, spares=_spares(snapshot, quota, memory)),
        watch.poll,
        compute_domains=ComputeDomains.of(snapshot, memory.devices),
    )
    return CycleState(
        snapshot,
        quota,
        statement,
        placer,
        Turns(
            statement,
            watch,
            memory.set_aside_at(snapshot),
            memory.devices.spending,
            extensions=extensions,
        ),
        probes=settings.victim_probes,
        probes_per_gang=settings.victim_probes_per_gang,
        max_relocated_pods=settings.max_relocated_pods,
        staleness_grace=settings.staleness_grace,
        accounting=memory.devices.accounting,
        eviction_limits=EvictionLimits(
            snapshot,
            memory.evictions,
            settings.cooldown,
            settling=settings.loss_rules.settling,
            per_day=settings.loss_rules.evictions_per_day,
            runtimes=memory.runtimes,
        ),
        loss_rules=settings.loss_rules,
        departures=settings.departures,
        served=memory.served,
        due=memory.due,
        expected_ends=ends,
        ageing=ageing,
        out_of_budget=memory.out_of_budget,
        cut_short=memory.cut_short,
        reservation_seconds=settings.reservation_seconds,
        search_cache=memory.search_cache,
        backoff=memory.backoff,
    )


def _quota(snapshot: Snapshot, settings: CycleSettings, memory: CycleMemory) -> Quota:
    """Queues and fair shares; what queues were served is carried forward to now."""
    quota = quota_of(
        snapshot,
        settings.rules,
        memory.devices.accounting,
        memory.devices.node_gpus(snapshot.nodes),
        memory.history,
        cache=memory.fair_shares,
        infeasible=memory.infeasible.of(snapshot, memory.devices)
        if settings.rules.counted_demand is CountedDemand.FEASIBLE
        else NOTHING,
    )
    if settings.loss_rules != NO_LOSS_RULES:
        due = due_amounts(memory.pending.sizes, quota)
        memory.served.advance(quota.resources, quota.usage, snapshot.now, due)
    return quota


def _spares(snapshot: Snapshot, quota: Quota, memory: CycleMemory) -> Spares:
    spares = Spares(spare_rows(snapshot.queues, snapshot.nodes), quota.queues, memory.started)
    if spares.exist:
        memory.started.observe(snapshot.gangs.values(), snapshot.now)
    return spares


def _shape_placer(
    snapshot: Snapshot, settings: CycleSettings, memory: CycleMemory, extensions: Extensions
) -> ShapePlacer:
    scoring = scoring_of(
        snapshot,
        memory.pending.shapes,
        settings.scores,
        settings.default_scores,
        static_fits=memory.static_fits,
        stranding=memory.stranding,
        extensions=extensions,
    )
    fits = ShapeFits(memory.static_fits)
    return ShapePlacer(fits, settings.gpu_strategy, settings.cpu_strategy, scoring)
