"""Domains of which one must hold all pods of a request, by topology, fabric or affinity."""

from collections.abc import Sequence

import numpy as np

from kai_py.plan.placement.affinity import affinity_group
from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.placement.topology import required_domains
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.topology import NO_DOMAIN


def shared_domains(state: CycleState, gang: Gang, members: Sequence[Member]) -> Ints | None:
    """(nodes,) int64: the domain of each node, or ``NO_DOMAIN``, if all must be in one of them.

    None if they need not be.
    """
    domains = required_domains(state.statement, gang, gang.tree)
    cliques = state.placer.compute_domains
    if domains is None and cliques is not None:
        domains = cliques.required_cliques(state.statement, gang, members)
    return _affinity_domains(state, members) if domains is None else domains


def _affinity_domains(state: CycleState, members: Sequence[Member]) -> Ints | None:
    """(nodes,) int64: domains of which one must hold all pods, by their required affinity."""
    parts = by_shape(members)
    tied = affinity_group(state.statement, parts, Capacity.FUTURE_IDLE)
    if tied is None or len(tied.parts) < len(parts):
        return None
    codes = state.snapshot.nodes.label(tied.topology_key).codes
    return np.where(codes > 0, codes.astype(np.int64) - 1, NO_DOMAIN)
