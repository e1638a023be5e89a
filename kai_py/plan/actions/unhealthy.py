"""Unhealthy devices: pods that lost one restart elsewhere, with their gang where it needs them all.

A device is lost if the kubelet reports it as unhealthy, or if it has a taint with effect NoExecute,
from its driver or a DeviceTaintRule, that the claim does not tolerate. The cluster ends each pod
on such a device by itself; a toleration with a time limit counts until the cluster has done so.

A gang that has minMember without such pods loses only these, which its framework creates again; any
other gang restarts whole, as its pods work together. Nothing is evicted if the workload would fail.
Sources: KEP-4680 (health of devices in the status of pods), KEP-5055 (device taints).
"""

from collections.abc import Mapping

from kai_py.api.records.node import untolerated
from kai_py.api.records.resource import DeviceTaint
from kai_py.dra.identity import DeviceID
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.relocate import evict_for_itself
from kai_py.plan.victims.survival import is_satisfied_without, running_pods, would_fail
from kai_py.snapshot.gangs import Gang

POD = "{pod}"
"""Where the pod is named in a clause; no name of a device has braces."""


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
