"""Requests of gangs: placed as early as they can be, and compared with one another.

Requests whose pods are all of one shape, and whose gang is bound by no topology, no ComputeDomain
and no capacity reserved for others, are comparable by shape and size (``request_signature``).

``ActionSearches`` is what an action knows of its searches: cached results, and searches that back
off. They are those of the last cycle as far as they hold, until the action decides anything. From
then on they are its own, as what follows a decision hardly comes again in the same way.
"""

from collections.abc import Hashable, Sequence

from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Action
from kai_py.plan.search_cache.backoff import BackedOff, BackedOffSearches
from kai_py.plan.search_cache.cache import SearchEntries, SearchKey, SearchResult
from kai_py.plan.search_cache.inputs import Decisions
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools


def place_earliest(
    state: CycleState,
    gang: Gang,
    members: Sequence[Member],
    *,
    allowed: Bools | None = None,
    explain: bool = True,
) -> Unschedulable | None:
    """Place all of ``members`` where it is idle, else future idle, or say what stops them."""
    reason: Unschedulable | None = None
    for capacity in (Capacity.IDLE, Capacity.FUTURE_IDLE):
        with state.statement.trial() as trial:
            blocked = state.placer.place(
                state.statement,
                gang,
                members,
                Action.ALLOCATE,
                capacity=capacity,
                allowed=allowed,
                explain=explain and reason is None,
            )
            if blocked is None:
                trial.keep()
                return None
        reason = reason or blocked
        if not state.frees_capacity:
            break
    return reason


def request_signature(state: CycleState, gang: Gang, request: PlacementRequest) -> int | None:
    """The number of the shape of all pods of the request; None where more than that decides."""
    reservations = state.placer.reservations
    if reservations.active or gang.refusals or has_topology_constraint(gang.tree):
        return None
    if reservations.spares.usable(gang):
        return None
    domains = state.placer.compute_domains
    if domains is not None and domains.domain_of(gang, request.members[0]) is not None:
        return None
    first = request.members[0].shape.number
    return first if all(member.shape.number == first for member in request.members) else None


def request_kind(state: CycleState, gang: Gang, request: PlacementRequest) -> Hashable | None:
    """``request_signature`` within one cycle: with the nodes that are reserved against the gang."""
    reservations = state.placer.reservations
    if not reservations.active:
        return request_signature(state, gang, request)
    if has_topology_constraint(gang.tree) or gang.refusals or reservations.is_for(gang):
        return None
    first = request.members[0].shape.number
    if any(member.shape.number != first for member in request.members):
        return None
    return first, reservations.rows_closed_to(gang)


class ActionSearches:
    """The failed searches of one action."""

    def __init__(self, state: CycleState, action: Action) -> None:
        """Nothing is looked up before it is asked for."""
        self._state, self._action = state, action
        self._known: tuple[SearchEntries, BackedOffSearches] | None = None
        self._decided = (0, 0)

    def lookup(self, key: SearchKey, budget: int = 0) -> SearchResult | None:
        """The result that a search with ``budget`` probes would have, if it is known."""
        known = self._current[0].results.get(key)
        return known if known is not None and known.budget in (None, budget) else None

    def backed_off(self) -> BackedOffSearches:
        """The searches that back off."""
        return self._current[1]

    def store(self, key: SearchKey, result: SearchResult) -> None:
        """Keep the result of a search, which has just been charged."""
        entries, backed_off = self._current
        if result.backs_off:
            idle = self._state.statement.future_idle.copy()
            backed_off[key] = BackedOff(result, idle)
            entries.results.pop(key, None)
            return
        entries.results[key] = result
        entries.charged.add(key)

    def charge(self, key: SearchKey, result: SearchResult) -> int:
        """The probes that a cached result costs: once in a cycle those of its search."""
        charged = self._current[0].charged
        if key in charged:
            return 0
        charged.add(key)
        return result.probes_used

    @property
    def _current(self) -> tuple[SearchEntries, BackedOffSearches]:
        state, statement = self._state, self._state.statement
        decided = len(statement.placed), len(statement.evicted)
        if self._known is None:
            self._decided, self._known = decided, (SearchEntries(), {})
            decisions = decisions_so_far(state, by_share=self._action is Action.RECLAIM)
            if decisions is not None:
                self._known = (
                    state.search_cache.entries(self._action, decisions),
                    state.backoff.searches(self._action, decisions, statement.future_idle),
                )
        elif decided != self._decided:
            self._decided, self._known = decided, (SearchEntries(), {})
        return self._known


def decisions_so_far(state: CycleState, *, by_share: bool) -> Decisions | None:
    """The inputs of a search that the cycle has changed; None where they can't be compared.

    ``by_share``: whether shares of queues decide.
    """
    if state.placer.reservations.active:
        return None
    quota, statement = state.quota, state.statement
    usage = quota.usage
    return Decisions(
        placed=tuple((uid, each.row, each.capacity) for uid, each in statement.placed.items()),
        evicted=tuple(statement.evicted),
        usage=tuple(
            each.tobytes() for each in (usage.allocated, usage.non_preemptible, quota.leaving)
        ),
        shares=(usage.fair.tobytes(), usage.total.tobytes()) if by_share else (),
        past_evictions=state.eviction_limits.snapshot(),
        scores=state.score_inputs,
    )
