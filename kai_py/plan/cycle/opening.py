"""The state of a cycle before its first action, from a snapshot, settings and memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kai_py.plan.cycle.left_out import (
    LeftOut,
    find_failing,
    set_aside_reason,
    with_descendants,
    without,
)
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.pending_gangs import due_amounts
from kai_py.plan.extensions import Extensions, step_key
from kai_py.plan.placement.compute_domains import ComputeDomains
from kai_py.plan.placement.fit import ShapeFits
from kai_py.plan.placement.gang import Placer
from kai_py.plan.placement.pods import ShapePlacer
from kai_py.plan.placement.scoring import scoring_of
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.search_budgets import SearchBudgets
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.spot_choices import NO_SPOT, CycleSpot
from kai_py.plan.session.startups import ReadyRule, ready_rules, with_avoided_nodes
from kai_py.plan.session.turns import CycleOverLimitError, CycleWatch, Turns
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.eviction_limits import EvictionLimits
from kai_py.plan.state.queues import NOTHING, Quota, quota_of
from kai_py.plan.state.reservations import Reservations
from kai_py.plan.state.statement import Statement
from kai_py.policy.ageing import QueueAgeing
from kai_py.policy.fairness_rules import CountedDemand
from kai_py.policy.lost_work import NO_LOSS_RULES
from kai_py.policy.runtime_history import ExpectedEnds
from kai_py.policy.spares import Spares, spare_rows
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import QueueInfo


def open_cycle(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    watch: CycleWatch,
) -> CycleState:
    """The state of the cycle, once it is known what running gangs did since the last one.

    Its snapshot lacks the gangs and queues with which the cycle can't be opened (``left_out``).
    """
    known = memory.left_out_at(snapshot)
    observed = _observe(without(snapshot, known), snapshot.queues, settings, memory)
    try:
        state, found = open_session(observed.snapshot, settings, memory, watch), LeftOut()
    except CycleOverLimitError:
        raise
    except Exception as error:
        state, found = _open_without_failing(observed.snapshot, settings, memory, watch, error)
    state.spot, state.ready_rules = observed.spot, observed.ready_rules
    _fail_steps(state, observed.parts)
    memory.leave_out(state, found)
    queues = with_descendants(snapshot.queues, known.queues | found.queues)
    for gang in memory.pending.all if queues else ():
        if gang.queue in queues:
            state.refuse(gang, set_aside_reason(gang.queue))
    return state


def _open_without_failing(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    watch: CycleWatch,
    error: Exception,
) -> tuple[CycleState, LeftOut]:
    """The state without what makes opening the cycle fail with ``error``, and what that is."""

    def attempt(tried: Snapshot) -> Exception | None:
        try:
            open_session(tried, settings, memory, watch)
        except CycleOverLimitError:
            raise
        except Exception as raised:
            return raised
        return None

    memory.forget_results()
    found = LeftOut() if attempt(snapshot) is None else find_failing(snapshot, attempt)
    memory.forget_results()
    parts = OptionalParts(may_fail=found is None)
    found = found or LeftOut()
    state = open_session(without(snapshot, found), settings, memory, watch, parts)
    _fail_steps(state, parts)
    if found.error is None:
        state.turns.fail_turn(step_key("opening"), error)
    return state, found


@dataclass
class OptionalParts:
    """Parts that a cycle can do without; ``failed``: errors by the name of the part.

    Unless they ``may_fail``, an error in one is an error in opening the cycle.
    """

    may_fail: bool = False
    failed: dict[str, Exception] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A block that finds a part, in place of the default that stays where it fails."""
        try:
            yield
        except Exception as error:
            if not self.may_fail or isinstance(error, CycleOverLimitError):
                raise
            self.failed[name] = error


def _fail_steps(state: CycleState, parts: OptionalParts) -> None:
    for name, error in parts.failed.items():
        state.turns.fail_turn(step_key(name), error)


@dataclass
class _Observed:
    """The snapshot as the cycle plans with it: spot nodes chosen, nodes to avoid marked."""

    snapshot: Snapshot
    spot: CycleSpot = NO_SPOT
    ready_rules: Mapping[str, ReadyRule] = field(default_factory=dict)
    parts: OptionalParts = field(default_factory=lambda: OptionalParts(may_fail=True))


def _observe(
    snapshot: Snapshot,
    queues: Sequence[QueueInfo],
    settings: CycleSettings,
    memory: CycleMemory,
) -> _Observed:
    """Record how gangs started and ended, and apply what follows from earlier starts.

    ``queues``: all of them, also those that are left out.
    """
    found = _Observed(snapshot)
    with found.parts.part("spot nodes"):
        found.snapshot, found.spot = memory.spot.applied(snapshot, settings.spot)
    with found.parts.part("ready rules"):
        found.ready_rules = ready_rules(queues)
    with found.parts.part("starts"):
        memory.startups.observe(found.snapshot, found.ready_rules)
        found.snapshot = with_avoided_nodes(found.snapshot, memory.startups)
    with found.parts.part("ends"):
        gangs, changes = found.snapshot.gangs, found.snapshot.gang_changes
        memory.runtimes.observe(gangs, snapshot.completed, snapshot.now, changes)
    return found


