"""Backoff of searches that spent a whole probe budget: a rule about history, not a cache.

Such a search for relocations is not repeated before a pod has left or a node has been added, that
is, as long as every pod that ran then is where it was and no node has more idle capacity. New pods
only take capacity to which others could be relocated, so the search would end in the same way, as
would one for as many pods that request at least as much. Meanwhile it spends no probes, which are
left to other searches.

``ActionSearches`` is what one action sees of both the cache and the searches that back off.
"""

from collections.abc import Callable

from msgspec import Struct

from kai_py.plan.plan import Action
from kai_py.plan.search_cache.cache import SearchCache, SearchEntries, SearchFailure, SearchKey
from kai_py.plan.search_cache.inputs import Decisions, InputsChange, InputsHistory
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.resources import Floats


class BackedOff(Struct, frozen=True):
    """A search that backs off; ``future_idle``: (resources, nodes) of when it ended."""

    failure: SearchFailure
    future_idle: Floats


BackedOffSearches = dict[SearchKey, BackedOff]


class SearchBackoff:
    """The searches that back off in this cycle, and those of the last."""

    def __init__(self) -> None:
        """Without searches."""
        self._history = InputsHistory()
        self._unchanged = False
        self._searches: dict[tuple[Action, Decisions], BackedOffSearches] = {}
        self._last: dict[tuple[Action, Decisions], BackedOffSearches] = {}

    def start_cycle(self, history: InputsHistory) -> None:
        """Begin a cycle.

        If the last cycle had unchanged inputs and looked up no search, those of the cycle before it
        still hold.
        """
        if self._searches or not self._unchanged:
            self._last, self._searches = self._searches, {}
        self._history, self._unchanged = history, history.change is InputsChange.UNCHANGED

    def searches(
        self, action: Action, decisions: Decisions, future_idle: Floats
    ) -> BackedOffSearches:
        """The searches of ``action`` that still back off; ``future_idle``: (resources, nodes)."""
        key = action, decisions
        if key not in self._searches:
            self._searches[key] = self._still_backing_off(action, decisions, future_idle)
        return self._searches[key]

    def _still_backing_off(
        self, action: Action, decisions: Decisions, future_idle: Floats
    ) -> BackedOffSearches:
        change = self._history.change if self._last else InputsChange.CHANGED
        if change is InputsChange.CHANGED:
            return {}
        same = self._last.get((action, decisions))
        if same is not None and change is InputsChange.UNCHANGED:
            return same
        return {
            key: search
            for (searcher, _), searches in self._last.items()
            if searcher is action
            for key, search in searches.items()
            if not (future_idle > search.future_idle).any()
        }


class ActionSearches:
    """What an action knows of its searches: cached failures, and searches that back off.

    They are those of the last cycle as far as they hold, until the action decides anything. From
    then on they are its own, as the state after a decision hardly ever recurs.
    """

    def __init__(
        self,
        action: Action,
        statement: Statement,
        decisions: Callable[[], Decisions | None],
        cache: SearchCache,
        backoff: SearchBackoff,
    ) -> None:
        """``decisions``: those of the cycle so far; nothing is looked up before it is asked for."""
        self._action, self._statement, self._decisions = action, statement, decisions
        self._cache, self._backoff = cache, backoff
        self._known: tuple[SearchEntries, BackedOffSearches] | None = None
        self._decided = (0, 0)

    def lookup(self, key: SearchKey, budget: int = 0) -> SearchFailure | None:
        """How a search with ``budget`` probes would fail, if it is known."""
        known = self._current[0].failures.get(key)
        return known if known is not None and known.budget in (None, budget) else None

    def backed_off(self) -> BackedOffSearches:
        """The searches that back off."""
        return self._current[1]

    def store(self, key: SearchKey, failure: SearchFailure) -> None:
        """Keep how a search failed, which has just been charged."""
        entries, backed_off = self._current
        if failure.backs_off:
            backed_off[key] = BackedOff(failure, self._statement.future_idle.copy())
            entries.failures.pop(key, None)
            return
        entries.failures[key] = failure
        entries.charged.add(key)

    def charge(self, key: SearchKey, failure: SearchFailure) -> int:
        """The probes that a cached failure costs: once in a cycle those of its search."""
        charged = self._current[0].charged
        if key in charged:
            return 0
        charged.add(key)
        return failure.probes_used

    @property
    def _current(self) -> tuple[SearchEntries, BackedOffSearches]:
        statement = self._statement
        decided = len(statement.placed), len(statement.evicted)
        if self._known is None:
            self._decided, self._known = decided, (SearchEntries(), {})
            decisions = self._decisions()
            if decisions is not None:
                self._known = (
                    self._cache.entries(self._action, decisions),
                    self._backoff.searches(self._action, decisions, statement.future_idle),
                )
        elif decided != self._decided:
            self._decided, self._known = decided, (SearchEntries(), {})
        return self._known
