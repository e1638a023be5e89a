"""Gangs that get no turn because an equivalent one has failed.

Thousands of gangs that wait for the same, the runs of a parameter study for example, cost an action
as much as one of them. They get a turn again once capacity has grown.
"""

from collections import deque
from collections.abc import Hashable, Iterator

from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.equivalent_gangs import equivalence_class
from kai_py.policy.queue_order import GangKey
from kai_py.snapshot.gangs import Gang

Ranked = tuple[GangKey, Gang]


class SkippedGangs:
    """The gangs that an action skips, by equivalence class, in order."""

    def __init__(self, state: CycleState) -> None:
        """None is skipped yet."""
        self._state = state
        self._classes: dict[str, Hashable | None] = {}
        self._failed: dict[Hashable, Gang] = {}
        self._skipped: dict[Hashable, deque[Ranked]] = {}
        self._resumed: set[Hashable] = set()

    def add_failed(self, gang: Gang) -> None:
        """From now on, skip the gangs that are equivalent to this one."""
        known = self._class_of(gang)
        if known is not None:
            self._failed[known] = gang
            self._resumed.discard(known)

    def skip(self, ranked: Ranked) -> bool:
        """Whether the gang is skipped; if so, it is kept."""
        if not self._failed:
            return False
        known = self._class_of(ranked[1])
        if known not in self._failed:
            return False
        skipped = self._skipped.setdefault(known, deque())
        if skipped and ranked < skipped[0]:
            skipped.appendleft(ranked)
        else:
            skipped.append(ranked)
        return True

    def resume_all(self) -> list[Ranked]:
        """Skip no gang any more, as capacity has grown; the gangs that come again."""
        found = [ranked for skipped in self._skipped.values() for ranked in skipped]
        self._failed.clear()
        self._skipped.clear()
        self._resumed.clear()
        return found

    def resume_first(self) -> list[Ranked]:
        """``resume_all``, but only the first gang of each class comes again at once.

        The next one comes when it is popped (``next_after``), unless it is skipped again.
        """
        self._failed.clear()
        starting = [known for known in self._skipped if known not in self._resumed]
        self._resumed.update(starting)
        return [self._take(known) for known in starting]

    def next_after(self, gang: Gang) -> Ranked | None:
        """The gang that comes again as ``gang`` has been popped, if any."""
        known = self._class_of(gang) if self._resumed else None
        return self._take(known) if known in self._resumed else None

    def __iter__(self) -> Iterator[tuple[Gang, Gang]]:
        """The gangs that are still skipped, each with the equivalent one that has failed."""
        for known, failed in self._failed.items():
            for _, gang in self._skipped.get(known, ()):
                yield gang, failed

    def _take(self, known: Hashable) -> Ranked:
        skipped = self._skipped[known]
        first = skipped.popleft()
        if not skipped:
            del self._skipped[known]
            self._resumed.discard(known)
        return first

    def _class_of(self, gang: Gang) -> Hashable | None:
        """The equivalence class; with reserved nodes it may change within a cycle."""
        if self._state.placer.reservations.active:
            return equivalence_class(self._state, gang)
        if gang.key not in self._classes:
            self._classes[gang.key] = equivalence_class(self._state, gang)
        return self._classes[gang.key]
