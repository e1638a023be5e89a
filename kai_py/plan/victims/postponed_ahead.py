"""Gangs ahead of a preemptor in its queue whose own eviction was put off.

Such a gang waits because its victims would lose more work than it loses by waiting. If pods were
evicted meanwhile for a gang of lower priority, the gang ahead could start on what they release
before the other does (``actions.resume``), and they would have been evicted for nothing.
"""

from collections.abc import Iterator, Sequence

from kai_py.plan.session.later_alternatives import try_placing
from kai_py.plan.session.quota_check import check_quota
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit
from kai_py.snapshot.gangs import Gang


def until_those_ahead(strategy: VictimStrategy, units: Sequence[VictimUnit]) -> float | None:
    """Until when to wait, as gangs ahead would start on what ``units`` release.

    Seconds since the epoch; None if the request fits beside them. Nothing stays evicted or placed.
    """
    ahead = list(_postponed_ahead(strategy)) if units else []
    if not ahead:
        return None
    state = strategy.state
    with state.statement.trial():
        for unit in units:
            strategy.evict(unit, "")
        waits = [until for gang, until in ahead if _starts(strategy, gang)]
        if waits and not try_placing(state, strategy.gang, strategy.request.members):
            return min(waits)
    return None


def has_postponed_ahead(strategy: VictimStrategy) -> bool:
    """Whether any gang ahead waits."""
    return next(_postponed_ahead(strategy), None) is not None


def _postponed_ahead(strategy: VictimStrategy) -> Iterator[tuple[Gang, float]]:
    """Gangs that would evict the gang of ``strategy`` once it runs; until when each waits."""
    gang = strategy.gang
    if not gang.yields_in_queue:
        return
    for other, until in strategy.state.first_postponed.get(gang.queue, ()):
        if other.priority > gang.priority and not other.is_satisfied:
            yield other, until


def _starts(strategy: VictimStrategy, gang: Gang) -> bool:
    """Place the next request of another gang on trial; whether it fits."""
    state = strategy.state
    request = state.next_request(gang)
    if request is None or request.members[0].pod.uid in state.statement.placed:
        return False
    cost = state.request_cost(gang)
    if check_quota(state.quota, gang, request.members, cost) is not None:
        return False
    return try_placing(state, gang, request.members)
