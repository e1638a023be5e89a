"""What one cycle leaves to the next: results and history.

A new process starts without the results: it makes the same decisions and takes longer. It recovers
part of the history, from the statuses of queues and the record of failed starts
(``plan.session.startups.StartupRecord``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from kai_py.api.times import lies_ahead
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.plan.actions.registry import VICTIM_ACTIONS
from kai_py.plan.cycle.infeasible_demand import IncompleteDemand, InfeasibleDemand
from kai_py.plan.cycle.left_out import LeftOut, queue_problems
from kai_py.plan.cycle.pending_gangs import LastDue, PendingGangs
from kai_py.plan.cycle.settled import SettledCycle, SettledGang
from kai_py.plan.extensions import Extensions, queue_key
from kai_py.plan.observations import ObjectProblem
from kai_py.plan.plan import Eviction, Stage
from kai_py.plan.search_cache.backoff import SearchBackoff
from kai_py.plan.search_cache.cache import SearchCache
from kai_py.plan.search_cache.inputs import Decisions, InputsHistory, SearchInputs
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.spot_choices import SpotChoices
from kai_py.plan.session.startups import Startups
from kai_py.plan.session.turns import MAX_BACKOFF, NOT_REACHED, TurnBackoff, updated_backoffs
from kai_py.plan.state.empty_nodes import EmptyNodes
from kai_py.plan.state.eviction_history import EvictionHistory
from kai_py.plan.state.queues import FairShareCache, PastUsage
from kai_py.policy.fit import StaticFits
from kai_py.policy.min_runtime import min_runtimes
from kai_py.policy.runtime_history import RuntimeHistory
from kai_py.policy.score.fragmentation import Stranding
from kai_py.policy.served_share import DueTimes, ServedShare
from kai_py.policy.spares import StartedGangs
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import QueueInfo


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
    stranding: Stranding = field(default_factory=Stranding)
    fair_shares: FairShareCache = field(default_factory=FairShareCache)
    infeasible: InfeasibleDemand = field(default_factory=InfeasibleDemand)
    incomplete: IncompleteDemand = field(default_factory=IncompleteDemand)
    empty_nodes: EmptyNodes = field(default_factory=EmptyNodes)
    pending: PendingGangs = field(default_factory=PendingGangs)
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
    last_due: LastDue = field(default_factory=LastDue)
    due: DueTimes = field(default_factory=DueTimes)
    spot: SpotChoices = field(default_factory=SpotChoices)
    started: StartedGangs = field(default_factory=StartedGangs)
    startups: Startups = field(default_factory=Startups)
    left_out: frozenset[str] = frozenset()
    """Keys of gangs with which a cycle could not be opened."""
    wake_at: float | None = None

    def start_cycle(self, snapshot: Snapshot, settings: CycleSettings) -> None:
        """Begin a cycle whose searches have these inputs."""
        runtimes = min_runtimes(snapshot.queues, settings.rules)
        self.static_fits.start_cycle()
        self.pending = self.pending.updated(snapshot)
        self.due.start_cycle(snapshot.pending)
        aside = self.set_aside_at(snapshot)
        self.search_inputs.start_cycle(SearchInputs(snapshot, settings, runtimes, aside))
        self.search_cache.start_cycle(self.search_inputs)
        self.backoff.start_cycle(self.search_inputs)

    def record_searches(self, state: CycleState) -> None:
        """Remember which gangs ran out of budget, and when.

        Where the cycle ended early, gangs that were planned count as searched: others come first.
        """
        budgets, ended_early, known = state.search_budgets, state.turns.over, state.snapshot.gangs
        searched = dict.fromkeys(budgets.searched, True) if ended_early else budgets.searched
        kept = {k: at for k, at in self.out_of_budget.items() if k in known and k not in searched}
        kept |= {key: self.cycle_count for key, ran_out in searched.items() if ran_out}
        self.out_of_budget = kept
        # Where the cycle did not end early every other gang had its answer.
        cut_short = self.cut_short if ended_early else {}
        left = {key: at for key, at in cut_short.items() if key in known}
        self.cut_short = left | dict.fromkeys(sorted(budgets.cut_short), self.cycle_count)
        self.is_unfinished = bool(budgets.cut_short) or ended_early
        self.cycle_count += 1

    def slow_gangs(self) -> dict[str, int]:
        """The gangs that made a cycle exceed its time limit, and until when they are set aside.

        After that they come last, until this is forgotten.
        """
        return {
            key: int(each.until)
            for key, each in self.backoffs.items()
            if each.reason.stage is Stage.SEARCH_BUDGET
        }

    def set_aside_at(self, snapshot: Snapshot) -> frozenset[str]:
        """The keys of the gangs whose backoff has not ended."""
        return _in_backoff(self.backoffs, snapshot.now).union(self.startups.held(snapshot))

    def extensions_at(self, now: float) -> Extensions:
        """The scores and actions of installed packages that take part in a cycle."""
        return Extensions(_in_backoff(self.extension_backoffs, now))

    def left_out_at(self, snapshot: Snapshot) -> LeftOut:
        """What is left out of the cycle, as its backoff has not ended."""
        if not (self.left_out or self.extension_backoffs):
            return LeftOut()
        gangs = self.left_out & _in_backoff(self.backoffs, snapshot.now)
        failed = _in_backoff(self.extension_backoffs, snapshot.now)
        queues = [spec.name for spec in snapshot.queues if queue_key(spec.name) in failed]
        return LeftOut(gangs & snapshot.gangs.keys(), frozenset(queues))

    def leave_out(self, state: CycleState, found: LeftOut) -> None:
        """Set aside what a cycle could not be opened with."""
        self.left_out = frozenset({*(self.left_out & self.backoffs.keys()), *found.gangs})
        if found.error is None:
            return
        for key in sorted(found.gangs):
            state.turns.fail_turn(key, found.error)
        for name in sorted(found.queues):
            state.turns.extensions.fail(queue_key(name), found.error)

    def forget_results(self) -> None:
        """Drop what earlier cycles computed, and keep what they observed."""
        vars(self).update(
            vars(
                CycleMemory(
                    self.devices,
                    self.history,
                    evictions=self.evictions,
                    backoffs=self.backoffs,
                    extension_backoffs=self.extension_backoffs,
                    runtimes=self.runtimes,
                    served=self.served,
                    due=self.due,
                    started=self.started,
                    startups=self.startups,
                    left_out=self.left_out,
                )
            )
        )

    def problems_of(self, queues: Iterable[QueueInfo], now: float) -> tuple[ObjectProblem, ...]:
        """The problem of each queue that is left out."""
        if not self.extension_backoffs:
            return ()
        messages = {
            spec.name: self.extension_backoffs[key].reason.message
            for spec in queues
            if (key := queue_key(spec.name)) in _in_backoff(self.extension_backoffs, now)
        }
        return queue_problems(queues, messages)

    def set_aside(
        self,
        state: CycleState,
        given: Snapshot,
        ready: Iterable[Gang],
        extensions: Collection[str],
    ) -> None:
        """Set aside what failed in the cycle; gangs that had no turn get the reason.

        ``given``: the snapshot with what is left out; ``extensions``: the keys of those that are
        configured.
        """
        snapshot, turns = state.snapshot, state.turns
        if turns.extensions.failed or self.extension_backoffs:
            known = {*extensions, *(queue_key(spec.name) for spec in given.queues)}
            self.extension_backoffs = updated_backoffs(
                self.extension_backoffs, turns.extensions.failed, known, snapshot.now
            )
        if turns.failed or self.backoffs:
            gangs = given.gangs
            self.backoffs = updated_backoffs(self.backoffs, turns.failed, gangs, snapshot.now)
            for key in _in_backoff(self.backoffs, snapshot.now):
                state.mark_unschedulable(gangs[key], self.backoffs[key].reason)
        for key, reason in self.startups.held(snapshot).items():
            state.mark_unschedulable(snapshot.gangs[key], reason)
        for gang in ready if turns.over else ():
            state.unschedulable.setdefault(gang.key, NOT_REACHED)

    def record_evictions(self, state: CycleState, evictions: Sequence[Eviction]) -> None:
        """Remember what was evicted, and when."""
        now = state.snapshot.now
        self.evictions.record(evictions, now)
        if state.placer.reservations.spares.exist:
            victims = state.statement.evicted.values()
            lost = (each.gang for each in victims if each.action in VICTIM_ACTIONS)
            self.started.record_evicted(lost, now)

    def take_settled(
        self,
        state: CycleState,
        decisions: Decisions | None,
        ready: Sequence[Gang],
        ready_keys: Set[str],
    ) -> Mapping[str, SettledGang]:
        """The answers of the last cycle that hold; the cycle is charged with what they took.

        ``ready``: the gangs that could have a turn, ``ready_keys`` their keys.
        """
        settled, self.settled = self.settled, None
        if settled is None or decisions is None:
            return {}
        if not settled.holds(self.search_inputs, decisions, state.snapshot.now):
            return {}
        if known := settled.still_valid(state, decisions, ready, ready_keys):
            settled.charge(state)
        return known or {}

    @property
    def may_settle(self) -> bool:
        """Whether the last cycle finished, with nothing set aside and no search to be continued.

        The search for a gang that ran out of probes is not continued while it backs off.
        """
        limited = self.backoffs or self.extension_backoffs or self.cut_short
        waits = bool(self.startups.since or self.startups.attempts)
        return not (limited or waits or self.is_unfinished) and self.search_cache.is_enabled


def _in_backoff(backoffs: Mapping[str, TurnBackoff], now: float) -> frozenset[str]:
    return frozenset(
        key for key, each in backoffs.items() if lies_ahead(each.until, now, MAX_BACKOFF)
    )
