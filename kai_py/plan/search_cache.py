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

from kai_py.plan.explain.reasons import Obstacle
from kai_py.plan.plan import Action
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.gpu_sharing import GpuSharing
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot

TOLD_ELSEWHERE = frozenset(
    {"now", "gangs", "pending", "queue_usage", "queue_demand", "queue_fixed", "disregarded"}
)
"""Time and gangs are compared in their own way; sums of queues show in their standing."""

ABOUT_OTHERS = frozenset({"held_back", "short", "staged"})
"""Which gangs have a turn, or a part in an action before: that shows in what was decided so far."""

AMOUNTS = frozenset({"used", "releasing", "gpu_sharing"})

COMPARED = tuple(
    each.name for each in fields(Snapshot) if each.name not in TOLD_ELSEWHERE | ABOUT_OTHERS
)


class Ground(IntEnum):
    """How a cluster stands to what it was."""

    OTHER = 0
    STAYED = 1
    SAME = 2


def ground_since(before: Snapshot, now: Snapshot, runtimes: Iterable[float]) -> Ground:
    """How ``now`` stands to ``before``; ``runtimes``: for how long gangs are safe, in seconds."""
    if before is now:
        return Ground.SAME
    names = [name for name in COMPARED if name not in AMOUNTS]
    if now.now < before.now or not all(_equal(before, now, name) for name in names):
        return Ground.OTHER
    gangs = _gangs_since(before, now)
    if gangs is Ground.OTHER or _lapsed(before, now, runtimes):
        return Ground.OTHER
    same = gangs is Ground.SAME and all(_equal(before, now, name) for name in AMOUNTS)
    return Ground.SAME if same else Ground.STAYED


def _equal(before: Snapshot, now: Snapshot, name: str) -> bool:
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


def _gangs_since(before: Snapshot, now: Snapshot) -> Ground:
    """How those who have pods on nodes stand."""
    found = Ground.SAME
    if before.gangs is now.gangs:
        return found
    for key, gang in now.gangs.items():
        known = before.gangs.get(key)
        if known is gang:
            continue
        ran, runs = _on_nodes(known), _on_nodes(gang)
        if (ran or runs) and known != gang:
            if known is not None and (ran != runs[: len(ran)] or not _alike(known, gang)):
                return Ground.OTHER
            found = Ground.STAYED
    gone = before.gangs.keys() - now.gangs.keys()
    return Ground.OTHER if any(_on_nodes(before.gangs[key]) for key in gone) else found


def _on_nodes(gang: Gang | None) -> list[Member]:
    return [] if gang is None else [member for member in gang.members if member.node]


def _alike(known: Gang, gang: Gang) -> bool:
    """Whether the gang is as ready to leave as it was, its pods apart."""
    return (known.queue, known.priority, known.preemptible, known.semi_preemptible, known.tree) == (
        gang.queue,
        gang.priority,
        gang.preemptible,
        gang.semi_preemptible,
        gang.tree,
    )


def _lapsed(before: Snapshot, now: Snapshot, runtimes: Iterable[float]) -> bool:
    """Whether a gang has ceased to be safe."""
    safe = tuple(runtime for runtime in runtimes if runtime > 0)
    return bool(safe) and any(
        before.now < gang.started + runtime <= now.now
        for gang in now.gangs.values()
        if gang.bound
        for runtime in safe
    )


@dataclass(frozen=True, slots=True)
class Question:
    """``asked``: what decides over the answer. ``gang``: who asks, where nobody else asks alike.

    ``pod``: of a search for pods that are alike, one of them.
    """

    asked: Hashable
    gang: Gang | None = field(default=None, hash=False)
    pod: Member | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """How a question ended that was asked in vain.

    ``budget``: probes the search had, None if none was needed; ``used``: those that it took.
    ``ran_out``: nothing is proven.
    ``withheld``: by queue, who was spared. ``obstacle``: what an attempt to place the pods met.
    ``left``: (resources, nodes) what a search that rests had left; None for any other.
    """

    budget: int | None = None
    used: int = 0
    ran_out: bool = False
    withheld: Mapping[str, str] = field(default_factory=dict)
    obstacle: Obstacle | None = None
    left: Floats | None = field(default=None, compare=False)

    @property
    def rests(self) -> bool:
        """Whether it waits for somebody to leave."""
        return self.left is not None

    def rests_with(self, left: Floats) -> bool:
        """Whether it still does where so much is ``left`` now: nowhere more than it had."""
        return self.left is not None and not (left > self.left).any()


