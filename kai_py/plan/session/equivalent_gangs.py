"""Equivalent gangs: what an action finds for one of them holds for all, so only one gets a turn.

``is_equivalent`` compares what two gangs request, in whatever queues; gangs of one
``equivalence_class`` also have the same queue and rights. If the request of a gang fails, that of
another one of its class fails for the same reason, until capacity grows.
"""

from collections.abc import Hashable

from kai_py.plan.session.cycle_state import CycleState
from kai_py.snapshot.gangs import Gang

MAX_BATCH_PODS = 16
"""Gangs with more pods are not batched, as that gains nothing."""


def is_equivalent(gang: Gang, other: Gang) -> bool:
    """Whether both are preemptible and request as many pods of one shape, on any nodes."""
    request = gang.joint_request
    if request is None or len(gang.members) > MAX_BATCH_PODS:
        return False
    return request == other.joint_request and gang.is_preemptible(gang.members)


def equivalence_class(state: CycleState, gang: Gang) -> Hashable | None:
    """What equivalent gangs of a queue have in common; None if there are none.

    Nodes that are reserved for other gangs are closed to some gangs of a queue only: to those that
    run for too long, or have waited for less.
    """
    request, reservations = gang.joint_request, state.placer.reservations
    if request is None or gang.semi_preemptible or reservations.spares.usable(gang):
        return None
    domains = state.placer.compute_domains
    if domains is not None and any(domains.domain_of(gang, m) is not None for m in gang.members):
        return None
    closed: tuple[tuple[int, ...], ...] = ()
    if reservations.active:
        if reservations.is_for(gang):
            return None
        later = reservations.rows_closed_to(gang, starts_now=False)
        closed = reservations.rows_closed_to(gang), later
    rights = gang.priority, gang.preemptible, gang.may_preempt, gang.owner.kind
    return gang.queue, request, rights, gang.settings.wording, closed
