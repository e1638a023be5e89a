"""What the actions of one cycle share: the statement, the queues, the placer, open obstacles.

Pods of a gang go into room that is free now, or else into room that is being freed.

Which asks need the same room, so that what one gang was told holds for others?

Where all pods are of one shape, and neither a topology nor nodes that are kept for others bind the
gang, the shape and how many there are decide. O(pods asked for).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.explain.reasons import Unschedulable
from kai_py.plan.placement.gang import Placer
from kai_py.plan.placement.next_pods import PlacementRequest, next_request, precondition
from kai_py.plan.plan import Action
from kai_py.plan.search_cache import ActionCache, CacheEntries, SearchCache
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.eviction_limits import EvictionLimits
from kai_py.plan.state.queues import Quota
from kai_py.plan.state.statement import Statement
from kai_py.policy.ageing import QueueAgeing
from kai_py.policy.score.workload import frequent_shapes
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
    max_relocated_pods: int
    staleness_grace: float
    reservation_seconds: float
    eviction_limits: EvictionLimits
    ageing: QueueAgeing = field(default_factory=QueueAgeing)
    out_of_budget: Mapping[str, int] = field(default_factory=dict)
    searched: dict[str, bool] = field(default_factory=dict)
    unschedulable: dict[str, Unschedulable] = field(default_factory=dict)
    searched_in_allocate: set[str] = field(default_factory=set)
    search_cache: SearchCache = field(default_factory=SearchCache)
    minimisation_budget: int = 32_768
    _requests: dict[str, tuple[int, PlacementRequest | None, Floats]] = field(default_factory=dict)
    _preconditions: dict[str, Unschedulable | None] = field(default_factory=dict)

    @property
    def frees_capacity(self) -> bool:
        """Whether anybody is leaving, so that waiting can make sense."""
        snapshot = self.snapshot
        vacated = bool(snapshot.releasable_claims) or not all(snapshot.group_claim_users.values())
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

    def action_cache(self, action: Action) -> ActionCache:
        """What ``action`` was told before and still holds."""

        def load() -> CacheEntries:
            marks = self._fingerprint(by_share=action is Action.RECLAIM)
            return self.search_cache.entries(action, marks, self.statement.future_idle)

        return ActionCache(self.statement, load)

    def _fingerprint(self, *, by_share: bool) -> Hashable:
        """What decides over searches now, beside the snapshot; None if it can't be compared."""
        if self.placer.reservations.active:
            return None
        standing, statement = self.quota.usage, self.statement
        held = (standing.allocated, standing.non_preemptible)
        fair = (standing.fair, standing.total) if by_share else ()
        return (
            tuple((uid, each.row, each.capacity) for uid, each in statement.placed.items()),
            tuple(statement.evicted),
            tuple(amounts.tobytes() for amounts in (*held, *fair)),
            self.eviction_limits.snapshot(),
            self._score_fingerprint,
        )

    @cached_property
    def _score_fingerprint(self) -> Hashable:
        """What scores depend on beside the nodes: the pods that are taken for those to come."""
        scoring = self.placer.shapes.scoring
        if scoring is None:
            return None
        counted = ((shape.number, count) for shape, count in frequent_shapes(self.snapshot))
        return (scoring.scores, scoring.by_default, *counted)

    def mark_unschedulable(self, gang: Gang, reason: Unschedulable) -> None:
        """Record what stops ``gang``."""
        self.unschedulable[gang.key] = reason

    def start_over(self, obstacles: Mapping[str, Unschedulable]) -> None:
        """What was placed was undone: ``obstacles`` are again all that is known."""
        self.unschedulable = dict(obstacles)
        self._requests.clear()

    def mark_placed(self, gang: Gang) -> None:
        """Pods of ``gang`` were placed: nothing stops it, and what it asks for next differs."""
        self.unschedulable.pop(gang.key, None)
        self._requests.pop(gang.key, None)

    def precondition(self, gang: Gang) -> Unschedulable | None:
        """What must happen before the gang can be placed at all; looked at once in a cycle."""
        if gang.key not in self._preconditions:
            found = precondition(gang, self.quota, self.snapshot.namespaces)
            self._preconditions[gang.key] = found
        return self._preconditions[gang.key]

    def next_request(self, gang: Gang) -> PlacementRequest | None:
        """The pods to place next; None when none is left."""
        return self._cached_request(gang)[1]

    def request_cost(self, gang: Gang) -> Floats:
        """(quota resources,) the cost of the pods ``gang`` asks for next."""
        return self._cached_request(gang)[2]

    def _cached_request(self, gang: Gang) -> tuple[int, PlacementRequest | None, Floats]:
        evicted = len(self.statement.evicted)
        known = self._requests.get(gang.key)
        if known is not None and known[0] == evicted:
            return known
        ask = next_request(gang, self.statement)
        members = ask.members if ask is not None else gang.pending[:1]
        found = self._requests[gang.key] = (evicted, ask, self.quota.cost_of(members))
        return found


def place_earliest(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    *,
    allowed: Bools | None = None,
    explain: bool = True,
) -> Unschedulable | None:
    """Place all of ``members``, or say what stops them now; arguments as of ``Placer.place``."""
    obstacle: Unschedulable | None = None
    for room in (Capacity.IDLE, Capacity.FUTURE_IDLE):
        with state.statement.trial() as trial:
            blocked = state.placer.place(
                state.statement,
                gang,
                members,
                Action.ALLOCATE,
                capacity=room,
                allowed=allowed,
                explain=explain and obstacle is None,
            )
            if blocked is None:
                trial.keep()
                return None
        obstacle = obstacle or blocked
        if not state.frees_capacity:
            break
    return obstacle


def request_signature(state: CycleState, gang: Gang, request: PlacementRequest) -> int | None:
    """The number of the shape of all pods asked for; None where more than it decides over room."""
    if state.placer.reservations.active or has_topology_constraint(gang.tree):
        return None
    first = request.members[0].shape.number
    return first if all(member.shape.number == first for member in request.members) else None
