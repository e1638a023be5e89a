"""One scheduling cycle: from a snapshot to a plan, as a list numbered as in ``docs/cycle.md``.

Pure: the same snapshot, rules and settings give the same plan, byte for byte. The clock is
``snapshot.now``. ``CycleMemory`` keeps results to save computing them again, and past usage.

Complexity: O(gangs that are pending, below minMember or started in part), without those that had
their answer in an earlier cycle (``settled``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from kai_py.plan.actions.admit import admit
from kai_py.plan.actions.evict_unready import evict_unready
from kai_py.plan.actions.leave_nodes import leave_nodes
from kai_py.plan.actions.reserve import report_reservations, reserve
from kai_py.plan.actions.resume import reserve_expected, resume
from kai_py.plan.actions.return_to_spot import explain_fallback, return_to_spot
from kai_py.plan.actions.stale import evict_stale, evict_unhealthy
from kai_py.plan.actions.turnover import Turnover
from kai_py.plan.cycle.action_turns import has_unplaced_pods, run_actions
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.evictions import list_evictions
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.opening import open_cycle
from kai_py.plan.cycle.outcome import build_plan, gang_placements, list_unplaced, with_failures
from kai_py.plan.cycle.pending_gangs import PendingGangs
from kai_py.plan.cycle.settled import FinishedCycle, SettledCycle, SettledGang, settle
from kai_py.plan.explain.infeasible import explain_infeasible
from kai_py.plan.explain.postponed import explain_postponed, without_victims
from kai_py.plan.explain.protections import explain_protections
from kai_py.plan.explain.unresolved_names import explain_unresolved_names
from kai_py.plan.plan import Action, Eviction, Plan, Unplaced
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.session.startups import Startups
from kai_py.plan.session.turns import CycleWatch, Unwatched
from kai_py.policy.fairness_rules import BypassPolicy
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot


def run_cycle(
    snapshot: Snapshot,
    settings: CycleSettings,
    memory: CycleMemory,
    watch: CycleWatch | None = None,
    stale: Sequence[str] = (),
) -> Plan:
    """The plan; ``watch`` may end the cycle early. Gangs in ``stale``, by key, are evicted."""
    # 1. Devices, queues and fair shares as the snapshot has them.
    state = open_cycle(snapshot, settings, memory, watch or Unwatched())
    pending, step = memory.pending.all, state.turns.step
    ready, ready_keys = _ready_gangs(state, memory.pending)
    _evict_failing(state, memory.startups, stale)
    turnover = step("turnover", Turnover, state)
    # 2. Gangs that started in part, or have nominated pods, start or keep their capacity.
    step("reserve for expected pods", reserve_expected, state)
    step("resume", resume, state, ready)
    # 3. Gangs that have waited too long get nodes reserved as they drain. Those whose answer of the
    #    last cycle still holds get no turn.
    step("reserve", reserve, state, _waiting(state, ready))
    last, begun = memory.settled, step("decisions", state.decisions, by_share=True)
    settled = step("known answers", memory.take_settled, state, begun, ready, ready_keys) or {}
    repeated = last if last is not None and _are_all(settled, last, pending) else None
    ready = tuple([gang for gang in ready if gang.key not in settled]) if repeated is None else ()
    decided = _decision_count(state)
    if turnover is not None:
        step("turnover", turnover.reserve_for_largest, _waiting(state, ready))
    # 4 to 7. The others take idle capacity, then what consolidation, fairness and priority free.
    # 8. If gangs below minMember are evicted at last, the others may have their capacity.
    run_actions(state, ready, turnover)
    if not stale and (stale := step("late evictions", _stale_for_others, state, decided) or ()):
        return run_cycle(snapshot, settings, memory, watch, stale)
    step("return to spot nodes", return_to_spot, state)
    _explain(state, [gang for gang in ready if gang.key in state.unschedulable])
    is_settled = _decision_count(state) == decided and _is_proven(state)
    if settled and not is_settled:
        # Answers that were taken over may be wrong now; memory has none left, so all get a turn.
        return run_cycle(snapshot, settings, memory, watch, stale)
    step("report reservations", report_reservations, state)
    step("record searches", memory.record_searches, state)
    # 9. Gangs behind our scheduling gate are admitted as far as their queues allow.
    admitted = step("admit", admit, state, pending, memory.pending.gated) or ()
    placements = gang_placements(state)
    memory.set_aside(state, snapshot, ready, settings.extension_keys)
    pending = tuple([snapshot.gangs[k] for k in snapshot.pending]) if memory.left_out else pending
    # 10. What was decided, and why the rest stays pending.
    plan = build_plan(
        state,
        memory,
        placements=placements,
        evictions=_record_decisions(state, memory),
        admissions=admitted,
        unplaced=_unplaced(state, pending, settled, repeated),
        problems=memory.problems_of(snapshot.queues, snapshot.now),
    )
    step("conclude", state.statement.conclude)
    if is_settled and begun is not None and memory.may_settle and not settings.extra_actions:
        done = FinishedCycle(begun, ready_keys, settled, plan)
        memory.settled = repeated or step("settle", _settle, state, done, memory)
    return with_failures(plan, state.turns)


def _are_all(
    settled: Mapping[str, SettledGang], last: SettledCycle, pending: Sequence[Gang]
) -> bool:
    """Whether the pending gangs are those of the last cycle, and all answers are as they were."""
    if not settled or not len(settled) == len(pending) == len(last.gangs):
        return False
    return settled is last.gangs or all(each is last.gangs[key] for key, each in settled.items())


def _settle(state: CycleState, finished: FinishedCycle, memory: CycleMemory) -> SettledCycle | None:
    """The answers of the cycle; None where they change with time."""
    return settle(state, finished, next_deadline(state.snapshot, state.settings, memory))


def _unplaced(
    state: CycleState,
    pending: Sequence[Gang],
    settled: Mapping[str, SettledGang],
    repeated: SettledCycle | None,
) -> tuple[Unplaced, ...]:
    """Why gangs stay pending; ``repeated``: the last cycle, if every answer is taken over."""
    if repeated is not None:
        return repeated.unplaced
    return list_unplaced(state, pending, {key: each.answer for key, each in settled.items()})


def _record_decisions(state: CycleState, memory: CycleMemory) -> tuple[Eviction, ...]:
    """The evictions; remembers them, and what else a later cycle needs."""
    step, startups, failed = state.turns.step, memory.startups, state.report.failed_starts.values()
    listed = step("evictions", list_evictions, state) or ()
    step("record evictions", memory.record_evictions, state, listed)
    avoided = step("record starts", startups.record, failed, state.snapshot.now)
    state.report.avoided_devices = avoided or ()
    memory.wake_at = step("next end", _next_end, state, startups)
    return listed


def _ready_gangs(state: CycleState, pending: PendingGangs) -> tuple[Sequence[Gang], Set[str]]:
    """The pending gangs that are tried in this cycle, and their keys."""
    waits = state.snapshot.in_backoff
    if not (waits or state.turns.excluded):
        return pending.tried, pending.tried_keys
    tried = [each for each in state.turns.eligible(pending.tried) if each.key not in waits]
    return tried, frozenset(gang.key for gang in tried)


def _waiting(state: CycleState, gangs: Iterable[Gang]) -> Iterator[Gang]:
    """The gangs that have an unplaced pod, each checked when it is asked for."""
    return (gang for gang in gangs if has_unplaced_pods(state, gang))


def _evict_failing(state: CycleState, startups: Startups, stale: Sequence[str]) -> None:
    """Evict pods that can't go on where they run; not in favour of other gangs."""
    step = state.turns.step
    step("unhealthy", evict_unhealthy, state)
    step("unready", evict_unready, state, startups)
    step("departure", leave_nodes, state)
    step("stale", evict_stale, state, [state.snapshot.gangs[key] for key in stale])


