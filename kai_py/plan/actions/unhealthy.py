"""Pods that lost a device: they restart elsewhere, with their gang where it needs all of them.

A gang that is still at its minimum without such pods loses only these, which its framework creates
again; any other restarts whole, for its pods work together. A gang whose workload would fail stays.
Source: KEP-4680 (health of devices in the status of pods).
"""

from kai_py.grouping.gang import is_satisfied
from kai_py.plan.placement.next_pods import active_counts
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.victims.survival import is_lost
from kai_py.snapshot.gangs import Gang, Member


def evict_unhealthy(state: CycleState) -> None:
    """Evict the pods on unhealthy devices, and what cannot work without them."""
    gangs = state.snapshot.gangs
    found = [gangs[key] for key in state.snapshot.unhealthy if key in gangs]
    for gang in state.turns.able(found):
        with state.turns.of(gang):
            _evict(state, gang)


def _evict(state: CycleState, gang: Gang) -> None:
    devices, evicted = state.snapshot.unhealthy[gang.key], state.statement.evicted
    bound = [member for member in gang.bound if member.pod.uid not in evicted]
    lost = [member for member in bound if member.pod.uid in devices]
    if not lost:
        return
    leaving = lost if _works_without(state, gang, lost) else bound
    if is_lost(gang, leaving):
        return
    first = lost[0]
    device = f"device {devices[first.pod.uid]} of pod {first.pod.namespace}/{first.pod.name}"
    for member in leaving:
        whole = "" if member in lost else "; the gang restarts whole"
        reason = f"the kubelet reports {device} as unhealthy{whole}"
        state.statement.evict(Evicted(member, gang, Action.STALE, gang, reason))


def _works_without(state: CycleState, gang: Gang, lost: list[Member]) -> bool:
    counts = active_counts(gang, state.statement)
    for member in lost:
        counts[member.subgroup] -= 1
    return is_satisfied(gang.tree, counts)
