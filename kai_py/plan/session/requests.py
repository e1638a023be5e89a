"""Comparing requests of gangs by what decides whether they can be placed.

Requests whose pods are all of one shape, and whose gang is bound by no topology, no ComputeDomain
and no capacity reserved for others, are comparable by shape and size (``request_signature``).
"""

from typing import NamedTuple

from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Gang


def request_signature(state: CycleState, gang: Gang, request: PlacementRequest) -> int | None:
    """The number of the only shape of a request; None if its placement depends on more."""
    return None if state.placer.reservations.active else _only_shape(state, gang, request)


class RequestKind(NamedTuple):
    """What requests of one kind have in common beside their number of pods.

    ``shape``: the number of their only shape; ``closed``, ``closed_later``: the rows of the nodes
    that are reserved against the gang, for pods that start now and for others.
    """

    shape: int
    closed: tuple[int, ...] = ()
    closed_later: tuple[int, ...] = ()


def request_kind(state: CycleState, gang: Gang, request: PlacementRequest) -> RequestKind | None:
    """The kind of a request within one cycle; None if its placement depends on more."""
    reservations = state.placer.reservations
    shape = _only_shape(state, gang, request)
    if shape is None:
        return None
    if not reservations.active:
        return RequestKind(shape)
    if reservations.is_for(gang):
        return None
    later = reservations.rows_closed_to(gang, starts_now=False)
    return RequestKind(shape, reservations.rows_closed_to(gang), later)


def _only_shape(state: CycleState, gang: Gang, request: PlacementRequest) -> int | None:
    """``request_signature``, whatever is reserved for gangs."""
    if gang.refusals or has_topology_constraint(gang.tree):
        return None
    if state.placer.reservations.spares.usable(gang):
        return None
    domains = state.placer.compute_domains
    if domains is not None and domains.domain_of(gang, request.members[0]) is not None:
        return None
    first = request.members[0].shape.number
    return first if all(member.shape.number == first for member in request.members) else None
