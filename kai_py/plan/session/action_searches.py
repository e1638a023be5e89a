"""What an action knows of its searches in its turn: cached results, and searches that back off.

They are those of the last cycle as far as they hold, until the action decides anything. From then
on they are its own, as what follows a decision hardly comes again in the same way.
"""

from kai_py.plan.plan import Action
from kai_py.plan.search_cache.backoff import BackedOff, BackedOffSearches
from kai_py.plan.search_cache.cache import SearchEntries, SearchKey, SearchResult
from kai_py.plan.search_cache.inputs import Decisions
from kai_py.plan.session.cycle_state import CycleState


class ActionSearches:
    """The failed searches of one action."""

    def __init__(self, state: CycleState, action: Action) -> None:
        """Nothing is looked up before it is asked for."""
        self._state, self._action = state, action
        self._known: tuple[SearchEntries, BackedOffSearches] | None = None
        self._decided = (0, 0)

    def lookup(self, key: SearchKey, budget: int = 0) -> SearchResult | None:
        """The result that a search with ``budget`` probes would have, if it is known."""
        known = self._current[0].results.get(key)
        return known if known is not None and known.budget in (None, budget) else None

    def backed_off(self) -> BackedOffSearches:
        """The searches that back off."""
        return self._current[1]

    def store(self, key: SearchKey, result: SearchResult) -> None:
        """Keep the result of a search, which has just been charged."""
        entries, backed_off = self._current
        if result.backs_off:
            idle = self._state.statement.future_idle.copy()
            backed_off[key] = BackedOff(result, idle)
            entries.results.pop(key, None)
            return
        entries.results[key] = result
        entries.charged.add(key)

    def charge(self, key: SearchKey, result: SearchResult) -> int:
        """The probes that a cached result costs: once in a cycle those of its search."""
        charged = self._current[0].charged
        if key in charged:
            return 0
        charged.add(key)
        return result.probes_used

    @property
    def _current(self) -> tuple[SearchEntries, BackedOffSearches]:
        state, statement = self._state, self._state.statement
        decided = len(statement.placed), len(statement.evicted)
        if self._known is None:
            self._decided, self._known = decided, (SearchEntries(), {})
            decisions = decisions_so_far(state, by_share=self._action is Action.RECLAIM)
            if decisions is not None:
                self._known = (
                    state.search_cache.entries(self._action, decisions),
                    state.backoff.searches(self._action, decisions, statement.future_idle),
                )
        elif decided != self._decided:
            self._decided, self._known = decided, (SearchEntries(), {})
        return self._known


def decisions_so_far(state: CycleState, *, by_share: bool) -> Decisions | None:
    """The inputs of a search that the cycle has changed; None where they can't be compared.

    ``by_share``: whether shares of queues decide.
    """
    if state.placer.reservations.active:
        return None
    quota, statement = state.quota, state.statement
    usage = quota.usage
    return Decisions(
        placed=tuple((uid, each.row, each.capacity) for uid, each in statement.placed.items()),
        evicted=tuple(statement.evicted),
        usage=tuple(
            each.tobytes() for each in (usage.allocated, usage.non_preemptible, quota.leaving)
        ),
        shares=(usage.fair.tobytes(), usage.total.tobytes()) if by_share else (),
        past_evictions=state.eviction_limits.snapshot(),
        scores=state.score_inputs,
    )