def _decision_count(state: CycleState) -> tuple[int, int]:
    """How many pods were placed, and evicted."""
    return len(state.statement.placed), len(state.statement.evicted)


def _stale_for_others(state: CycleState, decided: tuple[int, int]) -> tuple[str, ...]:
    """The gangs that were evicted as stale last, after ``decided``, while others are pending.

    Without those of which a PodDisruptionBudget may keep pods, so that others would wait for them.
    """
    if state.settings.rules.bypass_policy is not BypassPolicy.PREEMPT_FIRST:
        return ()
    evicted = list(state.statement.evicted.items())
    pods: dict[str, list[str]] = {}
    for uid, each in evicted[decided[1] :]:
        if each.action is Action.STALE:
            pods.setdefault(each.gang.key, []).append(uid)
    if all(key in pods for key in state.snapshot.pending):
        return ()
    before, protection_of = dict(evicted[: decided[1]]), state.eviction_limits.protection_of
    return tuple(key for key, uids in pods.items() if not protection_of(uids, before))


def _is_proven(state: CycleState) -> bool:
    """Whether every search ended, and no node was reserved."""
    return not (state.is_unfinished or state.placer.reservations.active)


def _explain(state: CycleState, pending: Sequence[Gang]) -> None:
    """Add to the unschedulable reasons what only the state after all actions shows."""
    step = state.turns.step
    step("explain what is infeasible", explain_infeasible, state, pending)
    step("explain names", explain_unresolved_names, state, pending)
    short = without_victims(state, pending)
    step("explain protections", explain_protections, state, short)
    step("explain what waits", explain_postponed, state, pending)
    step("explain spot nodes", explain_fallback, state, pending)


def _next_end(state: CycleState, startups: Startups) -> float | None:
    """The earliest end of anything that gangs wait for.

    Seconds since the epoch; None if no gang waits for a known time.
    """
    ends = [*state.waiting.values(), *state.postponed.values(), *state.eviction_limits.ends]
    ends += (*state.report.checkpoint_ends, *state.spot.fallback_at.values())
    ends += startups.wake_at(state.snapshot, state.ready_rules)
    return min(ends, default=None)
