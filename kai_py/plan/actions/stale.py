"""Stale: a gang that runs below its floor for too long is evicted whole.

What is left of such a gang holds room and does no work. It has a grace time in which pods that
were lost can come back: refilling is a matter of the actions before, which place them in the domain
where the rest runs. A gang with pods that ended well is not stale, it is finishing.
"""

from collections.abc import Iterable

from kai_py.grouping.gang import is_satisfied
from kai_py.plan.placement.next_pods import active_counts
from kai_py.plan.plan import Action
from kai_py.plan.session import CycleState
from kai_py.plan.state.statement import Evicted
from kai_py.snapshot.gangs import Gang


def stale(state: CycleState, _pending: Iterable[Gang]) -> None:
    """Run the action for all running gangs, whether they wait for pods or not."""
    for gang in (state.snapshot.gangs[key] for key in state.snapshot.below_min_members):
        if gang.stale_since is not None:
            _evict_after_grace(state, gang, gang.stale_since)


def _evict_after_grace(state: CycleState, gang: Gang, since: float) -> None:
    grace = state.staleness_grace if gang.staleness_grace is None else gang.staleness_grace
    passed = state.snapshot.now - since
    have = active_counts(gang, state.statement)
    if gang.succeeded or grace < 0 or passed < grace or is_satisfied(gang.tree, have):
        return
    reason = (
        f"the gang ran with fewer pods than it needs for {passed:.0f} s, longer than the "
        f"{grace:g} s it may; what is left of it is evicted"
    )
    for member in gang.bound:
        if member.pod.uid not in state.statement.evicted:
            state.statement.evict(Evicted(member, gang, Action.STALE, gang, reason))
