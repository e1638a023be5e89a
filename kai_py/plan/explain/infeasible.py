"""Infeasible gangs: those that this cluster could not run even if nothing else ran on it.

Neither waiting nor evictions help them, only larger or more nodes, or a smaller request. With every
node empty and no node cordoned or unready, these are checked in order:

    a pod that no node admits by its selector, affinity, tolerations and volumes
    a pod larger than any node that admits it
    devices of which no node has as many as one pod claims
    a gang of more pods than all admitted nodes hold together, or of pods that differ and request
    more together than these nodes have
    a subgroup of more pods than any domain of its required topology level holds

Kubernetes calls a request that a node can never satisfy ``Infeasible``, in contrast to ``Deferred``
(KEP-1287, in-place resize). This is for explanation only and decides nothing. O(nodes) per shape.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from msgspec import structs

from kai_py.api.records.core import NodeSelector
from kai_py.grouping.gang import Subgroup
from kai_py.plan.placement.attempt import MAX_PODS_TO_REORDER, by_shape
from kai_py.plan.placement.next_pods import PlacementRequest
from kai_py.plan.placement.reasons import Unschedulable, amount_texts
from kai_py.plan.placement.topology import largest_domain, members_of
from kai_py.plan.plan import Stage
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.session.requests import request_signature
from kai_py.plan.state.empty_nodes import eventually_admitted, replicas_on_empty
from kai_py.policy.fit import matches_own_selectors, requests_where_reported
from kai_py.policy.node_filters import eventually_tolerated
from kai_py.policy.queue_usage import is_above
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape

EXPLAINED = frozenset(
    {
        Stage.NODE_FILTERS,
        Stage.RESOURCES,
        Stage.DEVICES,
        Stage.TOPOLOGY,
        Stage.QUEUE_MAX,
        Stage.NON_PREEMPTIBLE,
    }
)
"""Stages at which gangs are checked, with those of quota, which comes before nodes."""


@dataclass
class _EmptyCluster:
    """How many pods of a shape the nodes would hold if they were empty; computed once each."""

    state: CycleState
    _replicas: dict[tuple[int, int], Ints] = field(default_factory=dict)
    _admitted: dict[int, Bools] = field(default_factory=dict)
    _by_resources: dict[int, Ints] = field(default_factory=dict)
    mixtures: dict[tuple[tuple[int, int], ...], str] = field(default_factory=dict)
    """Why pods do not fit together, by shape and number."""

    def admitted(self, shape: Shape) -> Bools:
        """(nodes,) bool: its selector, affinity, tolerations and volumes admit the node."""
        if shape.number not in self._admitted:
            nodes = self.state.snapshot.nodes
            self._admitted[shape.number] = eventually_admitted(shape, nodes)
        return self._admitted[shape.number]

    def by_resources(self, shape: Shape) -> Ints:
        """(nodes,) int64: how many pods of ``shape`` each admitted node holds by resources."""
        if shape.number not in self._by_resources:
            snapshot = self.state.snapshot
            fit = replicas_on_empty(shape, snapshot.nodes, snapshot.resources, self.admitted(shape))
            self._by_resources[shape.number] = fit
        return self._by_resources[shape.number]

    def replicas(self, shape: Shape, count: int) -> Ints:
        """(nodes,) int64: the same by resources and devices; exact up to ``count`` in total."""
        if (shape.number, count) not in self._replicas:
            fit = self.by_resources(shape)
            if shape.needs_devices:
                devices = self.state.statement.devices
                fit = np.minimum(fit, devices.replicas_on_empty_nodes(shape, fit > 0, count))
            self._replicas[shape.number, count] = fit
        return self._replicas[shape.number, count]


def explain_infeasible(state: CycleState, gangs: Sequence[Gang]) -> None:
    """Add to the reasons of ``gangs`` why they could not run even in an empty cluster, if so."""
    short = [gang for gang in gangs if _is_explained(state, gang)]
    if not short or not len(state.snapshot.nodes):
        return
    empty, known = _EmptyCluster(state), dict[tuple[int, int], str]()
    for gang in state.turns.eligible(short):
        with state.turns.of(gang):
            request = state.next_request(gang)
            problem = _known_problem(empty, gang, request, known) if request is not None else ""
            if problem and not state.turns.spending.cut_short:
                reason = state.unschedulable[gang.key]
                text = _added_text(problem, reason)
                state.mark_unschedulable(gang, structs.replace(reason, infeasible=text))


def _is_explained(state: CycleState, gang: Gang) -> bool:
    reason = state.unschedulable.get(gang.key)
    return reason is not None and reason.stage in EXPLAINED


def _added_text(problem: str, reason: Unschedulable) -> str:
    """``problem``, preceded by the queue's bound that the gang exceeds even without others."""
    is_quota = reason.stage in (Stage.QUEUE_MAX, Stage.NON_PREEMPTIBLE)
    if not is_quota or not reason.infeasible:
        return problem
    return reason.infeasible if problem in reason.infeasible else f"{reason.infeasible}; {problem}"


