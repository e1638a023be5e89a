"""Requests of gangs: placing one as early as possible, and comparing them.

Requests whose pods are all of one shape, and whose gang is bound by no topology, no ComputeDomain
and no capacity reserved for others, are comparable by shape and size (``request_signature``).
"""

from collections.abc import Hashable, Sequence

from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable
from kai_py.plan.plan import Action
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
    """Place all of ``members`` in idle, else in future idle capacity; None, or why not.

    ``allowed``: (nodes,) bool, None for all. The reason is that of idle capacity.
    """
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
    """The number of the only shape of a request; None if its placement depends on more."""
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
    """``request_signature`` within one cycle, with the rows that are reserved against the gang."""
    reservations = state.placer.reservations
    if not reservations.active:
        return request_signature(state, gang, request)
    if has_topology_constraint(gang.tree) or gang.refusals or reservations.is_for(gang):
        return None
    first = request.members[0].shape.number
    if any(member.shape.number != first for member in request.members):
        return None
    return first, reservations.rows_closed_to(gang)
