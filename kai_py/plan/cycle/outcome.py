"""The plan of a finished cycle, read off its statement and its unschedulable reasons.

Pods placed on idle capacity start, gang by gang; pods placed on future idle capacity are nominated.
Victims are evicted, or relocated where they were placed again. Every gang with pods left over is
listed with the first stage that stops it, and every queue with its shares.

A Job is suspended in place of evicting its pods where it asks for that (or by default, if so
configured) and the whole gang is evicted, and wherever it would fail with the pods that it loses:
then those go as well that could have stayed, as part of a Job can't be suspended.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from msgspec.structs import replace

from kai_py.dra.inventory import Inventory
from kai_py.grouping.gang_settings import Wording
from kai_py.plan.actions.resume import capacity_holds
from kai_py.plan.cycle.queue_shares import queue_shares
from kai_py.plan.explain.objects import object_problems
from kai_py.plan.observations import ObjectProblem
from kai_py.plan.placement.next_pods import elastic_pods, incomplete_subgroup, pod_not_ready
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import (
    SHORT_OF_CAPACITY,
    Action,
    Admission,
    Eviction,
    GangPlacement,
    Nomination,
    Plan,
    Stage,
    Unplaced,
)
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.turns import Turns
from kai_py.plan.state.assignment import Assignment, Evicted, gang_placement
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims.survival import SUSPENDED, effect_text, exceeded_limit
from kai_py.snapshot.admitted_gangs import can_be_suspended
from kai_py.snapshot.gangs import Gang, Member, PodState

SUSPENDING_ACTIONS = (Action.PREEMPT, Action.RECLAIM, Action.CONSOLIDATE)


def suspended_gangs(
    statement: Statement, leaving: Iterable[Evicted], *, by_default: bool
) -> frozenset[str]:
    """Keys of the gangs to suspend, of those that lose the pods ``leaving``."""
    victims: dict[str, list[Evicted]] = {}
    for victim in leaving:
        victims.setdefault(victim.gang.key, []).append(victim)
    return frozenset(
        key
        for key, lost in victims.items()
        if can_be_suspended(lost[0].gang)
        and (
            exceeded_limit(lost[0].gang, (each.member for each in lost)) is not None
            or _asks_for_suspension(statement, lost, by_default=by_default)
        )
    )


def _asks_for_suspension(
    statement: Statement, lost: Sequence[Evicted], *, by_default: bool
) -> bool:
    """Whether all of a gang is evicted that is suspended then, though it would survive it."""
    gang = lost[0].gang
    starting = any(member.pod.uid in statement.placed for member in gang.pending)
    return (
        (by_default if gang.suspend is None else gang.suspend)
        and len(lost) == len(gang.bound)
        and not starting
        and all(each.action in SUSPENDING_ACTIONS for each in lost)
    )


def _spares(state: CycleState) -> dict[str, tuple[str, ...]]:
    """The names of the spare nodes of each queue."""
    names = state.snapshot.nodes.names
    by_queue = state.placer.reservations.spares.rows
    return {queue: tuple(names[row] for row in rows) for queue, rows in by_queue.items()}


EXPECTED_PODS_COUNT = SHORT_OF_CAPACITY | {Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE}
"""Stages at which pods that do not exist yet are requested together with those that do."""


def build_plan(
    state: CycleState,
    inventory: Inventory,
    *,
    placements: tuple[GangPlacement, ...],
    evictions: tuple[Eviction, ...],
    admissions: tuple[Admission, ...],
    unplaced: tuple[Unplaced, ...],
    pending_by_queue: Mapping[str, int],
    problems: tuple[ObjectProblem, ...],
) -> Plan:
    """The decisions of the cycle, in the order of decision.

    ``pending_by_queue``: how many gangs are pending; ``problems``: known ones.
    """
    nominations: list[Nomination] = []
    names, step = state.snapshot.nodes.names, state.turns.step
    promised = {row for each in state.placer.reservations.active for row in each.rows}
    for uid, assignment in state.statement.placed.items():
        if uid in state.statement.evicted:
            continue
        if assignment.member.state is PodState.EXPECTED:
            promised.add(assignment.row)
        elif assignment.capacity is not Capacity.IDLE:
            promised.add(assignment.row)
            nominations.append(
                Nomination(assignment.gang.key, assignment.member.pod, names[assignment.row])
            )
    reservation = state.reservation_seconds
    found = step("problems", lambda: object_problems(state.snapshot, inventory))
    holds = step("holds", lambda: tuple(capacity_holds(state.snapshot, reservation)))
    spares = step("spares", lambda: _spares(state)) or {}
    shares = step("queue shares", lambda: queue_shares(state, pending_by_queue, spares))
    return Plan(
        placements=placements,
        nominations=tuple(nominations),
        evictions=evictions,
        unplaced=unplaced,
        queues=shares or (),
        problems=(*(found or ()), *problems),
        admissions=admissions,
        holds=holds or (),
        checkpoints=tuple(state.checkpoints),
        at_risk=tuple(state.at_risk.values()),
        promised_nodes=tuple(names[row] for row in sorted(promised)),
        starting=tuple(state.starting.values()),
        avoided_nodes=state.avoided_nodes,
        avoided_devices=state.avoided_devices,
        set_aside=tuple(state.turns.failed.values()),
        failed_extensions=tuple(state.turns.extensions.failed.values()),
    )


def with_failures(plan: Plan, turns: Turns) -> Plan:
    """``plan`` with what has failed since it was made."""
    failed = tuple(turns.extensions.failed.values())
    known = len(failed) == len(plan.failed_extensions)
    return plan if known else dataclasses.replace(plan, failed_extensions=failed)


def gang_placements(state: CycleState) -> tuple[GangPlacement, ...]:
    """The pods that start now, by gang; a gang for which this fails is set aside."""
    starting: dict[str, list[Assignment]] = {}
    for uid, each in state.statement.placed.items():
        starts = each.capacity is Capacity.IDLE and each.member.state is not PodState.EXPECTED
        if starts and uid not in state.statement.evicted:
            starting.setdefault(each.gang.key, []).append(each)
    placements: list[GangPlacement] = []
    volumes = state.statement.volumes
    for pods in starting.values():
        try:
            placements.append(gang_placement(pods, state.snapshot.nodes.names, volumes))
        except Exception as error:
            # Its pods stay pending; the other gangs have been placed beside them.
            state.turns.fail(pods[0].gang, error)
    return tuple(placements)


def list_evictions(state: CycleState, *, suspend_jobs: bool) -> tuple[Eviction, ...]:
    """Every eviction of the cycle; a pod placed on its own node again, unchanged, stays.

    Not where a node is about to go: the pods of a gang that moves whole restart together.
    """
    relocated = {
        uid: state.snapshot.nodes.names[assignment.row]
        for uid, assignment in state.statement.placed.items()
        if uid in state.statement.evicted
    }
    leaving = [
        victim
        for uid, victim in state.statement.evicted.items()
        if relocated.get(uid) != victim.member.node
        or victim.action is Action.DEPARTURE
        or _changes_devices(state, victim)
    ]
    suspended = suspended_gangs(state.statement, leaving, by_default=suspend_jobs)
    effects = _effects(leaving, suspended)
    return tuple(
        Eviction(
            pod=victim.member.pod,
            node=victim.member.node,
            gang=victim.gang.key,
            owner=victim.gang.owner,
            queue=victim.gang.queue,
            action=victim.action,
            preemptor=victim.beneficiary.key,
            preemptor_queue=victim.beneficiary.queue,
            reason=victim.reason,
            relocated_to=relocated.get(victim.member.pod.uid, ""),
            suspend=victim.gang.key in suspended,
            effect=effects[victim.gang.key],
        )
        for victim in _with_all_pods(leaving, suspended)
    )


def _effects(leaving: Sequence[Evicted], suspended: Set[str]) -> dict[str, str]:
    """By gang what the evictions do to its workload."""
    lost: dict[str, list[Evicted]] = {}
    for victim in leaving:
        lost.setdefault(victim.gang.key, []).append(victim)
    return {
        key: SUSPENDED
        if key in suspended
        else effect_text(victims[0].gang, [each.member for each in victims])
        for key, victims in lost.items()
    }


def _with_all_pods(leaving: Sequence[Evicted], suspended: Set[str]) -> Iterator[Evicted]:
    """``leaving``, and after the first pod of a Job to suspend all of its other pods."""
    listed = {victim.member.pod.uid for victim in leaving}
    for victim in leaving:
        yield victim
        if victim.gang.key not in suspended:
            continue
        for member in victim.gang.bound:
            if member.pod.uid not in listed:
                listed.add(member.pod.uid)
                yield replace(victim, member=member)


def _changes_devices(state: CycleState, victim: Evicted) -> bool:
    """Whether a pod that is placed on its own node again gets other devices there."""
    placed_again = state.statement.placed[victim.member.pod.uid].member
    # `is not`: relocation gives a pod with new device claims a new Member, and only then.
    return bool(placed_again.gpus) or placed_again is not victim.member


def list_unplaced(
    state: CycleState, pending: Sequence[Gang], answers: Mapping[str, Unplaced | None]
) -> tuple[Unplaced, ...]:
    """The gangs with pods that are left over, and why.

    ``answers``: by key of a gang what is known of it already; None: nothing of it is unplaced.
    """
    unplaced: list[Unplaced] = []
    placed = state.statement.placed
    for gang in pending:
        if gang.key in answers:
            answer = answers[gang.key]
            unplaced += () if answer is None else (answer,)
            continue
        pods = tuple([m.pod for m in gang.members if _is_unplaced(placed, m)])
        if not pods:
            continue
        try:
            reason = state.unschedulable.get(gang.key) or _default_reason(state, gang)
            elastic = elastic_pods(gang, state.statement)
        except Exception as error:
            # What fails for one gang must not take the plan of all others with it.
            state.turns.fail(gang, error)
            reason, elastic = _failure_reason(state, gang), ()
        unplaced.append(
            Unplaced(
                gang=gang.key,
                owner=gang.owner,
                queue=gang.queue,
                stage=reason.stage,
                message=_message(gang, reason),
                pods=pods,
                marked=gang.mark_unschedulable,
                shortage=reason.shortage,
                protections=reason.protections,
                elastic=elastic,
                ageing_points=state.ageing.points(gang),
                is_infeasible=bool(reason.infeasible),
            )
        )
    return tuple(unplaced)


def _failure_reason(state: CycleState, gang: Gang) -> Unschedulable:
    failed = state.turns.failed[gang.key]
    return Unschedulable(Stage.SCHEDULER_ERROR, f"{failed.message}.")


def _message(gang: Gang, reason: Unschedulable) -> str:
    """Whether waiting can help, the reason, and the expected pods that had to fit as well."""
    if gang.wording is Wording.NATIVE and (reason.infeasible or reason.hint):
        infeasible = f"Infeasible: {reason.infeasible}. " if reason.infeasible else ""
        message = reason.message_beside_infeasible.rstrip(".")
        hint = f" {reason.hint}" if reason.hint else ""
        return f"{infeasible}{message}.{hint}"
    if not gang.placeholders or reason.stage not in EXPECTED_PODS_COUNT:
        return reason.message
    count = len(gang.placeholders)
    expected = (
        f"{count} pods that are not created yet" if count > 1 else "a pod that is not created yet"
    )
    return f"{reason.message} Capacity is also needed for {expected}."


def _is_unplaced(placed: Mapping[str, Assignment], member: Member) -> bool:
    assignment = placed.get(member.pod.uid)
    return not member.node if assignment is None else assignment.capacity is Capacity.FUTURE_IDLE


def _default_reason(state: CycleState, gang: Gang) -> Unschedulable:
    if gang.attempts_exhausted:
        hint = "see its condition for the reason"
        return Unschedulable(Stage.BACKOFF, f"its only scheduling attempt has been made; {hint}.")
    if gang.key in state.snapshot.in_backoff:
        reason = state.snapshot.in_backoff[gang.key] or "see the gang's events"
        return Unschedulable(
            Stage.SCHEDULER_ERROR, f"the last attempts to start it failed: {reason}."
        )
    not_ready = next((m for m in gang.pending if m.waiting_for), None)
    if not_ready is not None and not_ready.pod.uid not in state.statement.placed:
        return pod_not_ready(gang, not_ready)
    placed = state.statement.placed
    nominated = [m for m in gang.pending if m.pod.uid in placed and _is_unplaced(placed, m)]
    incomplete = None if nominated else incomplete_subgroup(gang)
    return incomplete or Unschedulable(
        Stage.NOMINATED,
        f"capacity is being freed for {len(nominated or gang.pending)} pods; they start when the "
        "terminating pods have ended.",
    )
