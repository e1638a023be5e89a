"""Admit: take our own scheduling gate from gangs that their queue has room for.

A gated pod is seen by no autoscaler, so a gang that waits for its queue calls for no nodes. It is
admitted once all of it that must start together exists, no other gate holds it, and it keeps to the
bounds of its queues beside everything that was admitted before it and waits for room. Of pods above
the floor one is admitted at a time. Nothing is placed here: the next cycle does that.

Order: priority, with what waiting counts, then age. O(waiting pods), only while a pod has the gate.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kai_py.plan.explain.reasons import Unschedulable
from kai_py.plan.placement.next_pods import next_request, precondition
from kai_py.plan.plan import Admission
from kai_py.plan.quota_check import check_quota
from kai_py.plan.session import CycleState
from kai_py.snapshot.gangs import Gang, Member, PodState


def admit(state: CycleState, gangs: Iterable[Gang]) -> tuple[Admission, ...]:
    """Which gates to lift; gangs that must wait get their obstacle in ``state``."""
    pending = tuple(gangs)
    gated = [gang for gang in pending if any(map(has_only_our_gate, gang.members))]
    if not gated:
        return ()
    undo = [_charge(state, gang, _already_admitted(state, gang)) for gang in pending]
    admitted: list[Admission] = []
    rank = state.ageing.priority
    for gang in sorted(gated, key=lambda g: (-rank(g), g.created, g.key)):
        pods = _admissible_pods(state, gang)
        if pods:
            undo.append(_charge(state, gang, pods))
            admitted.append(Admission(gang.key, tuple(member.pod for member in pods)))
    for step in reversed(undo):
        step()
    return tuple(admitted)


def has_only_our_gate(member: Member) -> bool:
    """Whether nothing but our gate holds the pod."""
    return member.state is PodState.GATED and member.gated_by_us_only


def _already_admitted(state: CycleState, gang: Gang) -> list[Member]:
    """Pods that were admitted before and found no room in this cycle."""
    return [member for member in gang.pending if member.pod.uid not in state.statement.placed]


def _admissible_pods(state: CycleState, gang: Gang) -> Sequence[Member]:
    opened = replace(gang, members=tuple(map(_without_gate, gang.members)))
    ask = next_request(opened, state.statement)
    obstacle = precondition(opened, state.quota, state.snapshot.namespaces)
    if obstacle is not None or ask is None:
        return ()
    everybody = [member for member in opened.pending if member.gated_by_us_only]
    if _check_quota(state, opened, everybody) is None:
        return everybody
    needed = [member for member in ask.members if member.gated_by_us_only]
    over = _check_quota(state, opened, needed)
    if over is not None:
        state.mark_unschedulable(gang, over)
        return ()
    return needed


def _check_quota(state: CycleState, gang: Gang, pods: Sequence[Member]) -> Unschedulable | None:
    return check_quota(state.quota, gang, pods, state.quota.cost_of(pods))


def _without_gate(member: Member) -> Member:
    return replace(member, state=PodState.PENDING) if has_only_our_gate(member) else member


def _charge(state: CycleState, gang: Gang, members: Sequence[Member]) -> Callable[[], None]:
    charge = state.quota.charge
    steps = [
        charge(gang, each.charge, 1.0, non_preemptible=gang.is_non_preemptible(each))
        for each in members
    ]

    def undo() -> None:
        for step in reversed(steps):
            step()

    return undo
