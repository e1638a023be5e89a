"""The cache of failed searches: a lookup instead of a search with the same inputs.

A search is what an action does for one request: it places the pods, or finds victims for them. Its
failure is cached while its inputs are the same (``inputs``), also for gangs with an equal request.
A cached failure charges the probes that its search took, once per cycle, so plans are the same with
and without the cache: ``SearchCache(enabled=False)`` caches nothing from cycle to cycle.

Within one action, a request that needs at least as much as one that failed fails as well, without a
search (``FailedRequests``). That rule also applies without the cache, as such a request spends no
probes and gets the same reason. KAI's ``MinimalJobRepresentatives``
(``minimal_job_comparison.go``) is the same rule.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Action
from kai_py.plan.search_cache.inputs import Decisions, InputsChange, InputsHistory
from kai_py.snapshot.gangs import Gang, Member


@dataclass(frozen=True, slots=True)
class SearchKey:
    """The request of a search.

    ``signature``: equal for requests whose searches end alike. ``gang``: the gang, if its request
    is comparable to no other. ``pod``: one of the pods, if all are equivalent.
    """

    signature: Hashable
    gang: Gang | None = field(default=None, hash=False)
    pod: Member | None = field(default=None, compare=False)


class SearchFailure(Struct, frozen=True):
    """How a search failed.

    ``budget``: its probe budget, None if it needed none; ``probes_used``: the probes that it took,
    or the steps of an exact search in allocate. ``out_of_budget``: it spent its budget, so nothing
    is proven. ``backs_off``: it is not repeated before a pod has left or a node has been added.
    ``protected_by``: queue to the eviction limit that protects its pods.
    ``reason``: why the pods could not be placed. ``too_many_pods``: there are victims, but more
    than the action may evict for one gang.
    """

    budget: int | None = None
    probes_used: int = 0
    out_of_budget: bool = False
    backs_off: bool = False
    protected_by: Mapping[str, str] = msgspec.field(default_factory=dict)
    reason: Unschedulable | None = None
    too_many_pods: bool = False


@dataclass(slots=True)
class SearchEntries:
    """Failures for the same inputs; ``charged``: those whose probes the cycle has charged."""

    failures: dict[SearchKey, SearchFailure] = field(default_factory=dict)
    charged: set[SearchKey] = field(default_factory=set)


class SearchCache:
    """Failures of this cycle and of the last, by action and by what was decided before."""

    def __init__(self, *, enabled: bool = True) -> None:
        """``enabled``: whether failures are kept for the next cycle."""
        self._enabled = enabled
        self._history = InputsHistory()
        self._entries: dict[tuple[Action, Decisions], SearchEntries] = {}
        self._last_entries: dict[tuple[Action, Decisions], SearchEntries] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether failures are kept for the next cycle."""
        return self._enabled

    def start_cycle(self, history: InputsHistory) -> None:
        """Begin a cycle; failures that its inputs invalidate are dropped."""
        self._history = history
        self._last_entries = self._entries if self._enabled else {}
        self._entries = {}

    def entries(self, action: Action, decisions: Decisions) -> SearchEntries:
        """The failures of ``action`` that hold after ``decisions``."""
        key = action, decisions
        if key not in self._entries:
            last = self._last_entries.get(key)
            holds = last is not None and self._history.change is InputsChange.UNCHANGED
            self._entries[key] = SearchEntries(last.failures if last and holds else {})
        return self._entries[key]


Failure = TypeVar("Failure")


class FailedRequests(Generic[Failure]):
    """Failures by kind of request; they hold until capacity grows again."""

    def __init__(self) -> None:
        """Without failures."""
        self._failures: dict[Hashable, list[tuple[int, int, Failure]]] = {}

    def find(self, kind: Hashable, size: int, priority: int = 0) -> Failure | None:
        """The last failure of a request for no more pods and of no lower priority, if any."""
        for failed_size, failed_priority, failure in reversed(self._failures.get(kind, ())):
            if size >= failed_size and priority <= failed_priority:
                return failure
        return None

    def add(self, kind: Hashable, failure: Failure, size: int, priority: int = 0) -> None:
        """Record that a request for ``size`` pods failed."""
        self._failures.setdefault(kind, []).append((size, priority, failure))

    def clear(self) -> None:
        """Forget all failures, as capacity has grown."""
        self._failures.clear()
