"""The plan of a finished cycle, read off its statement and its unschedulable reasons.

Pods placed on idle capacity start, gang by gang; pods placed on future idle capacity are nominated.
Victims are evicted, or relocated where they were placed again. Every gang with pods left over is
listed with the first stage that stops it, and every queue with its shares.

A Job is suspended in place of evicting its pods where it asks for that (or by default, if so
configured) and the whole gang is evicted, and wherever it would fail with the pods that it loses:
then those go as well that could have stayed, as part of a Job can't be suspended.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import isnan

import numpy as np
from msgspec.structs import replace

from kai_py.dra.inventory import Inventory
from kai_py.grouping.gang_settings import Wording
from kai_py.plan.actions.resume import capacity_holds
from kai_py.plan.explain.objects import object_problems
from kai_py.plan.observations import QueueShare
from kai_py.plan.placement.next_pods import elastic_pods, incomplete_subgroup, pod_not_ready
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import (
    SHORT_OF_CAPACITY,
    Action,
    Admission,
    Eviction,
    GangPlacement,
    Nomination,
    Placement,
    Plan,
    Stage,
    Unplaced,
)
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.assignment import Assignment, Evicted
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.eviction_limits import EvictionLimits
from kai_py.plan.state.queues import Quota
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims.survival import SUSPENDED, can_be_suspended, effect_text, exceeded_limit
from kai_py.snapshot.admitted_gangs import expected_pods
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.suspended_jobs import is_placeholder

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


def queue_shares(
    quota: Quota,
    pending: Sequence[Gang],
    eviction_limits: EvictionLimits,
    spares: Mapping[str, tuple[str, ...]],
) -> tuple[QueueShare, ...]:
    """Every queue as this cycle saw it, by name; includes what the cycle placed.

    ``spares``: nodes by queue.
    """
    pending_by_queue: dict[str, int] = {}
    for gang in pending:
        pending_by_queue[gang.queue] = pending_by_queue.get(gang.queue, 0) + 1
    queues, usage, shares = quota.queues, quota.usage, quota.shares
    deserved = _amounts_by_queue(quota, queues.deserved)
    maximum = _amounts_by_queue(quota, queues.max)
    fair = _amounts_by_queue(quota, shares.fair)
    allocated = _amounts_by_queue(quota, usage.allocated)
    demand = _amounts_by_queue(quota, quota.demand)
    infeasible = _amounts_by_queue(quota, quota.infeasible)
    non_preemptible = _amounts_by_queue(quota, usage.non_preemptible)
    scaled = _amounts_by_queue(quota, np.where(shares.scaled, shares.deserved, np.nan))
    return tuple(
        QueueShare(
            queue=name,
            deserved=deserved[q],
            maximum=maximum[q],
            fair_share=fair[q],
            allocated=allocated[q],
            requested=demand[q],
            infeasible={name: amount for name, amount in infeasible[q].items() if amount},
            pending_gangs=pending_by_queue.get(name, 0),
            problems=tuple(each for each in quota.problems if each.queue == name),
            parent=queues.names[queues.parent[q]] if queues.depth[q] else "",
            scaled_deserved={key: amount for key, amount in scaled[q].items() if not isnan(amount)},
            non_preemptible=non_preemptible[q],
            priority=int(queues.priority[q]),
            spares=spares.get(name, ()),
            is_open=all(queues.namespaces[above] is None for above in queues.ancestry[q]),
            past_usage=quota.past_usage.get(name),
            evictions=eviction_limits.counted_evictions(name),
        )
        for name, q in sorted(queues.positions.items())
    )


def _amounts_by_queue(quota: Quota, amounts: Floats) -> list[dict[str, float]]:
    """For each queue its column of ``amounts`` (resources, queues), by resource name."""
    return [dict(zip(quota.resources, column, strict=True)) for column in amounts.T.tolist()]


EXPECTED_PODS_COUNT = SHORT_OF_CAPACITY | {Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE}
"""Stages at which pods that do not exist yet are requested together with those that do."""


def build_plan(
    state: CycleState,
    pending: Sequence[Gang],
    inventory: Inventory,
    *,
    evictions: tuple[Eviction, ...],
    admissions: tuple[Admission, ...],
    answers: Mapping[str, Unplaced | None],
) -> Plan:
    """The decisions of the cycle, in the order of decision.

    ``answers``: by key of a gang what is known of it already; None: nothing of it is unplaced.
    """
    starting: dict[str, list[Assignment]] = {}
    nominations: list[Nomination] = []
    names = state.snapshot.nodes.names
    for uid, assignment in state.statement.placed.items():
        if uid in state.statement.evicted or assignment.member.state is PodState.EXPECTED:
            continue
        if assignment.capacity is Capacity.IDLE:
            starting.setdefault(assignment.gang.key, []).append(assignment)
        else:
            nominations.append(
                Nomination(assignment.gang.key, assignment.member.pod, names[assignment.row])
            )
    return Plan(
        placements=tuple(_gang_placement(state, pods) for pods in starting.values()),
        nominations=tuple(nominations),
        evictions=evictions,
        unplaced=tuple(_unplaced(state, pending, answers)),
        queues=queue_shares(state.quota, pending, state.eviction_limits, _spares(state)),
        problems=object_problems(state.snapshot, inventory),
        admissions=admissions,
        holds=tuple(capacity_holds(state.snapshot, state.reservation_seconds)),
        checkpoints=tuple(state.checkpoints),
        at_risk=tuple(state.at_risk.values()),
        promised_nodes=_promised_nodes(state),
        starting=tuple(state.starting.values()),
        avoided_nodes=state.avoided_nodes,
        avoided_devices=state.avoided_devices,
        set_aside=tuple(state.turns.failed.values()),
        failed_extensions=tuple(state.turns.extensions.failed.values()),
    )


def _promised_nodes(state: CycleState) -> tuple[str, ...]:
    """Nodes whose capacity waits for pods: nominated, held for pods to come, or reserved."""
    rows = {
        each.row
        for uid, each in state.statement.placed.items()
        if uid not in state.statement.evicted
        and (each.member.state is PodState.EXPECTED or each.capacity is Capacity.FUTURE_IDLE)
    }
    rows.update(row for each in state.placer.reservations.active for row in each.rows)
    return tuple(state.snapshot.nodes.names[row] for row in sorted(rows))


def _gang_placement(state: CycleState, pods: Sequence[Assignment]) -> GangPlacement:
    gang, names = pods[0].gang, state.snapshot.nodes.names
    return GangPlacement(
        gang=gang.key,
        owner=gang.owner,
        queue=gang.queue,
        action=pods[0].action,
        pods=tuple(
            Placement(
                p.member.pod,
                names[p.row],
                p.allocations,
                p.reserved_claims,
                p.gpus,
                p.member.gpus,
                p.create_claim,
                provision=p.member.volumes_to_provision,
                group_reservation=p.member.group_reservation,
                volumes=state.statement.volumes.assumed_for(p.member.pod.uid),
                subgroup=p.member.subgroup,
                gpu_share=p.member.shape.gpu_share,
                node_claims=p.node_claims,
                node_amounts=p.node_amounts,
            )
            for p in pods
        ),
        resume=any(is_placeholder(p.member.pod.uid) for p in pods),
        tree=gang.tree,
        priority=gang.priority,
        preemptible=gang.preemptible,
        semi_preemptible=gang.semi_preemptible,
        expected_runtime=gang.expected_runtime,
        expected=expected_pods(gang) if gang.placeholders else (),
    )


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


def _unplaced(
    state: CycleState, pending: Sequence[Gang], answers: Mapping[str, Unplaced | None]
) -> list[Unplaced]:
    unplaced: list[Unplaced] = []
    for gang in pending:
        if gang.key in answers:
            answer = answers[gang.key]
            unplaced += () if answer is None else (answer,)
            continue
        pods = tuple(m.pod for m in gang.members if _is_unplaced(state, m))
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
    return unplaced


def _failure_reason(state: CycleState, gang: Gang) -> Unschedulable:
    failed = state.turns.failed[gang.key]
    return Unschedulable(Stage.SCHEDULER_ERROR, f"{failed.message}.")


def _message(gang: Gang, reason: Unschedulable) -> str:
    """Whether waiting can help, the reason, and the expected pods that had to fit as well."""
    if gang.wording is Wording.NATIVE and (reason.infeasible or reason.hint):
        infeasible = f"Infeasible: {reason.infeasible}. " if reason.infeasible else ""
        message = reason.message.rstrip(".")
        if reason.infeasible:
            message = message.replace(f": {reason.infeasible}", "")
        hint = f" {reason.hint}" if reason.hint else ""
        return f"{infeasible}{message}.{hint}"
    if not gang.placeholders or reason.stage not in EXPECTED_PODS_COUNT:
        return reason.message
    count = len(gang.placeholders)
    expected = (
        f"{count} pods that are not created yet" if count > 1 else "a pod that is not created yet"
    )
    return f"{reason.message} Capacity is also needed for {expected}."


def _is_unplaced(state: CycleState, member: Member) -> bool:
    assignment = state.statement.placed.get(member.pod.uid)
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
    nominated = [
        m for m in gang.pending if m.pod.uid in state.statement.placed and _is_unplaced(state, m)
    ]
    incomplete = None if nominated else incomplete_subgroup(gang)
    return incomplete or Unschedulable(
        Stage.NOMINATED,
        f"capacity is being freed for {len(nominated or gang.pending)} pods; they start when the "
        "terminating pods have ended.",
    )
