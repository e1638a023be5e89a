"""Gangs with pods that are left over after a cycle, each with the first stage that stops it."""

from collections.abc import Mapping, Sequence

from kai_py.api.references import PodRef
from kai_py.grouping.gang_settings import Wording
from kai_py.plan.placement.next_pods import elastic_pods, incomplete_subgroup, pod_not_ready
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import SHORT_OF_CAPACITY, Stage, Unplaced
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.assignment import Assignment
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Gang

EXPECTED_PODS_COUNT = SHORT_OF_CAPACITY | {Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE}
"""Stages at which pods that do not exist yet are requested together with those that do."""


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
        pods = _unplaced_pods(placed, gang)
        if not pods:
            continue
        try:
            reason = state.unschedulable.get(gang.key) or _default_reason(state, gang)
            elastic = elastic_pods(gang, state.statement, state.can_never_run)
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
    # The events of KAI's wording are made from the shortage, other texts of it are the message.
    is_free = gang.wording is Wording.NATIVE or reason.shortage is not None
    expected = _expected_text(len(gang.placeholders)) if reason.stage in EXPECTED_PODS_COUNT else ""
    if not is_free or not (reason.infeasible or reason.hint):
        return f"{reason.message}{expected}"
    infeasible = f"Infeasible: {reason.infeasible}. " if reason.infeasible else ""
    message = reason.message_beside_infeasible.rstrip(".")
    hint = f" {reason.hint}" if reason.hint else ""
    return f"{infeasible}{message}.{hint}{expected}"


def _expected_text(count: int) -> str:
    if not count:
        return ""
    pods = f"{count} pods that are" if count > 1 else "a pod that is"
    return f" Capacity is also needed for {pods} not created yet."


def _unplaced_pods(placed: Mapping[str, Assignment], gang: Gang) -> tuple[PodRef, ...]:
    """The pods of the gang that are on no node and do not start now."""
    left: list[PodRef] = []
    for member in gang.members:
        assignment = placed.get(member.pod.uid)
        if assignment is None:
            left += () if member.node else (member.pod,)
        elif assignment.capacity is Capacity.FUTURE_IDLE:
            left.append(member.pod)
    return tuple(left)


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
    assignments = [placed[m.pod.uid] for m in gang.pending if m.pod.uid in placed]
    nominated = [each for each in assignments if each.capacity is Capacity.FUTURE_IDLE]
    incomplete = None if nominated else incomplete_subgroup(gang)
    return incomplete or Unschedulable(
        Stage.NOMINATED,
        f"capacity is being freed for {len(nominated or gang.pending)} pods; they start when the "
        "terminating pods have ended.",
    )
