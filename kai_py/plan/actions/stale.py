"""Stale: evict gangs that cannot work: below minMember for too long, or without a device they had.

What is left of a gang below minMember keeps capacity and does no work. Within the grace time lost
pods can be replaced: the actions before this one place them in the topology domain of the rest. A
gang with pods that succeeded is finishing, not stale. The grace time starts again when pods of the
gang are evicted for others: those that are relocated have to be created again first. A gang whose
workload would fail stays, unless it can be suspended.

A device is lost if the kubelet reports it as unhealthy, or if it has a taint with effect NoExecute,
from its driver or a DeviceTaintRule, that the claim does not tolerate. The cluster ends each pod
on such a device by itself; a toleration with a time limit counts until the cluster has done so. A
gang that has minMember without such pods loses only these, which its framework creates again; any
other gang restarts whole, as its pods work together, unless its workload would fail.

Sources: KEP-4680 (health of devices in the status of pods), KEP-5055 (device taints).
"""

from collections.abc import Iterable, Mapping

from kai_py.api.records.node import untolerated
from kai_py.api.records.resource import DeviceTaint
from kai_py.dra.identity import DeviceID
from kai_py.grouping.gang import is_satisfied
from kai_py.plan.placement.next_pods import active_counts
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.relocate import evict_for_itself
from kai_py.plan.victims.survival import is_satisfied_without, running_pods, would_fail
from kai_py.snapshot.gangs import Gang

POD = "{pod}"
"""Where the pod is named in a clause; no name of a device has braces."""


def stale(state: CycleState, _pending: Iterable[Gang]) -> None:
    """Run the action for all running gangs, whether they have pending pods or not."""
    evict_stale(state, (state.snapshot.gangs[key] for key in state.snapshot.below_min_members))


def evict_stale(state: CycleState, gangs: Iterable[Gang]) -> None:
    """Run the action for ``gangs``."""
    for gang in state.turns.eligible(gangs):
        if gang.stale_since is not None:
            with state.turns.of(gang):
                _evict_after_grace(state, gang, gang.stale_since)


def _evict_after_grace(state: CycleState, gang: Gang, since: float) -> None:
    grace = gang.staleness_grace(state.settings.staleness_grace)
    elapsed = state.snapshot.now - max(since, state.eviction_limits.last_evicted(gang))
    active = active_counts(gang, state.statement)
    if gang.succeeded or grace < 0 or elapsed < grace or is_satisfied(gang.tree, active):
        return
    reason = (
        f"the gang was below minMember for {elapsed:.0f} s (grace period {grace:g} s); its "
        "remaining pods are evicted"
    )
    if would_fail(gang, gang.bound):
        return
    evict_for_itself(state, gang, running_pods(gang, state.statement), Action.STALE, reason)


def evict_unhealthy(state: CycleState) -> None:
    """Evict the pods on lost devices, and what cannot work without them.

    O(pods with claims) while any device has such a taint.
    """
    gangs, lost = state.snapshot.gangs, _reported(state)
    if tainted := state.statement.devices.evicting_taints():
        for gang in gangs.values():
            if found := _on_tainted(state, gang, tainted):
                lost[gang.key] = found | lost.get(gang.key, {})
    for gang in state.turns.eligible([gangs[key] for key in sorted(lost) if key in gangs]):
        with state.turns.of(gang):
            _evict(state, gang, lost[gang.key])


def _reported(state: CycleState) -> dict[str, dict[str, str]]:
    """By gang and pod uid: the device that is reported as unhealthy, as a clause about the pod."""
    return {
        key: {
            uid: f"the kubelet reports device {name} of {POD} as unhealthy"
            for uid, name in devices.items()
        }
        for key, devices in state.snapshot.unhealthy.items()
    }


def _on_tainted(
    state: CycleState, gang: Gang, tainted: Mapping[DeviceID, tuple[DeviceTaint, ...]]
) -> dict[str, str]:
    """By pod uid: the device whose taint the claim does not tolerate, as a clause about the pod."""
    found: dict[str, str] = {}
    for member in gang.bound:
        for each in state.snapshot.devices.allocated_devices(member.claims):
            device = DeviceID(each.driver, each.pool, each.device)
            taint = untolerated(tainted.get(device, ()), each.tolerations)
            if taint is not None:
                said = f"device {device} of {POD} has taint {taint.key}:{taint.effect}"
                found.setdefault(member.pod.uid, said)
    return found


def _evict(state: CycleState, gang: Gang, why: Mapping[str, str]) -> None:
    bound = running_pods(gang, state.statement)
    lost = [member for member in bound if member.pod.uid in why]
    if not lost:
        return
    leaving = lost if is_satisfied_without(gang, lost, state.statement) else bound
    if would_fail(gang, leaving):
        return
    first = lost[0]
    said = why[first.pod.uid].replace(POD, f"pod {first.pod.namespace}/{first.pod.name}")
    for member in leaving:
        whole = "" if member in lost else "; the gang restarts whole"
        evict_for_itself(state, gang, [member], Action.STALE, f"{said}{whole}")
