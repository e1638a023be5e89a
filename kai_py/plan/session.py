"""What the actions of one cycle share: the statement, the queues, the placer, open obstacles.

Pods of a gang go into room that is free now, or else into room that is being freed.

Which asks need the same room, so that what one gang was told holds for others?

Where all pods are of one shape, and neither a topology nor nodes that are kept for others bind the
gang, the shape and how many there are decide. O(pods asked for).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kai_py.grouping.gang import constrained
from kai_py.plan.explain.reasons import Obstacle
from kai_py.plan.placement.gang import Placer
from kai_py.plan.placement.next_pods import Ask, next_ask, precondition
from kai_py.plan.plan import Action
from kai_py.plan.search_cache import Book, Page, VainSearches
from kai_py.plan.state.capacity import Room
from kai_py.plan.state.eviction_limits import Spared
from kai_py.plan.state.queues import Quota
from kai_py.plan.state.statement import Statement
from kai_py.policy.ageing import QueueAgeing
from kai_py.policy.score.strategies import PlacementStrategy, frequent_shapes
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.snapshot import Snapshot


@dataclass
class CycleState:
    """Mutable for the length of one cycle. ``obstacles``: gang key to what stops it.

    ``probes``: trial placements that searches for victims may still make, ``probes_per_gang`` how
    many of them in one search. ``most_moved``: pods that may be moved for one gang.
    ``exhausted``: gang key to the last cycle in which its search ran out of them; ``searched``:
    gang key to whether one did in this cycle. ``had_their_turn``: keys of gangs that have searched
    for victims when they came to be allocated. ``vain``: what was asked in vain before.
    ``weighable``: units that may still be looked at to find fewer victims.
    """

    snapshot: Snapshot
    quota: Quota
    statement: Statement
    placer: Placer
    probes: int
    probes_per_gang: int
    most_moved: int
    staleness_grace: float
    hold_seconds: float
    spared: Spared
    ageing: QueueAgeing = field(default_factory=QueueAgeing)
    exhausted: Mapping[str, int] = field(default_factory=dict)
    searched: dict[str, bool] = field(default_factory=dict)
    obstacles: dict[str, Obstacle] = field(default_factory=dict)
    had_their_turn: set[str] = field(default_factory=set)
    vain: VainSearches = field(default_factory=VainSearches)
    weighable: int = 32_768
    _asks: dict[str, tuple[int, Ask | None, Floats]] = field(default_factory=dict)
    _preconditions: dict[str, Obstacle | None] = field(default_factory=dict)

    @property
    def frees_room(self) -> bool:
        """Whether anybody is leaving, so that waiting can make sense."""
        snapshot = self.snapshot
        vacated = bool(snapshot.vacancies) or not all(snapshot.group_users.values())
        return vacated or bool(snapshot.releasing.any()) or bool(self.statement.evicted)

    @cached_property
    def evictable(self) -> Mapping[int, Sequence[Gang]]:
        """Preemptible gangs that ran when the cycle began, by queue."""
        found: dict[int, list[Gang]] = {}
        for gang in self.snapshot.gangs.values():
            queue = self.quota.queue_of(gang) if gang.preemptible and gang.bound else None
            if queue is not None:
                found.setdefault(queue, []).append(gang)
        return found

    def open_book(self, action: Action) -> Book:
        """What ``action`` was told before and still holds."""

        def page() -> Page:
            marks = self._marks(by_share=action is Action.RECLAIM)
            return self.vain.page(action, marks, self.statement.later)

        return Book(self.statement, page)

    def _marks(self, *, by_share: bool) -> Hashable:
        """What decides over searches now, beside the snapshot; None if it can't be compared."""
        scoring = self.placer.shapes.scoring
        by_lot = scoring is not None and scoring.strategy is PlacementStrategy.RANDOM
        if by_lot or self.placer.reservations.kept:
            return None
        standing, statement = self.quota.standing, self.statement
        held = (standing.allocated, standing.non_preemptible)
        fair = (standing.fair, standing.total) if by_share else ()
        return (
            tuple((uid, each.row, each.room) for uid, each in statement.placed.items()),
            tuple(statement.evicted),
            tuple(amounts.tobytes() for amounts in (*held, *fair)),
            self.spared.standing(),
            self._scored_for,
        )

    @cached_property
    def _scored_for(self) -> Hashable:
        """What scores depend on beside the nodes: the pods that are taken for those to come."""
        scoring = self.placer.shapes.scoring
        if scoring is None:
            return None
        counted = ((shape.number, count) for shape, count in frequent_shapes(self.snapshot))
        return (scoring.strategy, scoring.by_default, *counted)

    def stop(self, gang: Gang, obstacle: Obstacle) -> None:
        """Record what stops ``gang``."""
        self.obstacles[gang.key] = obstacle

    def start_over(self, obstacles: Mapping[str, Obstacle]) -> None:
        """What was placed was undone: ``obstacles`` are again all that is known."""
        self.obstacles = dict(obstacles)
        self._asks.clear()

    def clear(self, gang: Gang) -> None:
        """Pods of ``gang`` were placed: nothing stops it, and what it asks for next differs."""
        self.obstacles.pop(gang.key, None)
        self._asks.pop(gang.key, None)

    def precondition(self, gang: Gang) -> Obstacle | None:
        """What must happen before the gang can be placed at all; looked at once in a cycle."""
        if gang.key not in self._preconditions:
            found = precondition(gang, self.quota, self.snapshot.namespaces)
            self._preconditions[gang.key] = found
        return self._preconditions[gang.key]

    def ask(self, gang: Gang) -> Ask | None:
        """The pods to place next; None when none is left."""
        return self._ask(gang)[1]

    def ask_cost(self, gang: Gang) -> Floats:
        """(quota resources,) the cost of the pods ``gang`` asks for next."""
        return self._ask(gang)[2]

    def _ask(self, gang: Gang) -> tuple[int, Ask | None, Floats]:
        evicted = len(self.statement.evicted)
        known = self._asks.get(gang.key)
        if known is not None and known[0] == evicted:
            return known
        ask = next_ask(gang, self.statement)
        members = ask.members if ask is not None else gang.pending[:1]
        found = self._asks[gang.key] = (evicted, ask, self.quota.cost_of(members))
        return found


def place_soonest(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    *,
    allowed: Bools | None = None,
    told: bool = True,
) -> Obstacle | None:
    """Place all of ``members``, or say what stops them now; arguments as of ``Placer.place``."""
    obstacle: Obstacle | None = None
    for room in (Room.NOW, Room.LATER):
        with state.statement.trial() as trial:
            blocked = state.placer.place(
                state.statement,
                gang,
                members,
                Action.ALLOCATE,
                room=room,
                allowed=allowed,
                told=told and obstacle is None,
            )
            if blocked is None:
                trial.keep()
                return None
        obstacle = obstacle or blocked
        if not state.frees_room:
            break
    return obstacle


def deciding_shape(state: CycleState, gang: Gang, ask: Ask) -> int | None:
    """The number of the shape of all pods asked for; None where more than it decides over room."""
    if state.placer.reservations.kept or constrained(gang.tree):
        return None
    first = ask.members[0].shape.number
    return first if all(member.shape.number == first for member in ask.members) else None
