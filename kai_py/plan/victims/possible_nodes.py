"""Nodes on which the pods of a request may fit once other pods are evicted.

Resources are freed by any eviction, but what pod rules and node limits (``plan.state.limits``)
refuse is freed only by the eviction of certain pods: those that anti-affinity selects, that refuse
the request themselves, or that use something of which nodes have little, such as a port. Where all
of these that may be evicted are gone and a node still refuses the pods, no search for victims makes
it feasible. So a StatefulSet with more replicas than zones, of which no two may share a zone, costs
no search over the whole cluster in every cycle.

Required affinity is never met by an eviction. Topology spread counts pods that its constraints
select; as long as no such pod may be evicted, or is placed with the request, it stays as it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.session.evictable_pods import EvictablePod
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.strategy import VictimStrategy
from kai_py.plan.victims.units import VictimUnit
from kai_py.policy.pod_rules import PodRules
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.pod_selection import Selection, rules_of, selects
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.shape import Shape

MAX_PODS = 128
"""If more evictable pods than that matter to a shape, nothing is said of it."""


def possible_nodes(strategy: VictimStrategy) -> Mapping[int, Bools]:
    """By number of a shape, (nodes,) the nodes that may admit its pods; without it: any node.

    For the shapes of the request that pod rules or node limits concern.
    """
    statement, members = strategy.state.statement, strategy.request.members
    found: dict[int, Bools] = {}
    for group in by_shape(members):
        shape = group[0].shape
        if statement.pod_rules.concern(shape) or statement.limits.refusing(shape):
            nodes = _possible(strategy, group)
            if nodes is not None:
                found[shape.number] = nodes
    return found


def _possible(strategy: VictimStrategy, group: Sequence[Member]) -> Bools | None:
    """(nodes,) those that may admit pods of one shape; None if too many pods matter to it."""
    state, shape = strategy.state, group[0].shape
    rules = state.statement.pod_rules.rules(Capacity.FUTURE_IDLE)
    members = [(each.pod.namespace, each.labels) for each in strategy.request.members]
    attracting = rules.attracting(shape, members)
    spread = _lasting_spread(strategy, rules, shape)
    mask = state.admitting(shape)
    if attracting is not None:
        mask = mask & attracting
    if spread is not None and len(group) == 1:
        mask = mask & spread
    elif spread is not None and len(group) == len(members) and not (mask & spread).any():
        return np.zeros_like(mask)  # The first pod fits nowhere.
    if not mask.any():
        return mask
    in_the_way = _pods_in_the_way(strategy, shape)
    if in_the_way is None:
        return None if attracting is None and spread is None else mask
    with state.statement.trial():
        for pod in in_the_way:
            strategy.evict(VictimUnit(pod.gang, (pod.member,)), "")
        for _, passes in rules.refusals(shape):
            mask = mask & passes
        if not strategy.loses_victims and _need_more_domains(strategy, group, in_the_way, mask):
            return np.zeros_like(mask)
        limited = state.statement.limits.replicas(shape, Capacity.FUTURE_IDLE, 1)
    return mask if limited is None else mask & (limited > 0)


def _pods_in_the_way(strategy: VictimStrategy, shape: Shape) -> list[EvictablePod] | None:
    """The possible victims by which a node may refuse the shape; None if there are too many."""
    state, pods = strategy.state, strategy.state.evictable_pods
    terms = {term.selection: None for term in rules_of(shape).anti_affinity}
    found: dict[str, EvictablePod] = {}
    sources: list[Iterable[EvictablePod]] = [pods.selected_by(each) for each in terms]
    sources.append(pods.refusing(shape))
    if state.statement.limits.refusing(shape):
        sources += pods.limited()
    for source in sources:
        for pod in _possible_victims(strategy, source):
            found[pod.member.pod.uid] = pod
            if len(found) > MAX_PODS:
                return None
    return list(found.values())


def _need_more_domains(
    strategy: VictimStrategy,
    group: Sequence[Member],
    relocated: Sequence[EvictablePod],
    mask: Bools,
) -> bool:
    """Whether pods that exclude each other are more than the domains that are left for them.

    They are the pods of ``group``, all of one shape, and those of ``relocated``, which are evicted
    and must fit elsewhere. ``mask``: (nodes,) where pods of the group may go.
    """
    state, shape = strategy.state, group[0].shape
    namespaces = state.snapshot.namespaces
    for term in rules_of(shape).anti_affinity:
        if not selects(term.selection, shape.namespace, shape.labels, namespaces):
            continue
        rivals = [
            pod
            for pod in relocated
            if term in rules_of(pod.member.shape).anti_affinity
            and selects(term.selection, pod.member.pod.namespace, pod.labels, namespaces)
        ]
        counts = state.statement.pod_rules.selected(term)
        domains = np.unique(counts.codes)
        left = np.count_nonzero(counts.later[domains[domains > 0]] <= 0)
        if counts.codes[mask].all() and len(rivals) + len(group) > left:
            return True
    return False


def _lasting_spread(strategy: VictimStrategy, rules: PodRules, shape: Shape) -> Bools | None:
    """(nodes,) those that keep the spread constraints, if no eviction changes that; else None."""
    constraints = rules_of(shape).spread
    if not constraints:
        return None
    selections = {term.selection: None for term, _ in constraints}
    if any(_selects_others(strategy, each, shape) for each in selections):
        return None
    selected = chain.from_iterable(map(strategy.state.evictable_pods.selected_by, selections))
    if next(iter(_possible_victims(strategy, selected)), None) is not None:
        return None
    found: Bools = np.logical_and.reduce([mask for _, mask in rules.spread(shape)])
    return found


def _selects_others(strategy: VictimStrategy, selection: Selection, shape: Shape) -> bool:
    """Whether a selection selects pods of the request that have another shape."""
    namespaces = strategy.state.snapshot.namespaces
    others = (m for m in strategy.request.members if m.shape.number != shape.number)
    return any(selects(selection, m.pod.namespace, m.labels, namespaces) for m in others)


def _possible_victims(
    strategy: VictimStrategy, pods: Iterable[EvictablePod]
) -> Iterable[EvictablePod]:
    evicted = strategy.state.statement.evicted
    return (p for p in pods if strategy.may_evict(p.gang) and p.member.pod.uid not in evicted)
