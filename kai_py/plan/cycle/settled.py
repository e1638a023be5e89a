"""Gangs that a cycle found unschedulable stay so while nothing that concerns them has changed.

A cycle is *settled* if its actions decided nothing, finished, and nothing but time and the cluster
can change that. In the next one the gangs that had their answer have no turn, as long as the inputs
of searches, what was decided before the actions and the shares of queues are the same: only gangs
that are new or have changed do. Where one of these is placed, or pods are evicted for it, the cycle
is repeated with all gangs, as their chances differ then. O(1) per gang that had its answer.

The text of an answer may come from another gang with the same pods (``FailedRequests``), so gangs
of one shape count as settled only while all of them ask for the same number.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kai_py.plan.placement.exact import MAX_STEPS_PER_CYCLE
from kai_py.plan.plan import Plan, ProtectionRule, Unplaced
from kai_py.plan.search_cache.inputs import Decisions, InputsChange, InputsHistory
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.requests import request_signature
from kai_py.policy.ageing import QueueAgeing
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queues import inherited

Pods = tuple[int, int]
"""The number of a shape, and how many pods of it are requested."""


@dataclass(frozen=True, slots=True)
class SettledGang:
    """A gang and its answer; ``pods``: its request where others may have had it before."""

    gang: Gang
    answer: Unplaced | None
    pods: Pods | None
    had_turn: bool


@dataclass(frozen=True, slots=True)
class SettledCycle:
    """The answers of a cycle, and what they rest on; they hold before ``until`` (seconds).

    ``probes`` and ``steps``: what finding them took of the budgets of a cycle.
    """

    decisions: Decisions
    until: float
    gangs: Mapping[str, SettledGang]
    probes: int = 0
    steps: int = 0
    protected_by: Mapping[str, str] = field(default_factory=dict)

    def holds(self, history: InputsHistory, decisions: Decisions | None, now: float) -> bool:
        """Whether the answers hold after ``decisions``, ``now`` seconds since the epoch."""
        return (
            now < self.until
            and history.change is InputsChange.UNCHANGED
            and self.decisions == decisions
        )

    def kept(self, state: CycleState, ready: Sequence[Gang]) -> dict[str, SettledGang] | None:
        """The answers that are still right for ``ready``; None where all have to be found again."""
        gangs, turns = state.snapshot.gangs, {gang.key for gang in ready}
        kept = {
            key: known
            for key, known in self.gangs.items()
            if gangs.get(key) is known.gang and (key in turns) is known.had_turn
        }
        if len(kept) == len(self.gangs) == len(state.snapshot.pending):
            return kept
        sizes = self._sizes()
        for key, known in self.gangs.items():
            if key not in kept and known.pods is not None and not sizes[known.pods[0]]:
                return None
        for gang in ready:
            pods = None if gang.key in kept else requested_pods(state, gang)
            if pods is not None and sizes.get(pods[0], pods[1]) != pods[1]:
                return None
        return kept

    def charge(self, state: CycleState) -> None:
        """Charge a cycle with what the answers took when they were found."""
        state.probes -= self.probes
        state.placer.search_steps.spend(self.steps)
        state.eviction_limits.protected_by.update(self.protected_by)

    def _sizes(self) -> dict[int, int]:
        """By shape the number of pods that all of its gangs request, 0 if they differ."""
        sizes: dict[int, int] = {}
        for known in self.gangs.values():
            if known.pods is not None:
                shape, size = known.pods
                sizes[shape] = size if sizes.get(shape, size) == size else 0
        return sizes


def requested_pods(state: CycleState, gang: Gang) -> Pods | None:
    """What the gang requests next, where requests for pods of its shape are comparable."""
    request = state.next_request(gang)
    shape = None if request is None else request_signature(state, gang, request)
    return None if request is None or shape is None else (shape, len(request.members))


def _depends_on_time(
    state: CycleState, pending: Collection[Gang], unplaced: Iterable[Unplaced]
) -> bool:
    """Whether an answer changes as time goes on, beside what deadlines say."""
    queues = state.snapshot.queues
    reserves = any(inherited(queues, lambda spec: spec.reserve_after).values())
    return (
        reserves
        or bool(state.placer.reservations.active or state.waiting or state.postponed)
        or _ages(state.ageing, pending)
        # This goes through all gangs; while none is pending, no pod needs protection.
        or (bool(pending) and state.eviction_limits.has_settling_pods)
        or any(
            each.rule is ProtectionRule.MIN_RUNTIME for one in unplaced for each in one.protections
        )
    )


def _ages(ageing: QueueAgeing, pending: Iterable[Gang]) -> bool:
    configured = ageing.default.seconds or any(ageing.seconds.values())
    return bool(configured) or any(gang.ageing for gang in pending)


@dataclass(frozen=True, slots=True)
class FinishedCycle:
    """A cycle whose actions decided nothing after ``decisions``.

    ``ready``: keys of the gangs that could have a turn. ``known``: answers taken from the cycle
    before. ``probe_budget``: of all searches for victims.
    """

    decisions: Decisions
    ready: Collection[str]
    known: Mapping[str, SettledGang]
    plan: Plan
    probe_budget: int


def settle(state: CycleState, finished: FinishedCycle, until: float | None) -> SettledCycle | None:
    """The answers of a finished cycle; None where they change with time.

    ``until``: the first moment, in seconds, at which a plan may differ though nothing changes.
    """
    gangs = state.snapshot.gangs
    pending = [gangs[key] for key in state.snapshot.pending]
    if finished.plan.admissions or _depends_on_time(state, pending, finished.plan.unplaced):
        return None
    return SettledCycle(
        finished.decisions,
        math.inf if until is None else until,
        _settled_gangs(state, pending, finished),
        finished.probe_budget - state.probes,
        MAX_STEPS_PER_CYCLE - state.placer.search_steps.left,
        dict(state.eviction_limits.protected_by),
    )


def _settled_gangs(
    state: CycleState, pending: Iterable[Gang], finished: FinishedCycle
) -> dict[str, SettledGang]:
    """Gangs behind our gate have no answer that is kept, as others that wait decide about them."""
    answers = {each.gang: each for each in finished.plan.unplaced}
    found: dict[str, SettledGang] = {}
    for gang in pending:
        known = finished.known.get(gang.key)
        if known is None and not gang.has_our_gate:
            had_turn = gang.key in finished.ready
            pods = requested_pods(state, gang) if had_turn else None
            known = SettledGang(gang, answers.get(gang.key), pods, had_turn)
        if known is not None:
            found[gang.key] = known
    return found
