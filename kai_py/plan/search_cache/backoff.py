"""Backoff of searches that used up a whole probe budget: a rule about history, not a cache.

Such a search for relocations is not repeated before a pod has left or a node has come: as long as
every pod that ran is where it was and no node has more idle than it had then. Pods that come only
take capacity from those that could be relocated, so the search would end there again, as would one
for as many pods that request at least as much. In the meantime it takes no probes, so that others
have them.
"""

from dataclasses import dataclass

from kai_py.plan.plan import Action
from kai_py.plan.search_cache.cache import SearchKey, SearchResult
from kai_py.plan.search_cache.inputs import Decisions, InputsChange, InputsHistory
from kai_py.snapshot.resources import Floats


@dataclass(frozen=True, slots=True)
class BackedOff:
    """A search that backs off; ``future_idle``: (resources, nodes) when it ended."""

    result: SearchResult
    future_idle: Floats


BackedOffSearches = dict[SearchKey, BackedOff]


class SearchBackoff:
    """The searches that back off in this cycle, and those of the last."""

    def __init__(self) -> None:
        """None does yet."""
        self._history = InputsHistory()
        self._searches: dict[tuple[Action, Decisions], BackedOffSearches] = {}
        self._last: dict[tuple[Action, Decisions], BackedOffSearches] = {}

    def start_cycle(self, history: InputsHistory) -> None:
        """A cycle begins."""
        self._history = history
        self._last, self._searches = self._searches, {}

    def searches(
        self, action: Action, decisions: Decisions, future_idle: Floats
    ) -> BackedOffSearches:
        """Those of ``action`` that still back off; ``future_idle``: (resources, nodes) now."""
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
