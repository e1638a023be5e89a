"""Allocate in turn: what a gang needs together with victims goes to nobody who comes after it.

    place everybody who finds free room, in order
    of the gangs that found none, those that others were given room before (``passed_over``):
        undo it, and once more in the same order: such a gang may at its turn also move others,
        reclaim and preempt; what is left goes to those after it

So no pod starts in room that a gang before it takes back a cycle later. The second pass is only
made where somebody was passed over, and ``MOST_SERVED`` gangs may make others leave in it; the rest
have their turns afterwards, like everybody who was not passed over.

Who was passed over: found no room, and then others took some of what it needs with victims?

Of a gang that gets nothing, what is left at its turn is remembered. Those who come after it take

    room, where on a node that may take its pods less is left than at its turn of a resource that
    they ask for, and less than as many of them ask for as an empty node would hold;
    bounds, where its queue, or one above it, could hold it at its turn and can't any more.

That is necessary for standing in its way, not sufficient: whether victims make room for it is for
the search to say. Gangs of a kind, alike in queue and pods, are looked at once, the first of
``MOST_KINDS`` kinds. O(nodes x resources) per kind.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kai_py.api.gpu_share import CARD
from kai_py.grouping.gang import constrained
from kai_py.plan.actions.allocate import allocate
from kai_py.plan.placement.fit import by_shape
from kai_py.plan.placement.next_pods import Ask
from kai_py.plan.session import CycleState
from kai_py.plan.state.statement import Planned
from kai_py.plan.victims.order import VictimPool
from kai_py.policy.fit import copies_that_fit
from kai_py.policy.limits import check_limits
from kai_py.policy.queue_usage import Standing, as_it_stands
from kai_py.policy.reclaim_rules import Reclaimer, may_reclaim
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats

MOST_KINDS = 16

Kind = tuple[str, bool, str, tuple[tuple[int, int], ...]]
"""Queue, whether preemptible, the gang where it has a tree of its own, pods by shape."""


def kind_of(gang: Gang, ask: Ask) -> Kind:
    """What gangs have in common that need the same room."""
    own = gang.key if constrained(gang.tree) else ""
    if len(ask.members) == 1:
        pods: tuple[tuple[int, int], ...] = ((ask.members[0].shape.number, 1),)
    else:
        groups = by_shape(ask.members)
        pods = tuple((group[0].shape.number, len(group)) for group in groups)
    return gang.queue, gang.can_give_back(ask.members), own, pods


@dataclass(frozen=True, slots=True)
class _Turn:
    """A gang got nothing when ``placed`` pods had been placed and so much was left."""

    gang: Gang
    ask: Ask
    placed: int
    later: Floats
    standing: Standing


class PassedOver:
    """Remembers who gets nothing while others do."""

    def __init__(self, state: CycleState) -> None:
        """Nobody had a turn yet."""
        self._state = state
        self._turns: dict[Kind, _Turn] = {}
        self._left: tuple[int, Floats, Standing] | None = None

    def note(self, gang: Gang) -> bool:
        """The gang gets nothing at its turn; False, for that stays so."""
        ask = self._state.ask(gang)
        if ask is not None and len(self._turns) < MOST_KINDS:
            kind = kind_of(gang, ask)
            if kind not in self._turns:
                self._turns[kind] = _Turn(gang, ask, *self._what_is_left())
        return False

    def kinds(self) -> set[Kind]:
        """The kinds of which somebody was passed over."""
        return {kind for kind, turn in self._turns.items() if self._in_its_way(turn)}

    def _what_is_left(self) -> tuple[int, Floats, Standing]:
        placed = len(self._state.statement.placed)
        if self._left is None or self._left[0] != placed:
            standing = as_it_stands(self._state.quota.standing)
            self._left = placed, self._state.statement.later.copy(), standing
        return self._left

    def _in_its_way(self, turn: _Turn) -> bool:
        came = list(self._state.statement.placed.values())[turn.placed :]
        if not came:
            return False
        groups = by_shape(turn.ask.members)
        room = any(self._takes_room(turn, group, came) for group in groups)
        return room or self._takes_bounds(turn)

    def _takes_room(self, turn: _Turn, group: list[Member], came: list[Planned]) -> bool:
        """Whether nodes have less for pods of one shape, and that is little."""
        state, shape = self._state, group[0].shape
        nodes, statement = state.snapshot.nodes, state.statement
        mask = state.placer.shapes.fits.statics.of(shape, nodes).mask
        if shape.needs_devices:
            return any(each.member.shape.needs_devices and mask[each.row] for each in came)
        asked = statement.vector(shape)
        card = state.snapshot.resources.positions.get(CARD)
        if shape.gpu_share is not None and card is not None:
            if any(each.gpus and mask[each.row] for each in came):
                return True
            asked = asked.copy()
            asked[card] = shape.gpu_share.devices
        whole = nodes.allocatable
        empty = copies_that_fit(shape, state.snapshot.resources, whole, mask, whole)
        enough = asked[:, None] * np.minimum(empty, len(group))
        taken = turn.later > statement.later
        return bool((taken & (statement.later < enough) & (asked > 0)[:, None])[:, mask].any())

    def _takes_bounds(self, turn: _Turn) -> bool:
        """Whether the queue could hold the gang at its turn, or take room back for it."""
        quota, gang = self._state.quota, turn.gang
        queue, cost = quota.queues.positions[gang.queue], quota.cost_of(turn.ask.members)
        line = quota.queues.ancestors(queue)
        if not (quota.standing.allocated[:, line] > turn.standing.allocated[:, line]).any():
            return False
        preemptible = gang.can_give_back(turn.ask.members)
        reclaimer = Reclaimer(queue, cost, preemptible)

        def held_back(standing: Standing) -> tuple[bool, bool]:
            over = check_limits(standing, queue, cost, preemptible=preemptible)
            return over is not None, may_reclaim(standing, reclaimer, quota.rules) is not None

        before, now = held_back(turn.standing), held_back(quota.standing)
        return any(late and not early for early, late in zip(before, now, strict=True))


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
