"""Settled gangs: those found unschedulable get no turn while nothing that concerns them changes.

The answer of a gang is its unschedulable reason. A cycle is *settled* if its actions finished and
decided nothing, and only time or a change of the cluster can make a difference. In the next cycle
the gangs that have an answer get no turn, as long as the inputs of searches, the decisions made
before the actions and the shares of queues are the same; only new and changed gangs get one. If one
of these is placed, or pods are evicted for it, the cycle is repeated with all gangs. O(1) per gang
that has its answer.

Most gangs that wait would bring their queue above its fair share, so they may reclaim nothing. If
only shares have changed, their answers hold where the queue would still be above its share, and
only the share that they name is renewed (``ShareRefusal``); the others get a turn.

The text of an answer may come from another gang with the same pods (``FailedRequests``), so the
answers of gangs of one shape are valid only while all of them request the same number of pods.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from msgspec import Struct, field, structs

from kai_py.plan.explain.protections import share_protection
from kai_py.plan.placement.exact import MAX_STEPS_PER_CYCLE
from kai_py.plan.plan import Plan, Protection, ProtectionRule, Unplaced
from kai_py.plan.search_cache.inputs import Decisions, InputsChange, InputsHistory
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.gang_queue import has_fixed_cost
from kai_py.plan.session.requests import request_signature
from kai_py.plan.state.queues import Quota
from kai_py.policy.ageing import QueueAgeing
from kai_py.policy.reclaim_rules import Reclaimer, ReclaimRefused, check_reclaimer
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.tables.queues import inherited

Pods = tuple[int, int]
"""The number of a shape, and how many pods of it are requested."""


class ShareRefusal(Struct, frozen=True, eq=False):
    """Why a gang, or several with the same request, may reclaim nothing."""

    reclaimer: Reclaimer
    refused: ReclaimRefused

    def renewed(self, quota: Quota) -> "_RenewedRefusal | None":
        """The refusal by the shares of ``quota``; None unless its amount and bound are the same."""
        refused = check_reclaimer(quota.usage, self.reclaimer, quota.rules)
        if refused is None or structs.replace(refused, bound=self.refused.bound) != self.refused:
            return None
        if refused == self.refused:
            return _RenewedRefusal(self)
        texts = [share_protection(each, quota.resources) for each in (self.refused, refused)]
        return _RenewedRefusal(ShareRefusal(self.reclaimer, refused), *texts)


class _RenewedRefusal(NamedTuple):
    """A refusal by other shares; ``before``, ``now``: what answers name, if that has changed."""

    refusal: ShareRefusal
    before: Protection | None = None
    now: Protection | None = None


class SettledGang(Struct, frozen=True):
    """A gang and its answer; ``pods``: its request, if the answer may come from another gang.

    ``refusal``: all that the answer takes from the shares of queues; None if it may be more.
    """

    gang: Gang
    answer: Unplaced | None
    pods: Pods | None
    had_turn: bool
    refusal: ShareRefusal | None = None

    def with_refusal(self, renewed: _RenewedRefusal) -> "SettledGang":
        """The same answer, with the share that it names now."""
        refusal, before, now = renewed
        if before is None or now is None:
            return self
        answer = self.answer and structs.replace(
            self.answer,
            message=self.answer.message.replace(before.message, now.message),
            without_advice=self.answer.without_advice.replace(before.message, now.message),
            protections=tuple(now if one == before else one for one in self.answer.protections),
        )
        return structs.replace(self, answer=answer, refusal=refusal)


class SettledCycle(Struct, frozen=True):
    """The answers of a cycle, and the decisions that they depend on.

    They are valid from ``since`` until before ``until`` (seconds since the epoch). ``probes`` and
    ``steps``: the cost of finding them, to be charged to the budgets of a cycle.
    """

    decisions: Decisions
    since: float
    until: float
    gangs: Mapping[str, SettledGang]
    probes: int = 0
    steps: int = 0
    protected_by: Mapping[str, str] = field(default_factory=dict)
    all_gangs: Mapping[str, Gang] | None = None
    """The gangs of the snapshot; later snapshots share the map as long as no gang changes."""
    ready: Set[str] = frozenset()
    """Keys of the gangs that could have a turn."""
    unplaced: tuple[Unplaced, ...] = ()
    """The answers as the plan listed them."""

    def holds(self, history: InputsHistory, decisions: Decisions, now: float) -> bool:
        """Whether answers hold after ``decisions``, ``now`` seconds since the epoch.

        If the shares differ, only some of them do (``still_valid``).
        """
        return (
            self.since <= now < self.until
            and history.change is InputsChange.UNCHANGED
            and self.decisions.equal_beside_shares(decisions)
        )

    def still_valid(
        self,
        state: CycleState,
        decisions: Decisions,
        ready: Sequence[Gang],
        ready_keys: Set[str],
    ) -> Mapping[str, SettledGang] | None:
        """By gang key, the answers that are still valid; None if all must be found again.

        ``ready``: the gangs that could have a turn, ``ready_keys`` their keys.
        """
        gangs = state.snapshot.gangs
        known = self.gangs if decisions == self.decisions else self._still_refused(state.quota)
        if not known:
            return None
        is_whole = len(known) == len(state.snapshot.pending)
        # Identity comes first: comparing sets costs O(gangs) even where both are the same object.
        same_ready = ready_keys is self.ready or ready_keys == self.ready
        if is_whole and gangs is self.all_gangs and same_ready:
            return known
        valid = {
            key: each
            for key, each in known.items()
            if gangs.get(key) is each.gang and (key in ready_keys) is each.had_turn
        }
        if len(valid) == len(known) == len(state.snapshot.pending):
            return valid
        sizes = _sizes(self.gangs.values())
        for key, each in self.gangs.items():
            if key not in valid and each.pods is not None and not sizes[each.pods[0]]:
                return None
        for gang in ready:
            pods = None if gang.key in valid else requested_pods(state, gang)
            if pods is not None and sizes.setdefault(pods[0], pods[1]) != pods[1]:
                return None
        return valid

    def charge(self, state: CycleState) -> None:
        """Charge the budgets of a cycle with what finding the answers cost."""
        state.search_budgets.probes -= self.probes
        state.placer.search_steps.spend(self.steps)
        state.eviction_limits.protected_by.update(self.protected_by)

    def _still_refused(self, quota: Quota) -> Mapping[str, SettledGang]:
        """By gang key, the answers that hold with other shares as well, which they name now.

        There are none if finding answers cost anything, as it is not known which ones; nor if gangs
        of one shape request different numbers of pods, as queues take their turns in another order.
        """
        if self.probes or self.steps or 0 in _sizes(self.gangs.values()).values():
            return {}
        refusals = {id(each.refusal): each.refusal for each in self.gangs.values()}
        renewed = {at: each.renewed(quota) for at, each in refusals.items() if each is not None}
        return {
            key: each.with_refusal(refusal)
            for key, each in self.gangs.items()
            if (refusal := renewed.get(id(each.refusal))) is not None
        }


def _sizes(settled: Iterable[SettledGang]) -> dict[int, int]:
    """By shape the number of pods that all of its gangs request, 0 if they differ."""
    sizes: dict[int, int] = {}
    for each in settled:
        if each.pods is not None:
            shape, size = each.pods
            sizes[shape] = size if sizes.get(shape, size) == size else 0
    return sizes


def requested_pods(state: CycleState, gang: Gang) -> Pods | None:
    """The shape and number of pods that the gang requests next; None if that is not comparable."""
    request = state.next_request(gang)
    shape = None if request is None else request_signature(state, gang, request)
    return None if request is None or shape is None else (shape, len(request.members))


RefusalKey = tuple[int, bool, bytes]
"""Position of a queue, whether the gang is preemptible, what its request costs."""


def _share_refusal(
    state: CycleState, gang: Gang, known: dict[RefusalKey, ShareRefusal | None]
) -> ShareRefusal | None:
    """Why the gang may reclaim nothing, if its answer takes nothing else from shares of queues.

    With the pods of claims it may do so at other costs, and nodes are reserved for several pods by
    what their queue may have at most. ``known``: of gangs before; added to.
    """
    request, queue = state.next_request(gang), state.quota.queue_of(gang)
    if request is None or queue is None or not has_fixed_cost(request):
        return None
    if gang.semi_preemptible or (state.settings.loss_rules.reserve_after and len(gang.pending) > 1):
        return None
    cost = state.request_cost(gang)
    key = queue, gang.preemptible, cost.tobytes()
    if key not in known:
        reclaimer = Reclaimer(queue, cost, gang.preemptible)
        refused = check_reclaimer(state.quota.usage, reclaimer, state.quota.rules)
        known[key] = None if refused is None else ShareRefusal(reclaimer, refused)
    return known[key]


def _depends_on_time(
    state: CycleState, pending: Collection[Gang], unplaced: Iterable[Unplaced]
) -> bool:
    """Whether an answer may change with time at moments that ``deadlines`` does not know."""
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
    return bool(configured) or any(gang.settings.ageing for gang in pending)


class FinishedCycle(Struct, frozen=True):
    """A cycle whose actions decided nothing after ``decisions``.

    ``ready``: keys of the gangs that could have a turn. ``settled``: answers taken over from the
    last cycle.
    """

    decisions: Decisions
    ready: Set[str]
    settled: Mapping[str, SettledGang]
    plan: Plan


def settle(state: CycleState, finished: FinishedCycle, until: float | None) -> SettledCycle | None:
    """The answers of a finished cycle; None where they change with time.

    ``until``: the first moment, in seconds, at which a plan may differ though nothing changes.
    """
    gangs = state.snapshot.gangs
    pending = [gangs[key] for key in state.snapshot.pending]
    if finished.plan.admissions or _depends_on_time(state, pending, finished.plan.unplaced):
        return None
    return SettledCycle(
        decisions=finished.decisions,
        since=state.snapshot.now,
        until=math.inf if until is None else until,
        gangs=_settled_gangs(state, pending, finished),
        probes=state.settings.victim_probes - state.search_budgets.probes,
        steps=MAX_STEPS_PER_CYCLE - state.placer.search_steps.left,
        protected_by=dict(state.eviction_limits.protected_by),
        all_gangs=gangs,
        ready=finished.ready,
        unplaced=finished.plan.unplaced,
    )


def _settled_gangs(
    state: CycleState, pending: Iterable[Gang], finished: FinishedCycle
) -> dict[str, SettledGang]:
    """By key, pending gangs with their answers.

    Without gangs behind the scheduling gate: whether they are admitted depends on other gangs.
    """
    answers = {each.gang: each for each in finished.plan.unplaced}
    refusals: dict[RefusalKey, ShareRefusal | None] = {}
    found: dict[str, SettledGang] = {}
    for gang in pending:
        settled = finished.settled.get(gang.key)
        if settled is None and not gang.has_our_gate:
            had_turn = gang.key in finished.ready
            pods = requested_pods(state, gang) if had_turn else None
            refusal = _share_refusal(state, gang, refusals) if had_turn else None
            settled = SettledGang(gang, answers.get(gang.key), pods, had_turn, refusal)
        if settled is not None:
            found[gang.key] = settled
    return found
