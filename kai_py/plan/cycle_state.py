"""What the actions of one cycle share: the statement, the queues, the placer, open obstacles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kai_py.plan.candidates import Ask, next_ask
from kai_py.plan.place import Placer
from kai_py.plan.quota import Quota
from kai_py.plan.reasons import Obstacle
from kai_py.plan.spared import Spared
from kai_py.plan.statement import Statement
from kai_py.policy.ageing import QueueAgeing
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot


@dataclass
class CycleState:
    """Mutable for the length of one cycle. ``obstacles``: gang key to what stops it.

    ``probes``: trial placements that searches for victims may still make, ``probes_per_gang`` how
    many of them in one search. ``most_moved``: pods that may be moved for one gang.
    ``exhausted``: gang key to the last cycle in which its search ran out of them; ``searched``:
    gang key to whether one did in this cycle. ``had_their_turn``: keys of gangs that have searched
    for victims when they came to be allocated.
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
    _asks: dict[str, tuple[int, Ask | None, Floats]] = field(default_factory=dict)

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
