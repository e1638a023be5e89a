"""When the first pass of allocate may end early: gangs were bypassed, and no other will be placed.

All of it is undone then, and only which gangs were bypassed and placed is kept. In a full cluster
the first few gangs take what has become free, and thousands are left that no node holds.
"""

import sys
from collections.abc import Callable, Iterable

from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Gang

MIN_FAILURES = 16
"""After this many gangs in a row that were not placed the others are looked at, then after twice as
many, and so on."""


class FirstPass:
    """The gangs of a pass that have not had their turns."""

    def __init__(
        self, state: CycleState, gangs: Iterable[Gang], is_undone: Callable[[], bool]
    ) -> None:
        """``gangs``: all that get a turn; ``is_undone``: whether a gang was bypassed until now."""
        self._state, self._is_undone = state, is_undone
        self._left = {gang.key: gang for gang in gangs}
        self._placed = self._failures = 0
        self._next_look = MIN_FAILURES

    def record(self, gang: Gang) -> None:
        """Record that the gang was not placed at its turn."""
        self._left.pop(gang.key, None)
        placed = len(self._state.statement.placed)
        if placed != self._placed:
            self._placed, self._failures, self._next_look = placed, 0, MIN_FAILURES
        self._failures += 1

    def ends(self) -> bool:
        """Whether no further turn would make a difference; asked between turns."""
        if self._failures < self._next_look:
            return False
        if not self._is_undone():
            # As long as no other gang is placed, it remains so.
            self._next_look = sys.maxsize
            return False
        self._next_look *= 2
        return not any(map(self._may_be_placed, self._left.values()))

    def _may_be_placed(self, gang: Gang) -> bool:
        """Whether any node has enough free, now or later, for a pod of the gang that is left."""
        fits, statement = self._state.placer.shapes.fits, self._state.statement
        shapes = gang.pending_shapes.values()
        return any(
            not fits.exceeds_free(statement, shape, Capacity.FUTURE_IDLE) for shape in shapes
        ) and any(member.pod.uid not in statement.placed for member in gang.pending)
