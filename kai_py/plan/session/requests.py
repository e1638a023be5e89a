"""Comparing requests of gangs by what decides whether they can be placed.

Requests whose pods are all of one shape, and whose gang is bound by no topology, no ComputeDomain
and no capacity reserved for others, are comparable by shape and size (``request_signature``). Of
requests with several shapes, those are alike that have as many pods of each (``mixed_kind``).
"""

from typing import NamedTuple

from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Gang


def request_signature(state: CycleState, gang: Gang, request: PlacementRequest) -> int | None:
    """The number of the only shape of a request; None if its placement depends on more."""
    return None if state.placer.reservations.active else _only_shape(state, gang, request)


class RequestKind(NamedTuple):
    """What requests of one kind have in common beside their number of pods.

    ``shape``: the number of their only shape, or of the largest; ``closed``, ``closed_later``: the
    rows of the nodes that are reserved against the gang, for pods that start now and for others;
    ``others``: the numbers of the other shapes, each with that of its pods, the largest first.
    """

    shape: int
    closed: tuple[int, ...] = ()
    closed_later: tuple[int, ...] = ()
    others: tuple[tuple[int, int], ...] = ()


def request_kind(state: CycleState, gang: Gang, request: PlacementRequest) -> RequestKind | None:
    """The kind of a request within one cycle; None if its placement depends on more."""
    shape = _only_shape(state, gang, request)
    return None if shape is None else _kind(state, gang, shape)


def mixed_kind(state: CycleState, gang: Gang, request: PlacementRequest) -> RequestKind | None:
    """``request_kind``, also for requests with several shapes."""
    if not _is_comparable(state, gang, request):
        return None
    first, *others = by_shape(request.members)
    kind = _kind(state, gang, first[0].shape.number)
    counts = tuple((group[0].shape.number, len(group)) for group in others)
    return None if kind is None else kind._replace(others=counts)


def _kind(state: CycleState, gang: Gang, shape: int) -> RequestKind | None:
    reservations = state.placer.reservations
    if not reservations.active:
        return RequestKind(shape)
    if reservations.is_for(gang):
        return None
    later = reservations.rows_closed_to(gang, starts_now=False)
    return RequestKind(shape, reservations.rows_closed_to(gang), later)


def _only_shape(state: CycleState, gang: Gang, request: PlacementRequest) -> int | None:
    """``request_signature``, whatever is reserved for gangs."""
    first = request.members[0].shape.number
    if not all(member.shape.number == first for member in request.members):
        return None
    return first if _is_comparable(state, gang, request) else None


def _is_comparable(state: CycleState, gang: Gang, request: PlacementRequest) -> bool:
    """Whether shapes, and what is reserved for gangs, decide all about a request."""
    if gang.refusals or has_topology_constraint(gang.tree):
        return False
    if state.placer.reservations.spares.usable(gang):
        return False
    domains = state.placer.compute_domains
    return domains is None or all(domains.domain_of(gang, m) is None for m in request.members)
