"""One scheduling cycle: from a snapshot to a plan, as a numbered list.

Pure: the same snapshot, rules and settings give the same plan, byte for byte. The clock is
``snapshot.now``. ``CycleMemory`` keeps what would be computed again, and past usage.

Complexity: O(gangs that are pending, below minMember or started in part), without those that had
their answer in an earlier cycle (``search_cache.settled``).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kai_py.api.choices import FillStrategy
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions.admit import admit
from kai_py.plan.actions.allocate import allocate
from kai_py.plan.actions.allocate_in_turn import VictimAction, allocate_without_bypass
from kai_py.plan.actions.consolidate import consolidate
from kai_py.plan.actions.leave_nodes import leave_nodes
from kai_py.plan.actions.preempt import preempt
from kai_py.plan.actions.reclaim import gangs_within_share, reclaim
from kai_py.plan.actions.registry import registered_action
from kai_py.plan.actions.reserve import report_reservations, reserve
from kai_py.plan.actions.resume import reserve_expected, resume
from kai_py.plan.actions.return_to_spot import explain_fallback, return_to_spot
from kai_py.plan.actions.stale import stale
from kai_py.plan.actions.unhealthy import evict_unhealthy
from kai_py.plan.deadlines import next_deadline
from kai_py.plan.departure_rules import DEFAULT_DEPARTURE_RULES, DepartureRules
from kai_py.plan.explain.infeasible import explain_infeasible
from kai_py.plan.explain.unresolved_names import explain_unresolved_names
from kai_py.plan.extensions import Extensions, extension_keys
from kai_py.plan.outcome import build_plan, list_evictions
from kai_py.plan.placement.compute_domains import ComputeDomains
from kai_py.plan.placement.fit import ShapeFits
from kai_py.plan.placement.gang import Placer
from kai_py.plan.placement.pods import ShapePlacer
from kai_py.plan.placement.scoring import Scoring, scoring_of
from kai_py.plan.plan import Action, Plan
from kai_py.plan.search_cache.backoff import SearchBackoff
from kai_py.plan.search_cache.cache import SearchCache
from kai_py.plan.search_cache.inputs import Decisions, InputsHistory, SearchInputs
from kai_py.plan.search_cache.settled import (
    FinishedCycle,
    SettledCycle,
    SettledGang,
    settle,
)
from kai_py.plan.session import CycleState, decisions_so_far
from kai_py.plan.spot_choices import DEFAULT_SPOT_RULES, SpotChoices, SpotRules
from kai_py.plan.state.devices import CycleDevices
from kai_py.plan.state.eviction_limits import EvictionHistory, EvictionLimits
from kai_py.plan.state.queues import FairShareCache, PastUsage, due_amounts, quota_of
from kai_py.plan.state.reservations import Reservations
from kai_py.plan.state.statement import Statement
from kai_py.plan.turnover import Turnover
from kai_py.plan.turns import (
    NOT_REACHED,
    CycleWatch,
    TurnBackoff,
    Turns,
    Unwatched,
    updated_backoffs,
)
from kai_py.plan.victims.protections import explain_protections
from kai_py.policy.ageing import NO_AGEING, Ageing, QueueAgeing
from kai_py.policy.fairness_rules import NATIVE, BypassPolicy, FairnessRules
from kai_py.policy.fit import StaticFits
from kai_py.policy.lost_work import NO_LOSS_RULES, LossRules
from kai_py.policy.min_runtime import min_runtimes
from kai_py.policy.runtime_history import ExpectedEnds, RuntimeHistory
from kai_py.policy.score.registry import WeightedScore
from kai_py.policy.served_share import ServedShare
from kai_py.policy.spares import Spares, StartedGangs, spare_rows
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot

ACTIONS: Mapping[Action, Callable[[CycleState, Sequence[Gang]], None]] = {
    Action.ALLOCATE: allocate,
    Action.CONSOLIDATE: consolidate,
    Action.RECLAIM: reclaim,
    Action.PREEMPT: preempt,
    Action.STALE: stale,
}
"""In the order in which they run: what evicts no pod comes first."""

VICTIM_ACTIONS: Mapping[Action, VictimAction] = {
    Action.CONSOLIDATE: consolidate,
    Action.RECLAIM: reclaim,
    Action.PREEMPT: preempt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSettings:
    """What of the configuration a cycle follows; ``actions`` run in the order given.

    ``victim_probes``: trial placements of all searches for victims in a cycle, and of one search.
    ``max_relocated_pods``: for one gang. ``staleness_grace`` in seconds, as is
    ``reservation_seconds``: how long capacity stays reserved for pods that are not created yet.
    """

    rules: FairnessRules = NATIVE
    gpu_strategy: FillStrategy = FillStrategy.BINPACK
    cpu_strategy: FillStrategy = FillStrategy.BINPACK
    sharing_strategy: FillStrategy = FillStrategy.BINPACK
    scores: tuple[WeightedScore, ...] = ()
    default_scores: tuple[WeightedScore, ...] = ()
    """In place of missing ``scores`` where pods could leave GPUs free that no pod can use."""
    victim_probes: int = 20_000
    victim_probes_per_gang: int = 500
    max_relocated_pods: int = 16
    staleness_grace: float = 60.0
    ageing: Ageing = NO_AGEING
    reservation_seconds: float = 300.0
    cooldown: float = 0.0
    loss_rules: LossRules = NO_LOSS_RULES
    departures: DepartureRules = DEFAULT_DEPARTURE_RULES
    spot: SpotRules = DEFAULT_SPOT_RULES
    suspend_jobs: bool = False
    actions: tuple[Action, ...] = tuple(ACTIONS)
    extra_actions: tuple[str, ...] = ()
    """Registered actions that run after ``allocate``, before those that evict."""


@dataclass
class CycleMemory:
    """What one cycle leaves to the next: results that stay true while their inputs do, and history.

    Dropping results changes nothing but time. ``out_of_budget``: gang key to the cycle, by
    ``cycle_count``, in which its search ran out of budget: it comes last in the next. ``cut_short``
    is the same for searches for devices, ``is_unfinished`` whether the last cycle left anything to
    the next. ``history`` is None where past usage does not count. ``backoffs``: gangs that are set
    aside, ``extension_backoffs`` scores and actions of installed packages.
    """

    devices: ClusterDevices
    history: PastUsage | None = None
    static_fits: StaticFits = field(default_factory=StaticFits)
    fair_shares: FairShareCache = field(default_factory=FairShareCache)
    search_inputs: InputsHistory = field(default_factory=InputsHistory)
    search_cache: SearchCache = field(default_factory=SearchCache)
    backoff: SearchBackoff = field(default_factory=SearchBackoff)
    cycle_count: int = 0
    out_of_budget: dict[str, int] = field(default_factory=dict)
    cut_short: dict[str, int] = field(default_factory=dict)
    is_unfinished: bool = False
    evictions: EvictionHistory = field(default_factory=EvictionHistory)
    backoffs: dict[str, TurnBackoff] = field(default_factory=dict)
    extension_backoffs: dict[str, TurnBackoff] = field(default_factory=dict)
    settled: SettledCycle | None = None
    runtimes: RuntimeHistory = field(default_factory=RuntimeHistory)
    served: ServedShare = field(default_factory=ServedShare)
    spot: SpotChoices = field(default_factory=SpotChoices)
    started: StartedGangs = field(default_factory=StartedGangs)
    wake_at: float | None = None

    def start_cycle(self, snapshot: Snapshot, settings: CycleSettings) -> None:
        """Begin a cycle whose searches have these inputs."""
        runtimes = min_runtimes(snapshot.queues, settings.rules)
        self.static_fits.start_cycle()
        aside = self.set_aside_at(snapshot.now)
        self.search_inputs.start_cycle(SearchInputs(snapshot, settings, runtimes, aside))
        self.search_cache.start_cycle(self.search_inputs)
        self.backoff.start_cycle(self.search_inputs)

    def record_searches(self, state: CycleState, pending: Collection[str]) -> None:
        """Remember which gangs of those ``pending`` ran out of budget, and when.

        Where the cycle ended early those that had their turns count as such: others come first.
        """
        searched = dict.fromkeys(state.searched, True) if state.turns.over else state.searched
        kept = {k: at for k, at in self.out_of_budget.items() if k in pending and k not in searched}
        kept |= {key: self.cycle_count for key, ran_out in searched.items() if ran_out}
        self.out_of_budget = kept
        # Where the cycle did not end early every other gang had its answer.
        left = self.cut_short if state.turns.over else {}
        self.cut_short = left | dict.fromkeys(sorted(state.cut), self.cycle_count)
        self.is_unfinished = bool(state.cut) or state.turns.over
        self.cycle_count += 1

    def set_aside_at(self, now: float) -> frozenset[str]:
        """The keys of the gangs whose backoff has not ended; ``now``: seconds since the epoch."""
        return _in_backoff(self.backoffs, now)

    def extensions_at(self, now: float) -> Extensions:
        """The scores and actions of installed packages that take part in a cycle."""
        return Extensions(_in_backoff(self.extension_backoffs, now))

    def set_aside(
        self, state: CycleState, ready: Iterable[Gang], extensions: Collection[str]
    ) -> None:
        """Set aside what failed in the cycle, and tell why of each gang that had no turn.

        ``extensions``: the keys of those that are configured.
        """
        snapshot, turns = state.snapshot, state.turns
        self.extension_backoffs = updated_backoffs(
            self.extension_backoffs, turns.extensions.failed, extensions, snapshot.now
        )
        if turns.failed or self.backoffs:
            gangs = snapshot.gangs
            self.backoffs = updated_backoffs(self.backoffs, turns.failed, gangs, snapshot.now)
            for key in self.set_aside_at(snapshot.now):
                state.mark_unschedulable(gangs[key], self.backoffs[key].reason)
        for gang in ready if turns.over else ():
            state.unschedulable.setdefault(gang.key, NOT_REACHED)

    def take_settled(
        self, state: CycleState, decisions: Decisions | None, ready: Sequence[Gang]
    ) -> Mapping[str, SettledGang]:
        """The answers of the last cycle that hold; the cycle is charged with what they took."""
        settled, self.settled = self.settled, None
        if settled is None or not settled.holds(self.search_inputs, decisions, state.snapshot.now):
            return {}
        if known := settled.kept(state, ready):
            settled.charge(state)
        return known or {}

    @property
    def may_settle(self) -> bool:
        """Whether the last cycle finished, and nothing is set aside or to be searched on."""
        limited = self.backoffs or self.extension_backoffs or self.out_of_budget or self.cut_short
        return not (limited or self.is_unfinished) and self.search_cache.is_enabled


def _in_backoff(backoffs: Mapping[str, TurnBackoff], now: float) -> frozenset[str]:
    return frozenset(key for key, each in backoffs.items() if now < each.until)


def run_cycle(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    watch: CycleWatch | None = None,
) -> Plan:
    """Decide everything that can be decided at ``snapshot.now``; ``watch`` may end it earlier."""
    # 1. Devices, queues and fair shares as the snapshot has them.
    given, (snapshot, spot) = snapshot, memory.spot.applied(snapshot, settings.spot)
    state = _open_session(snapshot, settings, memory, watch or Unwatched())
    state.spot = spot
    pending = [snapshot.gangs[key] for key in snapshot.pending]
    ready = [g for g in pending if g.key not in snapshot.in_backoff and not g.attempts_exhausted]
    ready = list(state.turns.able(ready))

    evict_unhealthy(state)
    leave_nodes(state)
    turnover = Turnover(state, settings.actions, settings.loss_rules.patience)

    # 2. Gangs that started in part, or have nominated pods, start or keep their capacity.
    reserve_expected(state)
    resume(state, ready)
    # 3. Gangs that have waited too long get nodes reserved as they drain.
    reserve(state, (gang for gang in ready if _has_unplaced_pods(state, gang)))
    begun = decisions_so_far(state, by_share=True)
    turns = {gang.key for gang in ready}
    before, known = memory.settled, memory.take_settled(state, begun, ready)
    ready = [gang for gang in ready if gang.key not in known]
    decided = len(state.statement.placed), len(state.statement.evicted)
    turnover.reserve_for_largest(gang for gang in ready if _has_unplaced_pods(state, gang))
    # 4. The others take idle capacity, then what consolidation frees, then what fairness and
    #    priority allow; at last, gangs below minMember for too long are evicted.
    for action, able in _actions_in_turn(state, ready, settings):
        if action is Action.ALLOCATE and settings.rules.bypass_policy is BypassPolicy.PREEMPT_FIRST:
            allocate_without_bypass(
                state,
                able,
                turnover,
                [VICTIM_ACTIONS[each] for each in settings.actions if each in VICTIM_ACTIONS],
            )
        else:
            ACTIONS[action](state, able)
        if action is Action.ALLOCATE:
            for name in settings.extra_actions:
                _run_added_action(state, _unplaced(state, ready), name)
    return_to_spot(state)
    ready = _unplaced(state, ready)
    explain_infeasible(state, ready)
    explain_unresolved_names(state, ready)
    explain_protections(state, ready, settings.actions)
    explain_fallback(state, ready)
    is_settled = decided == (len(state.statement.placed), len(state.statement.evicted)) and not (
        state.is_unfinished or state.placer.reservations.active
    )
    if known and not is_settled:
        return run_cycle(given, settings, memory, watch)
    report_reservations(state)
    memory.record_searches(state, snapshot.gangs)
    # 5. Gangs behind our scheduling gate are admitted as far as their queues allow.
    admitted = admit(state, pending)
    memory.set_aside(state, ready, extension_keys(settings.scores, settings.extra_actions))
    # 6. What was decided, and why the rest stays pending.
    evictions = list_evictions(state, suspend_jobs=settings.suspend_jobs)
    memory.evictions.record(evictions, snapshot.now)
    if state.placer.reservations.spares.exist:
        memory.started.record_evicted(
            (
                each.gang
                for each in state.statement.evicted.values()
                if each.action in VICTIM_ACTIONS
            ),
            snapshot.now,
        )
    memory.runtimes.record_evicted((each.pod.uid for each in evictions), snapshot.now)
    settled_at = state.eviction_limits.settled_at
    ends = [*state.waiting.values(), *(() if settled_at is None else (settled_at,))]
    ends += (*state.postponed.values(), *state.checkpoint_ends, *spot.fallback_at.values())
    memory.wake_at = min(ends, default=None)
    plan = build_plan(
        state,
        pending,
        memory.devices.inventory,
        evictions=evictions,
        admissions=admitted,
        answers={key: each.answer for key, each in known.items()},
    )
    if is_settled and begun is not None and memory.may_settle and not settings.extra_actions:
        finished = FinishedCycle(begun, turns, known, plan, settings.victim_probes)
        unchanged = known and len(known) == len(pending)
        until = None if unchanged else next_deadline(snapshot, settings, memory)
        memory.settled = before if unchanged else settle(state, finished, until)
    return plan


def _actions_in_turn(
    state: CycleState, gangs: Sequence[Gang], settings: CycleSettings
) -> Iterator[tuple[Action, list[Gang]]]:
    """The actions in their order, each with the gangs that are still pending.

    Where no gang may bypass another, pods are relocated first for gangs that may reclaim, and for
    the others after those have reclaimed: else what starts on capacity that relocation won would be
    evicted in the next cycle.
    """
    in_order = settings.rules.bypass_policy is BypassPolicy.PREEMPT_FIRST
    splits = in_order and Action.RECLAIM in settings.actions
    unplaced, later = list(gangs), list[Gang]()
    for action in settings.actions:
        if action is Action.ALLOCATE:
            # It says of every gang what it waits for, also where no pod could be placed.
            yield action, list(gangs)
            continue
        unplaced = _unplaced(state, unplaced)
        if action is Action.CONSOLIDATE and splits:
            due = gangs_within_share(state, unplaced)
            keys = {gang.key for gang in due}
            later = [gang for gang in unplaced if gang.key not in keys] if due else []
            yield action, due or unplaced
            continue
        if action is Action.STALE and later:
            yield Action.CONSOLIDATE, _unplaced(state, later)
            unplaced, later = _unplaced(state, unplaced), []
        yield action, unplaced
    if later:
        yield Action.CONSOLIDATE, _unplaced(state, later)


def _unplaced(state: CycleState, gangs: Iterable[Gang]) -> list[Gang]:
    return [gang for gang in gangs if _has_unplaced_pods(state, gang)]


def _run_added_action(state: CycleState, ready: Sequence[Gang], name: str) -> None:
    """Run an action of an installed package; if it fails it has decided nothing."""
    if not state.turns.may_run(name):
        return
    reasons = dict(state.unschedulable)
    with state.turns.of_action(name):
        registered_action(name)(state, tuple(ready))
        return
    state.start_over(reasons)


def _open_session(
    snapshot: Snapshot, settings: CycleSettings, memory: CycleMemory, watch: CycleWatch
) -> CycleState:
    """The state of the cycle before its first action."""
    memory.start_cycle(snapshot, settings)
    memory.runtimes.observe(snapshot.gangs, snapshot.nodes.positions.keys(), snapshot.now)
    memory.devices.sync(snapshot.devices)
    memory.devices.spending.poll = watch.poll
    quota = quota_of(
        snapshot,
        settings.rules,
        memory.devices.accounting,
        memory.devices.node_gpus(snapshot.nodes),
        memory.history,
        cache=memory.fair_shares,
    )
    if settings.loss_rules != NO_LOSS_RULES:
        due = due_amounts(snapshot, quota)
        memory.served.advance(quota.resources, quota.usage, snapshot.now, due)
    devices = CycleDevices(memory.devices, snapshot)
    statement = Statement(snapshot, quota, devices, settings.sharing_strategy)
    ageing = QueueAgeing.for_queues(snapshot.queues, settings.ageing, snapshot.now)
    ends = ExpectedEnds(memory.runtimes, snapshot.now)
    extensions = memory.extensions_at(snapshot.now)
    scoring = scoring_of(
        snapshot, settings.scores, settings.default_scores, memory.static_fits, extensions
    )
    spares = Spares(spare_rows(snapshot.queues, snapshot.nodes), quota.queues, memory.started)
    if spares.exist:
        memory.started.observe(snapshot.gangs.values(), snapshot.now)
    placer = Placer(
        _shape_placer(settings, memory.static_fits, scoring),
        Reservations(ageing, ends, spares=spares),
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
            memory.set_aside_at(snapshot.now),
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
        expected_ends=ends,
        ageing=ageing,
        out_of_budget=memory.out_of_budget,
        cut_short=memory.cut_short,
        reservation_seconds=settings.reservation_seconds,
        search_cache=memory.search_cache,
        backoff=memory.backoff,
    )


def _has_unplaced_pods(state: CycleState, gang: Gang) -> bool:
    """Whether any pod of the gang is not placed yet."""
    placed = state.statement.placed
    return bool([member for member in gang.pending if member.pod.uid not in placed])


def _shape_placer(
    settings: CycleSettings, static_fits: StaticFits, scoring: Scoring | None
) -> ShapePlacer:
    fits = ShapeFits(static_fits)
    return ShapePlacer(fits, settings.gpu_strategy, settings.cpu_strategy, scoring)