def _known_problem(
    empty: _EmptyCluster, gang: Gang, request: PlacementRequest, known: dict[tuple[int, int], str]
) -> str:
    """``_problem``, computed once for the same number of pods of one shape."""
    shape = request_signature(empty.state, gang, request)
    if shape is None:
        return _problem(empty, gang, request)
    key = shape, len(request.members)
    if key not in known:
        known[key] = _problem(empty, gang, request)
    return known[key]


def _problem(empty: _EmptyCluster, gang: Gang, request: PlacementRequest) -> str:
    """The first check that fails, as a clause; empty if the gang could run."""
    groups = by_shape(request.members)
    if _is_held(empty.state, gang, groups):
        return _mixture_problem(empty, groups)
    problems = chain(
        (_pod_problem(empty, members[0].shape) for members in groups),
        (_count_problem(empty, members) for members in groups),
    )
    return (
        next(filter(None, problems), "")
        or _mixture_problem(empty, groups)
        or next(filter(None, _domain_problems(empty, gang, request.members)), "")
    )


def _is_held(state: CycleState, gang: Gang, groups: Iterable[Sequence[Member]]) -> bool:
    """Whether no check can fail, as only resources decide and the nodes have enough of them."""
    if next(_with_required_level(gang.tree), None) is not None:
        return False
    held = state.empty_nodes.hold
    return all(
        not (shape := members[0].shape).has_claims and held(state.snapshot, shape, len(members))
        for members in groups
    )


def _pod_problem(empty: _EmptyCluster, shape: Shape) -> str:
    admitted = empty.admitted(shape)
    if not admitted.any():
        return _admission_problem(shape, empty.state.snapshot.nodes)
    if not empty.by_resources(shape).any():
        return _largest_node_text(empty, shape, admitted)
    if shape.needs_devices and not empty.replicas(shape, 1).any():
        return empty.state.statement.devices.infeasible_reason(shape, admitted)
    return ""


def _admission_problem(shape: Shape, nodes: NodeColumns) -> str:
    """Which requirement of a pod excludes all nodes: selectors, tolerations or volumes."""
    matching = matches_own_selectors(shape, nodes)
    if not matching.any():
        return "no node matches the node selector or affinity of a pod"
    if not (matching & eventually_tolerated(shape.tolerations, nodes)).any():
        which = "every node" if matching.all() else "every node that matches its node selector"
        return f"{which} has a taint that a pod does not tolerate"
    return f"no node that a pod may use reaches its volumes{_places(shape.volume_selectors)}"


def _places(selectors: Iterable[NodeSelector]) -> str:
    """The node labels that volumes require, in brackets; "" without ``In`` expressions."""
    found = dict.fromkeys(
        f"{each.key}={' or '.join(each.values)}"
        for selector in selectors
        for term in selector.node_selector_terms
        for each in term.match_expressions
        if each.operator == "In"
    )
    return f" ({', '.join(found)})" if found else ""


def _largest_node_text(empty: _EmptyCluster, shape: Shape, admitted: Bools) -> str:
    """Which resource no admitted node has enough of, or that none has all of them."""
    snapshot = empty.state.snapshot
    requested = {**dict(requests_where_reported(shape)), **shape.requests}
    for name, request in sorted(requested.items()):
        row = snapshot.resources.positions.get(name)
        sizes = snapshot.nodes.allocatable[row][admitted] if row is not None else np.zeros(1)
        largest = float(sizes.max())
        by_devices = name not in shape.reported_requests and not largest
        if largest < request and not by_devices:
            having = int(np.count_nonzero(sizes == largest)) if largest else 0
            total = int(np.count_nonzero(admitted))
            nodes = "nodes" if admitted.all() else "admitted nodes"
            wanted, most = amount_texts(name, request, largest)
            return f"a pod requests {name} {wanted}; {_most_text(most, having, total, nodes)}"
    return "no single node has everything that a pod requests"


def _most_text(most: str, having: int, total: int, nodes: str) -> str:
    """A clause: ``having`` of ``total`` nodes have ``most``, the largest amount; 0: none has it."""
    if not having:
        return f"no {nodes.removesuffix('s')} has any"
    if total == 1:
        return f"the only {nodes.removesuffix('s')} has {most}"
    if having == total:
        return f"each of {total} {nodes} has {most}"
    others = "the other" if total - having == 1 else "the others"
    return f"{having} of {total} {nodes} {'has' if having == 1 else 'have'} {most}, {others} less"


def _count_problem(empty: _EmptyCluster, members: Sequence[Member]) -> str:
    shape = members[0].shape
    total = int(empty.replicas(shape, len(members)).sum())
    # If no node admits the pod at all, the filters are the reason.
    if total >= len(members) or not total or _may_change(empty, shape):
        return ""
    if _hold_more_together(empty, members):
        return ""
    return f"with nothing else on them, the nodes hold {total} of the {len(members)} pods"


