"""Admit: remove the scheduler's own gate from gangs that fit their queue's quota.

Autoscalers ignore gated pods, so a gang that waits for its queue asks for no nodes. It is admitted
once all pods that must start together exist, no other gate holds them, and they are within the
bounds of their queues beside everything that was admitted before and is still pending. Elastic pods
are admitted one at a time. Nothing is placed here: the next cycle does that.

Order: priority including ageing, then age. O(pending pods), only while a pod has the gate.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from kai_py.plan.placement.next_pods import next_request, precondition
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Admission
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.device_options import least_cost
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.state.undo import Undo, undo_all
from kai_py.snapshot.gangs import Gang, Member, PodState


def admit(
    state: CycleState, pending: Sequence[Gang], gated: Sequence[Gang]
) -> tuple[Admission, ...]:
    """The gates to remove; gangs that must wait get their unschedulable reason in ``state``.

    ``gated``: those of ``pending`` with a pod that only our gate holds.
    """
    if not gated:
        return ()
    undo = [_charge(state, gang, _already_admitted(state, gang)) for gang in pending]
    admitted: list[Admission] = []
    priority = state.ageing.priority
    order = sorted(gated, key=lambda g: (-priority(g), g.created, g.key))
    for gang in state.turns.eligible(order):
        with state.turns.of(gang):
            pods = _admissible_pods(state, gang)
            if pods:
                undo.append(_charge(state, gang, pods))
                admitted.append(Admission(gang.key, tuple(member.pod for member in pods)))
    undo_all(undo)()
    return tuple(admitted)


def _already_admitted(state: CycleState, gang: Gang) -> list[Member]:
    """Pods that were admitted before and that this cycle did not place."""
    return [member for member in gang.pending if member.pod.uid not in state.statement.placed]


def _admissible_pods(state: CycleState, gang: Gang) -> Sequence[Member]:
    ungated = replace(gang, members=tuple(map(_without_gate, gang.members)))
    request = next_request(ungated, state.statement, state.can_never_run)
    blocked = precondition(ungated, state.queue_refuses)
    if blocked is not None or request is None:
        return ()
    gated = [member for member in ungated.pending if member.gated_by_us_only]
    if _check_quota(state, ungated, gated) is None:
        # All at once if they fit: one at a time would cost an elastic gang a cycle per pod.
        return gated
    required = [member for member in request.members if member.gated_by_us_only]
    over = _check_quota(state, ungated, required)
    if over is not None:
        state.mark_unschedulable(gang, over)
        return ()
    return required


def _check_quota(state: CycleState, gang: Gang, pods: Sequence[Member]) -> Unschedulable | None:
    over = check_quota(state.quota, gang, pods, state.quota.cost_of(pods))
    return over and check_quota(state.quota, gang, pods, least_cost(state, pods))


def _without_gate(member: Member) -> Member:
    """``member`` as if our gate were removed; it stays gated where others hold it as well."""
    is_held = member.state is PodState.GATED and member.gated_by_us_only
    return replace(member, state=PodState.PENDING) if is_held else member


def _charge(state: CycleState, gang: Gang, members: Sequence[Member]) -> Undo:
    charge = state.quota.charge
    return undo_all(
        [
            charge(gang, each.charge, 1.0, non_preemptible=gang.is_non_preemptible(each))
            for each in members
        ]
    )
