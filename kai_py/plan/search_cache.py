"""What was asked in vain, kept from cycle to cycle: a lookup in place of a search.

A question is what an action asks for a gang: room for its pods, or victims that leave for them. Its
answer is kept while nothing that could change it has changed: the cluster (``ground``), what the
cycle had decided before, queues, who is spared, and the shapes that scores reckon with (``marks``).
A kept answer costs the probes that its search took and says what it said, so plans are the same
with and without memory. Gangs that ask the same share an answer, also within a cycle.

One rule is history, not memory: a search for moves that ran out of a whole budget *rests* until
somebody has left or a node has come: as long as everybody who ran is where they were and no node
has more room left than it had then. Pods that come only take room from those who could be moved:
the search would end there again, as would one for as many pods that ask for at least as much. While
it rests it costs no probes, so that others have them.

Is the cluster that a search sees the one that an earlier search saw?

    SAME      nothing that decides about placement or victims differs: the same search would end the
              same way. Gangs that only wait may have come and gone.
    STAYED    pods came to nodes or amounts changed, but everybody who ran is where they were: where
              no more room is left, whoever could be moved nowhere can't be moved now
    OTHER     anything else

The snapshots themselves are compared, not counters that somebody would have to keep: what a
snapshot gains as a field counts from then on. Parts that did not change are the same objects, so
that comparing mostly costs O(gangs); the amounts O(nodes x resources).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum

import numpy as np

from kai_py.plan.explain.reasons import Unschedulable
from kai_py.plan.plan import Action
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.gpus import GpuSharing

COMPARED_SEPARATELY = frozenset(
    {
        "now",
        "gangs",
        "pending",
        "queue_allocated",
        "queue_requested",
        "queue_non_preemptible",
        "ignored_markers",
    }
)
"""Time and gangs are compared in their own way; sums of queues show in their standing."""

NOT_COMPARED = frozenset({"in_backoff", "below_min_members", "started_in_part"})
"""Which gangs have a turn, or a part in an action before: that shows in what was decided so far."""

AMOUNT_FIELDS = frozenset({"used", "releasing", "gpu_sharing"})

COMPARED_FIELDS = tuple(
    each.name for each in fields(Snapshot) if each.name not in COMPARED_SEPARATELY | NOT_COMPARED
)


class SnapshotChange(IntEnum):
    """How a cluster stands to what it was."""

    CHANGED = 0
    NO_DEPARTURES = 1
    UNCHANGED = 2


def snapshot_change(before: Snapshot, now: Snapshot, runtimes: Iterable[float]) -> SnapshotChange:
    """How ``now`` stands to ``before``; ``runtimes``: for how long gangs are safe, in seconds."""
    if before is now:
        return SnapshotChange.UNCHANGED
    names = [name for name in COMPARED_FIELDS if name not in AMOUNT_FIELDS]
    if now.now < before.now or not all(_field_equal(before, now, name) for name in names):
        return SnapshotChange.CHANGED
    gangs = _gangs_change(before, now)
    if gangs is SnapshotChange.CHANGED or _protection_ended(before, now, runtimes):
        return SnapshotChange.CHANGED
    same = gangs is SnapshotChange.UNCHANGED and all(
        _field_equal(before, now, name) for name in AMOUNT_FIELDS
    )
    return SnapshotChange.UNCHANGED if same else SnapshotChange.NO_DEPARTURES


def _field_equal(before: Snapshot, now: Snapshot, name: str) -> bool:
    ours, theirs = getattr(before, name), getattr(now, name)
    if ours is theirs:
        return True
    if isinstance(ours, np.ndarray):
        return np.array_equal(ours, theirs)
    if isinstance(ours, GpuSharing):
        return all(
            np.array_equal(getattr(ours, part.name), getattr(theirs, part.name))
            for part in fields(GpuSharing)
        )
    # Columns of nodes are made anew with every change, and hold arrays that know no equality.
    return name != "nodes" and bool(ours == theirs)


def _gangs_change(before: Snapshot, now: Snapshot) -> SnapshotChange:
    """How those who have pods on nodes stand."""
    found = SnapshotChange.UNCHANGED
    if before.gangs is now.gangs:
        return found
    for key, gang in now.gangs.items():
        known = before.gangs.get(key)
        if known is gang:
            continue
        ran, runs = _members_on_nodes(known), _members_on_nodes(gang)
        if (ran or runs) and known != gang:
            if known is not None and (
                ran != runs[: len(ran)] or not _equally_evictable(known, gang)
            ):
                return SnapshotChange.CHANGED
            found = SnapshotChange.NO_DEPARTURES
    gone = before.gangs.keys() - now.gangs.keys()
    return (
        SnapshotChange.CHANGED
        if any(_members_on_nodes(before.gangs[key]) for key in gone)
        else found
    )


def _members_on_nodes(gang: Gang | None) -> list[Member]:
    return [] if gang is None else [member for member in gang.members if member.node]


def _equally_evictable(known: Gang, gang: Gang) -> bool:
    """Whether the gang is as ready to leave as it was, its pods apart."""
    return (known.queue, known.priority, known.preemptible, known.semi_preemptible, known.tree) == (
        gang.queue,
        gang.priority,
        gang.preemptible,
        gang.semi_preemptible,
        gang.tree,
    )


def _protection_ended(before: Snapshot, now: Snapshot, runtimes: Iterable[float]) -> bool:
    """Whether a gang has ceased to be safe."""
    safe = tuple(runtime for runtime in runtimes if runtime > 0)
    return bool(safe) and any(
        before.now < gang.started + runtime <= now.now
        for gang in now.gangs.values()
        if gang.bound
        for runtime in safe
    )


@dataclass(frozen=True, slots=True)
class SearchKey:
    """``asked``: what decides over the answer. ``gang``: who asks, where nobody else asks alike.

    ``pod``: of a search for pods that are alike, one of them.
    """

    signature: Hashable
    gang: Gang | None = field(default=None, hash=False)
    pod: Member | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """How a question ended that was asked in vain.

    ``budget``: probes the search had, None if none was needed; ``used``: those that it took.
    ``ran_out``: nothing is proven.
    ``withheld``: by queue, who was spared. ``obstacle``: what an attempt to place the pods met.
    ``left``: (resources, nodes) what a search that rests had left; None for any other.
    """

    budget: int | None = None
    probes_used: int = 0
    out_of_budget: bool = False
    protected_by: Mapping[str, str] = field(default_factory=dict)
    reason: Unschedulable | None = None
    future_idle: Floats | None = field(default=None, compare=False)

    @property
    def backs_off(self) -> bool:
        """Whether it waits for somebody to leave."""
        return self.future_idle is not None

    def still_backs_off(self, future_idle: Floats) -> bool:
        """Whether it still does where so much is ``left`` now: nowhere more than it had."""
        return self.future_idle is not None and not (future_idle > self.future_idle).any()


@dataclass(slots=True)
class CacheEntries:
    """Answers that were found on one ground; ``paid``: for which the cycle has paid.

    ``resting``: those of searches that wait for somebody to leave.
    """

    results: dict[SearchKey, SearchResult] = field(default_factory=dict)
    charged: set[SearchKey] = field(default_factory=set)
    backed_off: dict[SearchKey, SearchResult] = field(init=False)

    def __post_init__(self) -> None:
        """Few rest, and all who ask look among them."""
        self.backed_off = {
            question: each for question, each in self.results.items() if each.backs_off
        }


class ActionCache:
    """What an action was told, good as long as the statement stays as it was when it first asked.

    Once the action decided something, what it is told is good for no longer than its turn.
    """

    def __init__(self, statement: Statement, load: Callable[[], CacheEntries]) -> None:
        """``page``: gives what is known of the statement as it is."""
        self._statement, self._load = statement, load
        self._entries: CacheEntries | None = None
        self._decision_count = (0, 0)

    def lookup(self, key: SearchKey, budget: int = 0) -> SearchResult | None:
        """The answer that a search with so many probes would come to, if it is known."""
        known = self._current_entries().results.get(key)
        if known is None or known.backs_off or known.budget in (None, budget):
            return known
        return None

    def backed_off(self) -> Mapping[SearchKey, SearchResult]:
        """The searches that wait for somebody to leave."""
        return self._current_entries().backed_off

    def store(self, key: SearchKey, result: SearchResult) -> None:
        """Keep an answer that was just found."""
        page = self._current_entries()
        page.results[key] = result
        page.charged.add(key)
        if result.backs_off:
            page.backed_off[key] = result

    def charge(self, key: SearchKey, result: SearchResult) -> int:
        """The probes that a recalled answer costs: once in a cycle those of its search."""
        paid = self._current_entries().charged
        if result.backs_off or key in paid:
            return 0
        paid.add(key)
        return result.probes_used

    def _current_entries(self) -> CacheEntries:
        """The page to read and write: one that nobody else reads, once anything was decided."""
        decided = len(self._statement.placed), len(self._statement.evicted)
        if self._entries is None:
            self._decision_count, self._entries = decided, self._load()
        elif decided != self._decision_count:
            self._decision_count, self._entries = decided, CacheEntries()
        return self._entries


EntriesByFingerprint = dict[tuple[Action, Hashable], CacheEntries]
"""By action, and what beside the snapshot decides."""


class SearchCache:
    """The pages of this cycle and of the last."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._entries: EntriesByFingerprint = {}
        self._last_entries: EntriesByFingerprint = {}
        self._rules: Hashable = None
        self._runtimes: tuple[float, ...] = ()
        self._last_snapshot: Snapshot | None = None
        self._snapshot: Snapshot | None = None
        self._change: SnapshotChange | None = None

    def start_cycle(self, snapshot: Snapshot, rules: Hashable, runtimes: tuple[float, ...]) -> None:
        """A cycle begins by these ``rules``; ``runtimes`` as of ``ground_since``."""
        self._last_entries = self._entries if rules == self._rules else {}
        self._last_snapshot = self._snapshot if self._last_entries else None
        self._entries, self._change = {}, None
        self._snapshot, self._rules, self._runtimes = snapshot, rules, runtimes

    def entries(self, action: Action, fingerprint: Hashable, future_idle: Floats) -> CacheEntries:
        """What ``action`` was told and still holds; ``marks``: what beside the snapshot decides.

        Nothing is kept where that can't be compared (None). ``left``: (resources, nodes) what is
        free once everybody who leaves has left.
        """
        if fingerprint is None:
            return CacheEntries()
        page = self._entries.get((action, fingerprint))
        if page is None:
            page = self._entries[action, fingerprint] = CacheEntries(
                self._valid_results(action, fingerprint, future_idle)
            )
        return page

    def _valid_results(
        self, action: Action, fingerprint: Hashable, future_idle: Floats
    ) -> dict[SearchKey, SearchResult]:
        known = self._last_entries.get((action, fingerprint))
        if known is not None and self._snapshot_change() is SnapshotChange.UNCHANGED:
            return known.results
        if self._snapshot_change() is SnapshotChange.CHANGED:
            return {}
        told = (
            page.backed_off for (asker, _), page in self._last_entries.items() if asker is action
        )
        return {
            question: answer
            for resting in told
            for question, answer in resting.items()
            if answer.still_backs_off(future_idle)
        }

    def _snapshot_change(self) -> SnapshotChange:
        """How the cluster stands to what it was in the last cycle."""
        if self._last_snapshot is None or self._snapshot is None:
            return SnapshotChange.CHANGED
        if self._change is None:
            self._change = snapshot_change(self._last_snapshot, self._snapshot, self._runtimes)
        return self._change
