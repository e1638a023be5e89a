"""The gangs for which an action searches for victims, until no search can succeed any more.

In a full cluster most waiting gangs would bring their queues above their fair shares, or no gang of
their queues has a lower priority. An action ends before these are put in order, or once all others
have had their turns, unless pods were placed or evicted meanwhile.
"""

from collections.abc import Hashable, Iterable

from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.equivalent_gangs import equivalence_class
from kai_py.plan.session.later_alternatives import have_alternatives
from kai_py.plan.victims.order import VictimPool
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.snapshot.gangs import Gang


class EligibleGangs:
    """``gangs`` may search in an action; true while a search of any of them may still succeed."""

    def __init__(
        self,
        state: CycleState,
        gangs: Iterable[Gang],
        strategy_class: type[VictimStrategy],
        pool: VictimPool,
    ) -> None:
        self._state = state
        self.gangs = [gang for gang in gangs if _may_preempt(state, gang)]
        self._decided = self._decisions()
        answers: dict[Hashable, bool] = {}
        for gang in self.gangs:
            known = self._class_of(gang)
            if known not in answers:
                answers[known] = _may_succeed(strategy_class, state, pool, gang)
        self._left = {known for known, may_succeed in answers.items() if may_succeed}

    def __bool__(self) -> bool:
        """Whether a search may succeed: always once anything was decided in the action."""
        return bool(self._left) or self._decided != self._decisions()

    def has_failed(self, gang: Gang) -> None:
        """No search for the gang, nor for an equivalent one, can succeed as things are now."""
        self._left.discard(self._class_of(gang))

    def _class_of(self, gang: Gang) -> Hashable:
        return equivalence_class(self._state, gang) or gang.key

    def _decisions(self) -> tuple[int, int]:
        return len(self._state.statement.placed), len(self._state.statement.evicted)


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

    With other alternatives of its claims, or for its other elastic pods, it may cost less.
    """
    request = state.next_request(gang)
    if request is None:
        return False
    others = request.is_elastic and (gang.tree.children or len(gang.pending_shapes) > 1)
    if others or have_alternatives(request.members):
        return True
    return strategy_class(state, pool, gang, request).may_find_victims()
