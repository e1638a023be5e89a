"""The cache of failed searches: a lookup in place of a search whose inputs are what they were.

A search is what an action does for one request: it places the pods, or finds victims for them. Its
failure is kept while its inputs are the same (``inputs``), also for gangs whose requests are
equal. A cached result charges the probes that its search took, once in a cycle, so plans are the
same with and without the cache: ``SearchCache(enabled=False)`` keeps nothing from cycle to cycle.

Within one action a request that needs no less than one that failed fails too, without a search
(``FailedRequests``). That is part of what the actions decide, for such a request takes none of the
probe budget and has the same reason. KAI's ``MinimalJobRepresentatives``
(``minimal_job_comparison.go``) is the same rule.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Action
from kai_py.plan.search_cache.inputs import Decisions, InputsChange, InputsHistory
from kai_py.snapshot.gangs import Gang, Member


@dataclass(frozen=True, slots=True)
class SearchKey:
    """The request of a search: ``signature`` decides how it ends.

    ``gang``: the gang, where no other request is comparable. ``pod``: of a request for pods that
    are equivalent, one of them.
    """

    signature: Hashable
    gang: Gang | None = field(default=None, hash=False)
    pod: Member | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """How a search failed.

    ``budget``: probes it had, None if none was needed; ``probes_used``: those that it took, or
    the steps of an exact search in allocate.
    ``out_of_budget``: nothing is proven. ``backs_off``: it is not repeated before a pod has left or
    a node has come. ``protected_by``: queue to the eviction limit that protects its pods.
    ``reason``: why the pods could not be placed.
    """

    budget: int | None = None
    probes_used: int = 0
    out_of_budget: bool = False
    backs_off: bool = False
    protected_by: Mapping[str, str] = field(default_factory=dict)
    reason: Unschedulable | None = None


@dataclass(slots=True)
class SearchEntries:
    """Results for the same inputs; ``charged``: those whose probes the cycle has charged."""

    results: dict[SearchKey, SearchResult] = field(default_factory=dict)
    charged: set[SearchKey] = field(default_factory=set)


class SearchCache:
    """Results of this cycle and of the last, by action and by what was decided before."""

    def __init__(self, *, enabled: bool = True) -> None:
        """``enabled``: whether results are kept for the next cycle."""
        self._enabled = enabled
        self._history = InputsHistory()
        self._entries: dict[tuple[Action, Decisions], SearchEntries] = {}
        self._last_entries: dict[tuple[Action, Decisions], SearchEntries] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether results are kept for the next cycle."""
        return self._enabled

    def start_cycle(self, history: InputsHistory) -> None:
        """A cycle begins."""
        self._history = history
        self._last_entries = self._entries if self._enabled else {}
        self._entries = {}

    def entries(self, action: Action, decisions: Decisions) -> SearchEntries:
        """The results of ``action`` that hold after ``decisions``."""
        key = action, decisions
        if key not in self._entries:
            last = self._last_entries.get(key)
            holds = last is not None and self._history.change is InputsChange.UNCHANGED
            self._entries[key] = SearchEntries(last.results if last and holds else {})
        return self._entries[key]


Failure = TypeVar("Failure")


class FailedRequests(Generic[Failure]):
    """Failures by kind of request; they hold until capacity grows again."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self._failures: dict[Hashable, list[tuple[int, int, Failure]]] = {}

    def find(self, kind: Hashable, size: int, priority: int = 0) -> Failure | None:
        """The failure of no more pods of no lower priority, the last one that there was."""
        for failed_size, failed_priority, failure in reversed(self._failures.get(kind, ())):
            if size >= failed_size and priority <= failed_priority:
                return failure
        return None

    def add(self, kind: Hashable, failure: Failure, size: int, priority: int = 0) -> None:
        """A request for ``size`` pods failed."""
        self._failures.setdefault(kind, []).append((size, priority, failure))

    def clear(self) -> None:
        """Capacity has grown: any request may succeed."""
        self._failures.clear()
