"""Requests that would not fit if all nodes were empty, so that no victims are searched for."""

from collections.abc import Sequence

import numpy as np

from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.shared_domains import shared_domains
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.pod_selection import DomainTerm, rules_of, selects
from kai_py.snapshot.topology import NO_DOMAIN

TOLERANCE = 1e-9
"""Relative: sums of amounts may differ by rounding."""


def never_fits(state: CycleState, gang: Gang, members: Sequence[Member]) -> bool:
    """Whether empty nodes lack resources or devices, or anti-affinity needs too many domains."""
    devices, snapshot = state.statement.devices, state.snapshot
    for group in by_shape(members):
        shape = group[0].shape
        if not state.empty_nodes.hold(snapshot, shape, len(group)):
            return True
        if shape.needs_devices and not devices.fits_empty_cluster(shape):
            return True
    return _lacks_domains(state, members) or _exceeds_domains(state, gang, members)


def _lacks_domains(state: CycleState, members: Sequence[Member]) -> bool:
    """Whether pods that exclude each other need more domains than there are."""
    nodes, namespaces = state.snapshot.nodes, state.snapshot.namespaces
    apart: dict[DomainTerm, list[Member]] = {}
    for group in by_shape(members):
        first = group[0]
        for term in set(rules_of(first.shape).anti_affinity):
            if selects(term.selection, first.pod.namespace, first.labels, namespaces):
                apart.setdefault(term, []).extend(group)
    for term, pods in apart.items():
        if len(pods) > 1:
            codes = nodes.label(term.topology_key).codes[state.admits_any(m.shape for m in pods)]
            # A node without the label is in no domain, and so excludes none.
            if codes.all() and len(pods) > len(np.unique(codes)):
                return True
    return False


def _exceeds_domains(state: CycleState, gang: Gang, members: Sequence[Member]) -> bool:
    """Whether all pods must be in one domain, and together request more than any has."""
    domains = shared_domains(state, gang, members) if len(members) > 1 else None
    if domains is None:
        return False
    resources, allocatable = state.snapshot.resources, state.snapshot.nodes.allocatable
    requested: dict[str, float] = {}
    for group in by_shape(members):
        for name, amount in group[0].shape.reported_requests.items():
            requested[name] = requested.get(name, 0.0) + amount * len(group)
    usable = state.admits_any(group[0].shape for group in by_shape(members))
    usable &= domains != NO_DOMAIN
    if not usable.any():
        return True
    inside, holds = domains[usable], np.ones(int(domains.max()) + 1, dtype=np.bool_)
    for name, amount in requested.items():
        position = resources.positions.get(name)
        if position is not None:
            sums = np.bincount(inside, allocatable[position, usable], len(holds))
            holds &= sums * (1 + TOLERANCE) >= amount
    return not holds.any()
