"""Leave nodes: gangs on a node that is about to go are treated as their workloads declare.

checkpoint  its pods are asked to save their work; once all have, or their time is over, it is
            evicted whole
move        it is evicted whole as soon as all of it fits on other nodes
shrink      its pods on the node are evicted where minMember holds without them; else as move
go-down     it runs until the node is lost

If a node is lost or was deleted, a gang loses its pods there where minMember holds without them,
and restarts whole otherwise: the rest would keep capacity and wait for pods that do not answer. The
same applies if a gang fell below minMember because pods were ended from outside, as by a drain, or
if some of its nodes were rebooted. It does not apply to gangs that replace lost pods: by
annotation, by the kind of their owner, or because they may run below minMember forever. Nothing is
evicted if the workload would fail.

By priority, then age. O(pods) while any node is about to go, and a placement for each such gang.
"""

from collections.abc import Sequence
from math import inf

from kai_py.api.node_departures import DepartureStage, DepartureTreatment
from kai_py.plan.observations import CheckpointRequest, GangAtRisk
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.relocate import evict_for_itself, move_whole, protection_of
from kai_py.plan.victims.survival import is_satisfied_without, running_pods, would_fail
from kai_py.policy.queue_order import by_priority_and_age
from kai_py.snapshot.gangs import Gang, Member

REPLACING_KINDS = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "RayCluster", "RayJob", "RayService"}
    | {"SparkApplication", "Service", "InferenceService"}
)
"""Kinds of owners whose frameworks go on with a new pod in place of one that they lost."""

REQUEST_LIFETIME = 600.0
"""Seconds after its end for which a request counts: an older one was for another departure."""
ASKED = "its pods have been asked to save their work"
"""The same in all cycles: each new message is another event."""


def leave_nodes(state: CycleState) -> None:
    """Run for every gang with pods on nodes that are about to go, or were lost."""
    stages = {name: each.stage for name, each in state.snapshot.nodes.departures.items()}
    going = {name for name, stage in stages.items() if stage is not DepartureStage.SUSPECT}
    going |= state.snapshot.deleted_nodes
    disrupted, rebooted = state.snapshot.disrupted, state.snapshot.rebooted
    if not (going or disrupted or rebooted):
        return
    gangs = (
        gang
        for gang in state.snapshot.gangs.values()
        if gang.key in disrupted
        or any(m.node in going or m.pod.uid in rebooted for m in gang.bound)
    )
    in_order = sorted(gangs, key=by_priority_and_age)
    for gang in state.turns.eligible(in_order):
        with state.turns.of(gang):
            _leave(state, gang)


def _leave(state: CycleState, gang: Gang) -> None:
    lost = _on(state, gang, DepartureStage.LOST)
    if lost:
        _restart(state, gang, lost)
    elif gang.key in state.snapshot.disrupted and not gang.is_satisfied:
        _restart_rest(state, gang, state.snapshot.disrupted[gang.key])
    elif rebooted := _rebooted_apart(state, gang):
        _restart_rest(state, gang, f"node {state.snapshot.rebooted[rebooted]} was rebooted")
    elif leaving := _on(state, gang, DepartureStage.LEAVING):
        _treat(state, gang, leaving)


def _rebooted_apart(state: CycleState, gang: Gang) -> str:
    """A pod, by uid, whose node was rebooted while others that it works with ran on; "" if none."""
    rebooted = [m for m in gang.bound if m.pod.uid in state.snapshot.rebooted]
    if not rebooted or len(rebooted) == len(gang.bound):
        return ""
    return "" if is_satisfied_without(gang, rebooted, state.statement) else rebooted[0].pod.uid


def _restart_rest(state: CycleState, gang: Gang, why: str) -> None:
    members = running_pods(gang, state.statement)
    if _restarts_whole(state, gang) and not would_fail(gang, members):
        _evict(state, gang, members, f"{why}; the gang restarts whole")


def _restarts_whole(state: CycleState, gang: Gang) -> bool:
    if gang.settings.staleness_grace is not None and gang.settings.staleness_grace < 0:
        return False
    if gang.settings.restarts_whole is not None:
        return gang.settings.restarts_whole
    return state.settings.departures.restart_whole and gang.owner.kind not in REPLACING_KINDS