def _hold_more_together(empty: _EmptyCluster, members: Sequence[Member]) -> bool:
    """Whether a node holds more of them if their devices are chosen for all of them together."""
    shape = members[0].shape
    if not shape.needs_devices or len(members) > MAX_PODS_TO_REORDER or shape.shared_claims:
        return False
    replicas = empty.replicas(shape, len(members))
    more_by_resources = empty.by_resources(shape) > replicas
    return empty.state.statement.devices.hold_more_together(shape, replicas, more_by_resources)


def _mixture_problem(empty: _EmptyCluster, groups: Sequence[Sequence[Member]]) -> str:
    """Why pods of several shapes do not fit together; found once for equal gangs."""
    if len(groups) < 2:
        return ""
    key = tuple((members[0].shape.number, len(members)) for members in groups)
    if key not in empty.mixtures:
        found = chain([_total_problem(empty, groups)], _larger_problems(empty, groups))
        empty.mixtures[key] = next(filter(None, found), "")
    return empty.mixtures[key]


def _total_problem(empty: _EmptyCluster, groups: Sequence[Sequence[Member]]) -> str:
    """Of which resource pods request more than all nodes have that admit one of them."""
    snapshot = empty.state.snapshot
    admitted = _admitted_to_any(empty, groups)
    for name, row in sorted(snapshot.resources.positions.items()):
        asking = [members for members in groups if name in members[0].shape.requests]
        if any(name in members[0].shape.extended.resources for members in asking):
            continue  # some nodes serve it by claims
        requested = sum(len(members) * members[0].shape.requests[name] for members in asking)
        whole = float(snapshot.nodes.allocatable[row][admitted].sum())
        if whole and is_above(requested, whole):
            count, (wanted, most) = sum(map(len, asking)), amount_texts(name, requested, whole)
            has = f"with nothing else on them, the nodes have {most}"
            return f"{count} pods request {name} {wanted} together; {has}"
    return ""


def _larger_problems(empty: _EmptyCluster, groups: Sequence[Sequence[Member]]) -> Iterator[str]:
    """Of which pods, with all that request at least as much, the nodes do not hold so many."""
    snapshot = empty.state.snapshot
    for members in groups:
        shape = members[0].shape
        larger = [
            each
            for each in groups
            if all(each[0].shape.requests.get(n, 0.0) >= r for n, r in shape.requests.items())
        ]
        count = sum(map(len, larger))
        admitted = _admitted_to_any(empty, larger)
        fit = replicas_on_empty(shape, snapshot.nodes, snapshot.resources, admitted)
        if 0 < fit.sum() < count:
            held = f"with nothing else on them, the nodes hold {int(fit.sum())} of the {count} pods"
            yield f"{held} that request as much as {members[0].pod.name}, or more"


def _admitted_to_any(empty: _EmptyCluster, groups: Sequence[Sequence[Member]]) -> Bools:
    found = np.zeros(len(empty.state.snapshot.nodes), dtype=np.bool_)
    for members in groups:
        found |= empty.admitted(members[0].shape)
    return found


def _may_change(empty: _EmptyCluster, shape: Shape) -> bool:
    """Whether the devices that are usable may change, so that nothing can be said for good."""
    if not shape.needs_devices or (not shape.claims and _is_served_by_plugins(empty, shape)):
        return False
    devices = empty.state.statement.devices
    return not devices.infeasible_reason(shape, empty.admitted(shape))


def _is_served_by_plugins(empty: _EmptyCluster, shape: Shape) -> bool:
    """Whether device plugins of all nodes that hold the pod report what it requests."""
    snapshot, holding = empty.state.snapshot, empty.by_resources(shape) > 0
    rows = [snapshot.resources.positions.get(name) for name in shape.extended.resources]
    return all(
        row is not None and bool((snapshot.nodes.allocatable[row][holding] > 0).all())
        for row in rows
    )


def _domain_problems(empty: _EmptyCluster, gang: Gang, members: Sequence[Member]) -> Iterator[str]:
    for group in _with_required_level(gang.tree):
        inside = by_shape(members_of(group, members))
        counts = [len(each) for each in inside]
        replicas = [empty.replicas(each[0].shape, len(each)) for each in inside]
        name, most = largest_domain(empty.state.statement, gang, group, replicas, counts)
        if not name or most >= sum(counts):
            continue
        if any(_may_change(empty, each[0].shape) for each in inside):
            continue
        level = group.topology.required_level if group.topology else ""
        yield (
            f"{sum(counts)} pods must share one {level}; with nothing else on it, the largest, "
            f"{name}, holds {most}"
        )


def _with_required_level(tree: Subgroup) -> Iterator[Subgroup]:
    if tree.topology is not None and tree.topology.required_level:
        yield tree
    for child in tree.children:
        yield from _with_required_level(child)
