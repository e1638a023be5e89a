"""The gangs for which an action searches for victims, and whether any search can succeed.

In a full cluster most waiting gangs would bring their queues above their fair shares. If that holds
for all of them, an action ends before they are put in order and take their turns.
"""

from collections.abc import Iterable

from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.later_alternatives import have_alternatives
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.snapshot.gangs import Gang


def eligible_gangs(
    state: CycleState,
    gangs: Iterable[Gang],
    strategy_class: type[VictimStrategy],
    pool: VictimPool,
) -> list[Gang]:
    """Those of ``gangs`` for which the strategy may search; none if no search can succeed."""
    eligible = [gang for gang in gangs if _may_preempt(state, gang)]
    may_succeed = (_may_succeed(strategy_class, state, pool, gang) for gang in eligible)
    return eligible if any(may_succeed) else []


def _may_preempt(state: CycleState, gang: Gang) -> bool:
    """Whether pods may be evicted for the gang in this action at all."""
    budgets = state.search_budgets
    if gang.key in budgets.searches_ended or gang.key in state.waiting:
        return False
    if state.statement.devices.users.left_over_claim(gang):
        return False  # once the claim is released, it may fit where no pod has to be evicted
    return gang.may_preempt and state.snapshot.now >= gang.preempts_from


def _may_succeed(
    strategy_class: type[VictimStrategy], state: CycleState, pool: VictimPool, gang: Gang
) -> bool:
    """Whether victims may be found for the gang as things are now.

    With other alternatives of its claims, or for its other elastic pods, it costs less.
    """
    request = state.next_request(gang)
    if request is None:
        return False
    others = request.is_elastic and (gang.tree.children or len(gang.pending_shapes) > 1)
    if others or have_alternatives(request.members):
        return True
    return strategy_class(state, pool, gang, request).may_find_victims()
