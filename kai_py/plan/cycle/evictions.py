"""The evictions of a finished cycle: which victims are evicted, and which Jobs are suspended.

A victim that was placed on its own node again, unchanged, stays; one that was placed elsewhere is
relocated. A Job is suspended instead of evicting its pods if the whole gang is evicted and the Job
asks for suspension (or it is the configured default), and in any case if the Job would fail with
the pods that it loses. Its other pods then end as well, since a Job can only be suspended as a
whole.
"""

from collections.abc import Iterable, Iterator, Sequence, Set

from msgspec.structs import replace

from kai_py.api.groups import grouped
from kai_py.plan.plan import Action, Eviction
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.assignment import Evicted
from kai_py.plan.state.statement import Statement
from kai_py.plan.victims.survival import SUSPENDED, effect_text, exceeded_limit
from kai_py.snapshot.admitted_gangs import can_be_suspended

SUSPENDING_ACTIONS = (Action.PREEMPT, Action.RECLAIM, Action.CONSOLIDATE)


def list_evictions(state: CycleState) -> tuple[Eviction, ...]:
    """Every eviction of the cycle; a pod placed on its own node again, unchanged, stays.

    Where a node is about to go it is evicted all the same: the pods of a gang that moves whole
    restart together.
    """
    names, placed = state.snapshot.nodes.names, state.statement.placed
    evicted = state.statement.evicted
    relocated = {uid: names[placed[uid].row] for uid in evicted if uid in placed}
    leaving = [
        victim
        for uid, victim in evicted.items()
        if relocated.get(uid) != victim.member.node
        or victim.action is Action.DEPARTURE
        or _changes_devices(state, victim)
    ]
    by_default = state.settings.suspend_jobs
    suspended = suspended_gangs(state.statement, leaving, by_default=by_default)
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


def suspended_gangs(
    statement: Statement, leaving: Iterable[Evicted], *, by_default: bool
) -> frozenset[str]:
    """Keys of the gangs to suspend, of those that lose the pods ``leaving``."""
    return frozenset(
        key
        for key, lost in _by_gang(leaving).items()
        if can_be_suspended(lost[0].gang)
        and (
            exceeded_limit(lost[0].gang, (each.member for each in lost)) is not None
            or _asks_for_suspension(statement, lost, by_default=by_default)
        )
    )


def _asks_for_suspension(
    statement: Statement, lost: Sequence[Evicted], *, by_default: bool
) -> bool:
    """Whether the whole gang is evicted and asks to be suspended then, though it would survive."""
    gang = lost[0].gang
    starting = any(member.pod.uid in statement.placed for member in gang.pending)
    return (
        (by_default if gang.suspend is None else gang.suspend)
        and len(lost) == len(gang.bound)
        and not starting
        and all(each.action in SUSPENDING_ACTIONS for each in lost)
    )


def _effects(leaving: Sequence[Evicted], suspended: Set[str]) -> dict[str, str]:
    """By gang what the evictions do to its workload."""
    return {
        key: SUSPENDED
        if key in suspended
        else effect_text(lost[0].gang, [each.member for each in lost])
        for key, lost in _by_gang(leaving).items()
    }


def _by_gang(leaving: Iterable[Evicted]) -> dict[str, list[Evicted]]:
    return grouped(leaving, lambda victim: victim.gang.key)


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