@dataclass(slots=True)
class Page:
    """Answers that were found on one ground; ``paid``: for which the cycle has paid.

    ``resting``: those of searches that wait for somebody to leave.
    """

    answers: dict[Question, Answer] = field(default_factory=dict)
    paid: set[Question] = field(default_factory=set)
    resting: dict[Question, Answer] = field(init=False)

    def __post_init__(self) -> None:
        """Few rest, and all who ask look among them."""
        self.resting = {question: each for question, each in self.answers.items() if each.rests}


class Book:
    """What an action was told, good as long as the statement stays as it was when it first asked.

    Once the action decided something, what it is told is good for no longer than its turn.
    """

    def __init__(self, statement: Statement, page: Callable[[], Page]) -> None:
        """``page``: gives what is known of the statement as it is."""
        self._statement, self._open = statement, page
        self._page: Page | None = None
        self._decided = (0, 0)

    def recall(self, question: Question, budget: int = 0) -> Answer | None:
        """The answer that a search with so many probes would come to, if it is known."""
        known = self._current().answers.get(question)
        if known is None or known.rests or known.budget in (None, budget):
            return known
        return None

    def resting(self) -> Mapping[Question, Answer]:
        """The searches that wait for somebody to leave."""
        return self._current().resting

    def note(self, question: Question, answer: Answer) -> None:
        """Keep an answer that was just found."""
        page = self._current()
        page.answers[question] = answer
        page.paid.add(question)
        if answer.rests:
            page.resting[question] = answer

    def price(self, question: Question, answer: Answer) -> int:
        """The probes that a recalled answer costs: once in a cycle those of its search."""
        paid = self._current().paid
        if answer.rests or question in paid:
            return 0
        paid.add(question)
        return answer.used

    def _current(self) -> Page:
        """The page to read and write: one that nobody else reads, once anything was decided."""
        decided = len(self._statement.placed), len(self._statement.evicted)
        if self._page is None:
            self._decided, self._page = decided, self._open()
        elif decided != self._decided:
            self._decided, self._page = decided, Page()
        return self._page


Pages = dict[tuple[Action, Hashable], Page]
"""By action, and what beside the snapshot decides."""


class VainSearches:
    """The pages of this cycle and of the last."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._pages: Pages = {}
        self._last: Pages = {}
        self._rules: Hashable = None
        self._runtimes: tuple[float, ...] = ()
        self._before: Snapshot | None = None
        self._now: Snapshot | None = None
        self._ground: Ground | None = None

    def begin(self, snapshot: Snapshot, rules: Hashable, runtimes: tuple[float, ...]) -> None:
        """A cycle begins by these ``rules``; ``runtimes`` as of ``ground_since``."""
        self._last = self._pages if rules == self._rules else {}
        self._before = self._now if self._last else None
        self._pages, self._ground = {}, None
        self._now, self._rules, self._runtimes = snapshot, rules, runtimes

    def page(self, action: Action, marks: Hashable, left: Floats) -> Page:
        """What ``action`` was told and still holds; ``marks``: what beside the snapshot decides.

        Nothing is kept where that can't be compared (None). ``left``: (resources, nodes) what is
        free once everybody who leaves has left.
        """
        if marks is None:
            return Page()
        page = self._pages.get((action, marks))
        if page is None:
            page = self._pages[action, marks] = Page(self._still_good(action, marks, left))
        return page

    def _still_good(self, action: Action, marks: Hashable, left: Floats) -> dict[Question, Answer]:
        known = self._last.get((action, marks))
        if known is not None and self._since() is Ground.SAME:
            return known.answers
        if self._since() is Ground.OTHER:
            return {}
        told = (page.resting for (asker, _), page in self._last.items() if asker is action)
        return {
            question: answer
            for resting in told
            for question, answer in resting.items()
            if answer.rests_with(left)
        }

    def _since(self) -> Ground:
        """How the cluster stands to what it was in the last cycle."""
        if self._before is None or self._now is None:
            return Ground.OTHER
        if self._ground is None:
            self._ground = ground_since(self._before, self._now, self._runtimes)
        return self._ground