def _on(state: CycleState, gang: Gang, stage: DepartureStage) -> list[Member]:
    departures, deleted = state.snapshot.nodes.departures, state.snapshot.deleted_nodes
    return [
        member
        for member in running_pods(gang, state.statement)
        if (member.node in departures and departures[member.node].stage is stage)
        or (stage is DepartureStage.LOST and member.node in deleted)
    ]


def _restart(state: CycleState, gang: Gang, lost: Sequence[Member]) -> None:
    whole = not is_satisfied_without(gang, lost, state.statement) and _restarts_whole(state, gang)
    members = running_pods(gang, state.statement) if whole else lost
    if would_fail(gang, members):
        return
    why = _why(state, lost[0], "is lost")
    _evict(state, gang, members, f"{why}; the gang restarts whole" if whole else why)


def _treat(state: CycleState, gang: Gang, leaving: Sequence[Member]) -> None:
    treatment = gang.settings.on_departure or state.settings.departures.treatment
    shrinks = treatment is DepartureTreatment.SHRINK
    why = _why(state, leaving[0], "is about to go")
    if treatment is DepartureTreatment.GO_DOWN:
        _note(state, gang, f"{why}; the gang runs until then")
    elif treatment is DepartureTreatment.CHECKPOINT:
        _checkpoint(state, gang, why)
    elif shrinks and is_satisfied_without(gang, leaving, state.statement):
        if not _is_protected(state, gang, leaving, why):
            _evict(state, gang, leaving, f"{why}; the gang goes on without this pod")
    elif not _is_protected(state, gang, running_pods(gang, state.statement), why):
        reason = f"{why}; the gang is moved whole"
        if not move_whole(state, gang, Action.DEPARTURE, reason):
            stays = "the gang runs until then, as it does not fit on other nodes"
            _note(state, gang, f"{why}; {stays}")


def _is_protected(state: CycleState, gang: Gang, members: Sequence[Member], why: str) -> bool:
    """Whether the API server or the workload forbids the eviction; the gang is then reported."""
    protection = protection_of(state, gang, members)
    if protection:
        _note(state, gang, f"{why}; the gang runs until then, as {protection}")
    return bool(protection)


def _checkpoint(state: CycleState, gang: Gang, why: str) -> None:
    """Ask for a checkpoint, wait for it, or move the gang."""
    members, now = running_pods(gang, state.statement), state.snapshot.now
    asked = [m for m in members if (m.checkpoint_by or -inf) > now - REQUEST_LIFETIME]
    if len(asked) < len(members):
        own = gang.settings.checkpoint_grace
        by = now + (state.settings.departures.checkpoint_grace if own is None else own)
        known = {member.pod.uid for member in asked}
        pods = tuple(m.pod for m in members if m.pod.uid not in known)
        message = f"{why}; {ASKED}"
        state.report.checkpoints.append(CheckpointRequest(gang.key, gang.owner, pods, by, message))
        _note(state, gang, message)
        return
    waiting = [m.checkpoint_by or 0.0 for m in members if not m.checkpointed]
    if any(by > now for by in waiting):
        state.report.checkpoint_ends.append(max(waiting))
        _note(state, gang, f"{why}; {ASKED}")
        return
    if _is_protected(state, gang, members, why):
        return
    said = "have saved their work" if not waiting else "had time to save their work"
    reason = f"{why}; its pods {said}, the gang is moved whole"
    if not move_whole(state, gang, Action.DEPARTURE, reason):
        _evict(state, gang, members, reason)


def _evict(state: CycleState, gang: Gang, members: Sequence[Member], reason: str) -> None:
    evict_for_itself(state, gang, members, Action.DEPARTURE, reason)


def _why(state: CycleState, member: Member, what: str) -> str:
    departure = state.snapshot.nodes.departures.get(member.node)
    if departure is None:
        return f"node {member.node} was deleted"
    return f"node {member.node} {what} ({departure.signal})"


def _note(state: CycleState, gang: Gang, message: str) -> None:
    state.report.at_risk[gang.key] = GangAtRisk(gang.key, gang.owner, message)
