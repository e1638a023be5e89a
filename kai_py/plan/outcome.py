"""What has a cycle decided? The plan as data, read off the statement and the obstacles met.

What was placed for now starts, gang by gang; what was placed for later is nominated; who is in the
way leaves, or moves. Every gang with pods left over is told the first stage that stops it.
"""

from collections.abc import Sequence

from kai_py.dra.inventory import Inventory
from kai_py.plan.explain.objects import object_problems
from kai_py.plan.explain.reasons import Obstacle
from kai_py.plan.placement.next_pods import kept_back, subgroup_lacks, surplus_of
from kai_py.plan.plan import (
    SHORT_OF_ROOM,
    Admission,
    Eviction,
    GangPlacement,
    Nomination,
    Placement,
    Plan,
    Stage,
    Unplaced,
)
from kai_py.plan.queue_shares import queue_shares
from kai_py.plan.session import CycleState
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.statement import Evicted, Planned
from kai_py.plan.suspension import suspended_gangs
from kai_py.snapshot.gangs import Gang, Member, PodState
from kai_py.snapshot.suspended import is_stand_in

LATER_PODS_COUNT = SHORT_OF_ROOM | {Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE}
"""Stages at which pods that do not exist yet are asked for together with those that do."""


def plan_of(
    state: CycleState,
    pending: Sequence[Gang],
    inventory: Inventory,
    *,
    evictions: tuple[Eviction, ...],
    admissions: tuple[Admission, ...],
) -> Plan:
    """What was decided, in the order of decision."""
    starting: dict[str, list[Planned]] = {}
    nominations: list[Nomination] = []
    names = state.snapshot.nodes.names
    for uid, planned in state.statement.placed.items():
        if uid in state.statement.evicted or planned.member.state is PodState.AWAITED:
            continue
        if planned.room is Room.NOW:
            starting.setdefault(planned.gang.key, []).append(planned)
        else:
            nominations.append(Nomination(planned.gang.key, planned.member.pod, names[planned.row]))
    return Plan(
        placements=tuple(_gang_placement(state, pods) for pods in starting.values()),
        nominations=tuple(nominations),
        evictions=evictions,
        unplaced=tuple(_unplaced(state, pending)),
        queues=queue_shares(state.quota, pending, state.spared),
        problems=object_problems(state.snapshot, inventory),
        admissions=admissions,
    )


def _gang_placement(state: CycleState, pods: Sequence[Planned]) -> GangPlacement:
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
                p.allocate,
                p.reserve,
                p.gpus,
                p.member.gpus,
                p.make,
                provision=p.member.provision,
                for_group=p.member.for_group,
                volumes=state.statement.volumes.of(p.member.pod.uid),
            )
            for p in pods
        ),
        resume=any(is_stand_in(p.member.pod.uid) for p in pods),
    )


def evictions_of(state: CycleState, *, suspend_jobs: bool) -> tuple[Eviction, ...]:
    """Who must leave; a pod that is placed on its own node again, as it was, stays."""
    moved = {
        uid: state.snapshot.nodes.names[planned.row]
        for uid, planned in state.statement.placed.items()
        if uid in state.statement.evicted
    }
    suspended = suspended_gangs(state.statement, moved, by_default=suspend_jobs)
    return tuple(
        Eviction(
            pod=victim.member.pod,
            node=victim.member.node,
            gang=victim.gang.key,
            owner=victim.gang.owner,
            queue=victim.gang.queue,
            action=victim.action,
            beneficiary=victim.beneficiary.key,
            beneficiary_queue=victim.beneficiary.queue,
            reason=victim.reason,
            moved_to=moved.get(uid, ""),
            suspend=victim.gang.key in suspended,
        )
        for uid, victim in state.statement.evicted.items()
        if moved.get(uid) != victim.member.node or _comes_back_changed(state, victim)
    )


def _comes_back_changed(state: CycleState, victim: Evicted) -> bool:
    """Whether a pod that is placed on its own node again has other devices there."""
    again = state.statement.placed[victim.member.pod.uid].member
    return bool(again.gpus) or again is not victim.member


def _unplaced(state: CycleState, pending: Sequence[Gang]) -> list[Unplaced]:
    listed: list[Unplaced] = []
    for gang in pending:
        left = tuple(m.pod for m in gang.members if _is_left(state, m))
        if not left:
            continue
        obstacle = state.obstacles.get(gang.key) or _waiting(state, gang)
        listed.append(
            Unplaced(
                gang=gang.key,
                owner=gang.owner,
                queue=gang.queue,
                stage=obstacle.stage,
                message=_told(gang, obstacle),
                pods=left,
                marked=gang.mark_unschedulable,
                shortage=obstacle.shortage,
                protections=obstacle.protections,
                surplus=surplus_of(gang, state.statement),
                gained=state.ageing.gained(gang),
            )
        )
    return listed


def _told(gang: Gang, obstacle: Obstacle) -> str:
    """The obstacle, with what else had to fit where that is not seen from the pods that wait."""
    if not gang.awaited or obstacle.stage not in LATER_PODS_COUNT:
        return obstacle.message
    count = len(gang.awaited)
    later = f"the {count} pods that are made later" if count > 1 else "the pod that is made later"
    return f"{obstacle.message} Room is also needed for {later}."


def _is_left(state: CycleState, member: Member) -> bool:
    planned = state.statement.placed.get(member.pod.uid)
    return not member.node if planned is None else planned.room is Room.LATER


def _waiting(state: CycleState, gang: Gang) -> Obstacle:
    if gang.attempted:
        hint = "its condition tells what stopped it"
        return Obstacle(Stage.BACKOFF, f"it asks for one attempt, which was made; {hint}.")
    if gang.key in state.snapshot.held_back:
        hint = "see the gang's events for the reason"
        return Obstacle(Stage.FAILED, f"the last attempt to start it failed; {hint}.")
    waiting = next((m for m in gang.pending if m.waiting), None)
    if waiting is not None and waiting.pod.uid not in state.statement.placed:
        return kept_back(gang, waiting)
    promised = [
        m for m in gang.pending if m.pod.uid in state.statement.placed and _is_left(state, m)
    ]
    lacking = None if promised else subgroup_lacks(gang)
    return lacking or Obstacle(
        Stage.NOMINATED,
        f"room is being freed for {len(promised or gang.pending)} pods; they start when it is.",
    )
