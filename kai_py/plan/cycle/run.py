"""One scheduling cycle: from a snapshot to a plan, as a numbered list.

Pure: the same snapshot, rules and settings give the same plan, byte for byte. The clock is
``snapshot.now``. ``CycleMemory`` keeps what would be computed again, and past usage.

Complexity: O(gangs that are pending, below minMember or started in part), without those that had
their answer in an earlier cycle (``settled``).
"""

from collections.abc import Iterable, Mapping, Sequence

from kai_py.plan.actions.admit import admit
from kai_py.plan.actions.evict_unready import evict_unready
from kai_py.plan.actions.leave_nodes import leave_nodes
from kai_py.plan.actions.reserve import report_reservations, reserve
from kai_py.plan.actions.resume import reserve_expected, resume
from kai_py.plan.actions.return_to_spot import explain_fallback, return_to_spot
from kai_py.plan.actions.turnover import Turnover
from kai_py.plan.actions.unhealthy import evict_unhealthy
from kai_py.plan.cycle.action_turns import has_unplaced_pods, run_actions, unplaced_gangs
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.opening import open_session
from kai_py.plan.cycle.outcome import build_plan, list_evictions
from kai_py.plan.cycle.settings import CycleSettings
from kai_py.plan.cycle.settled import FinishedCycle, settle
from kai_py.plan.explain.infeasible import explain_infeasible
from kai_py.plan.explain.unresolved_names import explain_unresolved_names
from kai_py.plan.extensions import extension_keys
from kai_py.plan.plan import Plan
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.requests import decisions_so_far
from kai_py.plan.session.startups import ReadyRule, Startups, ready_rules, with_avoided_nodes
from kai_py.plan.session.turns import CycleWatch, Unwatched
from kai_py.plan.victims.protections import explain_protections
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot


def run_cycle(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    watch: CycleWatch | None = None,
) -> Plan:
    """Decide everything that can be decided at ``snapshot.now``; ``watch`` may end it earlier."""
    # 1. Devices, queues and fair shares as the snapshot has them.
    given, (snapshot, spot) = snapshot, memory.spot.applied(snapshot, settings.spot)
    ready_times = ready_rules(snapshot.queues)
    memory.startups.observe(snapshot, ready_times)
    snapshot = with_avoided_nodes(snapshot, memory.startups)
    state = open_session(snapshot, settings, memory, watch or Unwatched())
    state.spot = spot
    pending = [snapshot.gangs[key] for key in snapshot.pending]
    ready = _ready_gangs(state, pending)
    _evict_failing(state, memory.startups, ready_times)
    turnover = Turnover(state, settings.actions, settings.loss_rules.patience)

    # 2. Gangs that started in part, or have nominated pods, start or keep their capacity.
    reserve_expected(state)
    resume(state, ready)
    # 3. Gangs that have waited too long get nodes reserved as they drain.
    reserve(state, (gang for gang in ready if has_unplaced_pods(state, gang)))
    begun = decisions_so_far(state, by_share=True)
    turns = {gang.key for gang in ready}
    before, known = memory.settled, memory.take_settled(state, begun, ready)
    ready = [gang for gang in ready if gang.key not in known]
    decided = _decision_count(state)
    turnover.reserve_for_largest(gang for gang in ready if has_unplaced_pods(state, gang))
    # 4. The others take idle capacity, then what consolidation frees, then what fairness and
    #    priority allow; at last, gangs below minMember for too long are evicted.
    run_actions(state, ready, settings, turnover)
    return_to_spot(state)
    ready = unplaced_gangs(state, ready)
    _explain(state, ready, settings)
    is_settled = _decision_count(state) == decided and _is_proven(state)
    if known and not is_settled:
        return run_cycle(given, settings, memory, watch)
    report_reservations(state)
    memory.record_searches(state, snapshot.gangs)
    # 5. Gangs behind our scheduling gate are admitted as far as their queues allow.
    admitted = admit(state, pending)
    memory.set_aside(state, ready, extension_keys(settings.scores, settings.extra_actions))
    # 6. What was decided, and why the rest stays pending.
    evictions = list_evictions(state, suspend_jobs=settings.suspend_jobs)
    memory.record_evictions(state, evictions)
    state.avoided_devices = memory.startups.record(state.failed_starts.values(), snapshot.now)
    memory.wake_at = _next_end(state, memory.startups.wake_at(snapshot, ready_times))
    inventory, answers = memory.devices.inventory, {key: each.answer for key, each in known.items()}
    plan = build_plan(
        state, pending, inventory, evictions=evictions, admissions=admitted, answers=answers
    )
    if is_settled and begun is not None and memory.may_settle and not settings.extra_actions:
        finished = FinishedCycle(begun, turns, known, plan, settings.victim_probes)
        unchanged = known and len(known) == len(pending)
        until = None if unchanged else next_deadline(snapshot, settings, memory)
        memory.settled = before if unchanged else settle(state, finished, until)
    return plan


def _ready_gangs(state: CycleState, pending: Sequence[Gang]) -> list[Gang]:
    """The pending gangs that are tried in this cycle."""
    waits = state.snapshot.in_backoff
    tried = [gang for gang in pending if gang.key not in waits and not gang.attempts_exhausted]
    return list(state.turns.able(tried))


def _evict_failing(
    state: CycleState, startups: Startups, ready_times: Mapping[str, ReadyRule]
) -> None:
    """Evict what can't go on where it runs, for no other gang."""
    evict_unhealthy(state)
    evict_unready(state, startups, ready_times)
    leave_nodes(state)


def _decision_count(state: CycleState) -> tuple[int, int]:
    """How many pods were placed, and evicted."""
    return len(state.statement.placed), len(state.statement.evicted)


def _is_proven(state: CycleState) -> bool:
    """Whether all was searched, on nodes of which none is reserved."""
    return not (state.is_unfinished or state.placer.reservations.active)


def _explain(state: CycleState, pending: Sequence[Gang], settings: CycleSettings) -> None:
    """Complete the unschedulable reasons by what only the state after all actions shows."""
    explain_infeasible(state, pending)
    explain_unresolved_names(state, pending)
    explain_protections(state, pending, settings.actions)
    explain_fallback(state, pending)


def _next_end(state: CycleState, startups: Iterable[float]) -> float | None:
    """When the first of what gangs wait for ends, seconds since the epoch; ``startups``: theirs."""
    settled_at = state.eviction_limits.settled_at
    ends = [*state.waiting.values(), *(() if settled_at is None else (settled_at,))]
    ends += (*state.postponed.values(), *state.checkpoint_ends, *state.spot.fallback_at.values())
    return min((*ends, *startups), default=None)
