"""Evict gangs that have not become ready in time, whole, so that others get the capacity.

A gang is not evicted if its workload would fail, if its pods would not be created again, or if a
disruption budget protects it; its state is reported all the same. ``session.startups`` has the
rules.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from kai_py.api.texts import count_of, is_or_are
from kai_py.plan.observations import GangStarting
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.startups import (
    FailedStart,
    ReadyRule,
    Startups,
    has_ready_limit,
    min_member_is_ready,
    ready_rule,
)
from kai_py.plan.victims.relocate import evict_for_itself, protection_of
from kai_py.plan.victims.survival import running_pods
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.tables.readiness import DeviceKey

MAX_CAUSES = 3
PENDING_START = "and no reason is known yet"


def evict_unready(state: CycleState, startups: Startups) -> None:
    """Run for every gang with pods that are not ready."""
    snapshot, rules = state.snapshot, state.ready_rules
    state.report.avoided_nodes = startups.avoided_nodes()
    # Other gangs have no time limit, and nothing is known about them that could be reported.
    concerned = [
        key
        for key, pods in snapshot.starting.items()
        if (gang := snapshot.gangs.get(key))
        and (has_ready_limit(gang, rules) or any(pods.values()))
    ]
    found = [snapshot.gangs[key] for key in sorted(concerned)]
    for gang in state.turns.eligible(found):
        rule = ready_rule(gang, rules)
        if min_member_is_ready(snapshot, gang) or not gang.bound:
            continue
        with state.turns.of(gang):
            _consider(state, gang, rule, startups)


def _consider(state: CycleState, gang: Gang, rule: ReadyRule, startups: Startups) -> None:
    causes = _causes(state, gang)
    since = startups.since.get(gang.key, (state.snapshot.now, None))[0]
    is_known = PENDING_START not in causes
    if not rule.timeout or not gang.is_satisfied:
        if is_known:
            _note(state, gang, causes)
        return
    if state.snapshot.now < since + rule.timeout:
        if is_known:
            end = f"it is evicted if it is not ready {rule.timeout:g} s after its start"
            _note(state, gang, f"{causes}; {end}")
        return
    protection = protection_of(state, gang, gang.bound)
    if protection:
        _note(
            state,
            gang,
            f"{causes}; it should have been ready within {rule.timeout:g} s and is not "
            f"evicted, as {protection}",
        )
        return
    reason = f"the gang was not ready within {rule.timeout:g} s: {causes}"
    evict_for_itself(state, gang, running_pods(gang, state.statement), Action.STALE, reason)
    failing = _failing_where_others_run(state, gang)
    nodes = tuple(dict.fromkeys(member.node for member in failing))
    devices = tuple(_devices_to_blame(state, gang, failing).items())
    state.report.failed_starts[gang.key] = FailedStart(gang, rule, causes, nodes, devices)


def _causes(state: CycleState, gang: Gang) -> str:
    """Why pods are not ready, the most frequent reasons first, with a pod and its node each."""
    starting = state.snapshot.starting[gang.key]
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for member in gang.bound:
        cause = starting.get(member.pod.uid)
        if cause:
            counts[cause] += 1
            first.setdefault(cause, f"pod {member.pod.name} on node {member.node}")
    unready = sum(member.pod.uid in starting for member in gang.bound)
    total = f"{unready} of {count_of(len(gang.bound), 'pod')} {is_or_are(unready)} not ready"
    if not counts:
        return f"{total} {PENDING_START}"
    listed = [f"{cause}, {first[cause]}" for cause, _ in counts.most_common(MAX_CAUSES)]
    return f"{total}: {'; '.join(listed)}"


def _failing_where_others_run(state: CycleState, gang: Gang) -> list[Member]:
    """The pods that are not ready although an equal pod of the gang is ready on another node."""
    starting = state.snapshot.starting[gang.key]
    ready: dict[int, set[str]] = {}
    for member in gang.bound:
        if member.pod.uid not in starting:
            ready.setdefault(member.shape.number, set()).add(member.node)
    return [
        member
        for member in gang.bound
        if member.pod.uid in starting
        and ready.get(member.shape.number)
        and member.node not in ready[member.shape.number]
    ]


def _devices_to_blame(
    state: CycleState, gang: Gang, failing: Sequence[Member]
) -> dict[DeviceKey, str]:
    """The devices that only pods that are not ready have, each with its node."""
    starting = state.snapshot.starting[gang.key]
    fine = (member for member in gang.bound if member.pod.uid not in starting)
    used = {device for member in fine for device in _devices(state, member)}
    return {
        device: member.node
        for member in failing
        for device in _devices(state, member)
        if device not in used
    }


def _devices(state: CycleState, member: Member) -> Iterator[DeviceKey]:
    for each in state.snapshot.devices.allocated_devices(member.claims):
        yield each.driver, each.pool, each.device


def _note(state: CycleState, gang: Gang, message: str) -> None:
    state.report.starting[gang.key] = GangStarting(gang.key, gang.owner, message)