def open_session(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    watch: CycleWatch,
    parts: OptionalParts | None = None,
) -> CycleState:
    """The state of the cycle before its first action; ``parts``: those it can do without."""
    parts = parts or OptionalParts()
    memory.start_cycle(snapshot, settings)
    memory.devices.sync(snapshot.devices)
    memory.devices.spending.poll = watch.poll
    quota = _quota(snapshot, settings, memory, parts)
    devices = CycleDevices(memory.devices, snapshot)
    statement = Statement(snapshot, quota, devices, settings.sharing_strategy)
    ageing, spares = QueueAgeing(), Spares()
    with parts.part("ageing"):
        ageing = QueueAgeing.for_queues(snapshot.queues, settings.ageing, snapshot.now)
    with parts.part("spares"):
        spares = _spares(snapshot, quota, memory)
    ends = ExpectedEnds(memory.runtimes, snapshot.now)
    extensions = memory.extensions_at(snapshot.now)
    placer = Placer(
        _shape_placer(snapshot, settings, memory, extensions, parts),
        Reservations(ageing, ends, spares=spares),
        watch.poll,
        compute_domains=ComputeDomains.of(snapshot, memory.devices),
    )
    slow_gangs = memory.slow_gangs()
    return CycleState(
        snapshot=snapshot,
        settings=settings,
        quota=quota,
        statement=statement,
        placer=placer,
        turns=_turns(memory, statement, watch, extensions),
        search_budgets=SearchBudgets(
            settings.victim_probes,
            settings.victim_probes_per_gang,
            out_of_probes_before=memory.out_of_budget | slow_gangs,
            cut_short_before=memory.cut_short | slow_gangs,
        ),
        accounting=memory.devices.accounting,
        empty_nodes=memory.empty_nodes,
        eviction_limits=_eviction_limits(snapshot, settings, memory),
        served=memory.served,
        due=memory.due,
        expected_ends=ends,
        ageing=ageing,
        search_cache=memory.search_cache,
        backoff=memory.backoff,
        infeasible_gangs=memory.infeasible.gangs,
    )


def _turns(
    memory: CycleMemory, statement: Statement, watch: CycleWatch, extensions: Extensions
) -> Turns:
    """The turns of gangs, with those that earlier cycles set aside."""
    aside = memory.set_aside_at(statement.snapshot)
    return Turns(statement, watch, aside, memory.devices.spending, extensions=extensions)


def _quota(
    snapshot: Snapshot, settings: CycleSettings, memory: CycleMemory, parts: OptionalParts
) -> Quota:
    """Queues and fair shares; what queues were served is carried forward to now."""
    quota = counted_quota(snapshot, settings, memory, parts)
    if settings.loss_rules != NO_LOSS_RULES:
        with parts.part("served shares"):
            due = due_amounts(memory.pending.sizes, quota, memory.last_due)
            memory.served.advance(quota.resources, quota.usage, snapshot.now, due)
    return quota


def counted_quota(
    snapshot: Snapshot, settings: CycleSettings, memory: CycleMemory, parts: OptionalParts
) -> Quota:
    """Queues and fair shares, by the demand that counts."""
    infeasible = incomplete = non_preemptible = NOTHING
    if settings.rules.counted_demand is CountedDemand.FEASIBLE:
        with parts.part("infeasible demand"):
            infeasible = memory.infeasible.of(snapshot, memory.devices, memory.empty_nodes)
        with parts.part("incomplete demand"):
            incomplete = memory.incomplete.of(snapshot, memory.evictions, memory.infeasible)
            non_preemptible = memory.incomplete.non_preemptible
    return quota_of(
        snapshot,
        settings.rules,
        memory.devices.accounting,
        memory.devices.node_gpus(snapshot.nodes),
        memory.history,
        cache=memory.fair_shares,
        infeasible=infeasible,
        incomplete=incomplete,
        non_preemptible=non_preemptible,
    )


def _eviction_limits(
    snapshot: Snapshot, settings: CycleSettings, memory: CycleMemory
) -> EvictionLimits:
    return EvictionLimits(
        snapshot,
        memory.evictions,
        settings.cooldown,
        settling=settings.loss_rules.settling,
        per_day=settings.loss_rules.evictions_per_day,
        runtimes=memory.runtimes,
    )


def _spares(snapshot: Snapshot, quota: Quota, memory: CycleMemory) -> Spares:
    spares = Spares(spare_rows(snapshot.queues, snapshot.nodes), quota.queues, memory.started)
    if spares.exist:
        memory.started.observe(snapshot.gangs.values(), snapshot.now)
    return spares


def _shape_placer(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    extensions: Extensions,
    parts: OptionalParts,
) -> ShapePlacer:
    scoring = None
    with parts.part("scores"):
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
