"""Requests that this cluster can never serve: they do not count as demand in fair shares.

A gang that no set of empty nodes holds would raise the fair share of its queue for capacity that it
cannot use, at the cost of others. Left out are pods that no node can ever hold, and all pending
pods of a gang that cannot reach minMember without them, or whose minMember is more than all nodes,
or one domain of its required level, hold. Every bound is an upper one: what could run counts.
KAI-Scheduler counts them (``CountedDemand.ALL``).

The answer depends on nodes, slices and the gang alone, not on what runs, so it does not change with
the allocation. O(pending gangs) look-ups per cycle; O(nodes) per shape once these change.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_py.api.records.resource import ExactDeviceRequest
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import is_satisfied
from kai_py.plan.placement.topology import level_of, resolved_constraint
from kai_py.plan.state.empty_nodes import MOST_PODS, admitted_in_time, replicas_on_empty
from kai_py.snapshot.accounting import DeviceRequestSpec, total
from kai_py.snapshot.gangs import Charge, Gang, Member, PodState
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot

EXACT_COUNT = "ExactCount"


@dataclass
class InfeasibleDemand:
    """Pending requests that can never run, by queue; kept while nodes and slices are the same."""

    _inputs: tuple[object, ...] = ()
    _totals: dict[int, int] = field(default_factory=dict)
    _by_gang: dict[str, tuple[Gang, Charge]] = field(default_factory=dict)

    def of(self, snapshot: Snapshot, devices: ClusterDevices) -> Mapping[str, Charge]:
        """The part of what pods request that can never be served, by queue."""
        if not len(snapshot.nodes):
            return {}
        inputs = snapshot.nodes.generation, snapshot.devices.generation, snapshot.topologies
        if inputs != self._inputs:
            self._inputs, self._totals, self._by_gang = inputs, {}, {}
        before, self._by_gang = self._by_gang, {}
        nodes = _EmptyNodes(snapshot, devices, self._totals)
        found: dict[str, list[Charge]] = {}
        for key in snapshot.pending:
            gang = snapshot.gangs[key]
            known = before.get(key)
            charge = known[1] if known and known[0] is gang else _infeasible_charge(gang, nodes)
            self._by_gang[key] = gang, charge
            if charge:
                found.setdefault(gang.queue, []).append(charge)
        return {queue: total(charges) for queue, charges in found.items()}


@dataclass(frozen=True)
class _EmptyNodes:
    """Upper bounds of what nodes hold, by shape."""

    snapshot: Snapshot
    devices: ClusterDevices
    totals: dict[int, int]

    def total(self, shape: Shape) -> int:
        """How many pods of ``shape`` all nodes together hold at most."""
        known = self.totals.get(shape.number)
        if known is None:
            known = self.totals[shape.number] = int(self.replicas(shape).sum())
        return known

    def replicas(self, shape: Shape) -> Ints:
        """(nodes,) int64: how many pods of ``shape`` each node holds at most."""
        fit = replicas_on_empty(shape, self.snapshot, admitted_in_time(shape, self.snapshot.nodes))
        for use in shape.claims:
            for request in () if use.is_allocated else use.spec.devices.requests:
                exactly = request.exactly
                if exactly is not None and exactly.allocation_mode == EXACT_COUNT:
                    # A claim that exists is there once, however many pods share it.
                    shared = use.claim is not None or exactly.admin_access
                    fit = np.minimum(fit, self._by_devices(exactly, exactly.count, shared=shared))
        return self._by_extended_resources(shape, fit)

    def _by_extended_resources(self, shape: Shape, fit: Ints) -> Ints:
        """``fit``, bounded where a class serves a resource that the node does not report."""
        counts = Counter[tuple[str, str]]()
        for each in shape.extended.requests:
            if each.part is None:
                counts[each.resource, each.device_class] += each.count
        for (resource, device_class), count in counts.items():
            request = ExactDeviceRequest(device_class_name=device_class, count=count)
            bounded = np.minimum(fit, self._by_devices(request, count, shared=False))
            row = self.snapshot.resources.positions.get(resource)
            is_reported = row is not None and self.snapshot.nodes.allocatable[row] > 0
            fit = np.where(is_reported, fit, bounded)
        return fit

    def _by_devices(self, request: DeviceRequestSpec, count: int, *, shared: bool) -> Ints:
        found = self.devices.possible_devices(request)
        nodes = self.snapshot.nodes
        limit = np.full(len(nodes), MOST_PODS, dtype=np.int64)
        if found is None or count < 1:
            return limit
        free = np.full(len(nodes), found.anywhere, dtype=np.int64)
        for name, number in found.by_node.items():
            row = nodes.positions.get(name)
            if row is not None:
                free[row] += number
        if shared or found.anywhere or found.are_shared:
            limit[free < count] = 0
            return limit
        return free // count


def _infeasible_charge(gang: Gang, nodes: _EmptyNodes) -> Charge:
    """What the queue is charged with for pending pods that can never run; {} for most gangs."""
    if not gang.charged or _is_plainly_feasible(gang, nodes):
        return {}
    able = list(_able(gang, nodes))
    never = [m for m in gang.pending if not nodes.total(m.shape)]
    present = gang.counts(PodState.BOUND, PodState.PENDING)
    reached = _counts((*gang.bound, *able))
    never_starts = is_satisfied(gang.tree, present) and not is_satisfied(gang.tree, reached)
    if never_starts or _is_larger_than_domain(gang, nodes):
        never = list(gang.pending)
    return total(member.charge for member in never)


def _is_plainly_feasible(gang: Gang, nodes: _EmptyNodes) -> bool:
    """Whether all its pods together fit into the nodes, whatever they are for."""
    shapes = gang.pending_shapes
    if gang.tree.topology is not None and gang.tree.topology.required_level:
        return False
    return len(shapes) == 1 and nodes.total(gang.pending[0].shape) >= len(gang.members)


def _able(gang: Gang, nodes: _EmptyNodes) -> Iterator[Member]:
    """The first pending pods of each shape that all nodes hold beside its bound pods."""
    left: dict[int, int] = {}
    for member in gang.bound:
        left[member.shape.number] = left.get(member.shape.number, 0) - 1
    counted: set[int] = set()
    for member in gang.pending:
        number = member.shape.number
        if number not in counted:
            counted.add(number)
            left[number] = left.get(number, 0) + nodes.total(member.shape)
        if left[number] > 0:
            left[number] -= 1
            yield member


def _counts(members: tuple[Member, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in members:
        counts[member.subgroup] = counts.get(member.subgroup, 0) + 1
    return counts


def _is_larger_than_domain(gang: Gang, nodes: _EmptyNodes) -> bool:
    """Whether no domain of the gang's required level holds minMember; for pods of one shape."""
    constraint = resolved_constraint(nodes.snapshot, gang, gang.tree)
    if constraint is None or not constraint.required_level or len(gang.pending_shapes) != 1:
        return False
    level = level_of(nodes.snapshot, constraint, constraint.required_level)
    if level is None or not len(level.names) or gang.bound:
        return False
    return int(level.sums(nodes.replicas(gang.pending[0].shape)).max()) < gang.tree.min_pods()
