"""Allocate in turn: what a gang needs together with victims goes to nobody who comes after it.

    place everybody who finds free room, in order
    of the gangs that found none, those that others were given room before (``passed_over``):
        undo it, and once more in the same order: such a gang may at its turn also move others,
        reclaim and preempt; what is left goes to those after it

So no pod starts in room that a gang before it takes back a cycle later. The second pass is only
made where somebody was passed over, and ``MOST_SERVED`` gangs may make others leave in it; the rest
have their turns afterwards, like everybody who was not passed over.
"""

from collections.abc import Callable, Iterable, Sequence

from kai_py.plan.actions.allocate import allocate
from kai_py.plan.passed_over import Kind, PassedOver, kind_of
from kai_py.plan.session import CycleState
from kai_py.plan.victims.order import VictimPool
from kai_py.snapshot.gangs import Gang

MOST_SERVED = 16

Seeker = Callable[[CycleState, Sequence[Gang], VictimPool], None]
"""An action that makes others leave."""


def allocate_in_turn(state: CycleState, gangs: Iterable[Gang], seekers: Sequence[Seeker]) -> None:
    """Run the action for ``gangs``; ``seekers`` are tried one after the other."""
    everybody, obstacles = list(gangs), dict(state.obstacles)
    with state.statement.trial() as trial:
        passed_over = PassedOver(state)
        allocate(state, everybody, passed_over.note)
        kinds = passed_over.kinds() if seekers else set()
        if not kinds or not state.evictable:
            trial.keep()
            return
    state.start_over(obstacles)
    allocate(state, everybody, _AtTheirTurn(state, kinds, seekers).serve)


class _AtTheirTurn:
    """Makes room for gangs of some kinds when they come."""

    def __init__(self, state: CycleState, kinds: set[Kind], seekers: Sequence[Seeker]) -> None:
        """Nobody came yet."""
        self._state, self._kinds, self._seekers = state, kinds, seekers
        self._served = 0
        self._pool: tuple[int, VictimPool] | None = None

    def serve(self, gang: Gang) -> bool:
        """Whether the gang, which finds no free room, got room from others."""
        state, ask = self._state, self._state.ask(gang)
        if ask is None or self._served >= MOST_SERVED or gang.key in state.exhausted:
            return False
        kind = kind_of(gang, ask)
        if kind not in self._kinds:
            return False
        for seek in self._seekers:
            seek(state, [gang], self._units())
            if ask.members[0].pod.uid in state.statement.placed:
                self._served += 1
                return True
        self._kinds.discard(kind)
        state.had_their_turn.add(gang.key)
        return False

    def _units(self) -> VictimPool:
        """Who could leave, built anew whenever anybody was placed."""
        placed = len(self._state.statement.placed)
        if self._pool is None or self._pool[0] != placed:
            self._pool = placed, VictimPool(self._state)
        return self._pool[1]
