"""Stale: evict the whole of a gang that runs below minMember for too long.

The rest of such a gang keeps capacity and does no work. Within the grace time lost pods can be
replaced: the actions before this one place them in the topology domain of the rest. A gang with
pods that succeeded is finishing, not stale. A gang whose workload would fail stays, unless it can
be suspended.
"""

from collections.abc import Iterable

from kai_py.grouping.gang import is_satisfied
from kai_py.plan.placement.next_pods import active_counts
from kai_py.plan.plan import Action
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.relocate import evict_for_itself
from kai_py.plan.victims.survival import running_pods, would_fail
from kai_py.snapshot.gangs import Gang


def stale(state: CycleState, _pending: Iterable[Gang]) -> None:
    """Run the action for all running gangs, whether they have pending pods or not."""
    below = (state.snapshot.gangs[key] for key in state.snapshot.below_min_members)
    for gang in state.turns.eligible(below):
        if gang.stale_since is not None:
            with state.turns.of(gang):
                _evict_after_grace(state, gang, gang.stale_since)


def _evict_after_grace(state: CycleState, gang: Gang, since: float) -> None:
    grace = gang.staleness_grace(state.settings.staleness_grace)
    elapsed = state.snapshot.now - since
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
