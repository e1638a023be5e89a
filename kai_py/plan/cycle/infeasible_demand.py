"""Requests that cannot be served, now or ever: they do not count as demand in fair shares.

Never: a gang that does not fit even on empty nodes would raise the fair share of its queue, at the
cost of other queues, for capacity that it cannot use. So these do not count: pods that no node can
ever hold; all pending pods of a gang that cannot reach minMember without such pods; and all pending
pods of a gang whose minMember exceeds what all nodes, or one domain of its required level, can
hold. The bounds err on the side of counting. KAI-Scheduler counts all requests
(``CountedDemand.ALL``). This depends on nodes, slices and the gang alone, not on what runs.
O(pending gangs) look-ups per cycle, and O(nodes) per shape whenever nodes or slices change.

Not yet:

- A gang without enough pods for its minMember, or whose pods name claims, volumes or subgroups that
  do not exist, cannot start, whatever is idle.
- Non-preemptible pods of a queue never exceed what it deserves.

If these counted, the shares of other queues would shrink for capacity that this queue cannot use,
and that would stay with the queues that have it now. They count as soon as they can be served. A
gang that lost pods to an eviction within ``RECREATION_SECONDS`` counts all the same: its pods are
being created again, and shares must not change to and fro meanwhile. O(pending gangs) when gangs
change.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.records.resource import ExactDeviceRequest
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import is_satisfied
from kai_py.plan.placement.topology import level_of, resolved_constraint
from kai_py.plan.state.empty_nodes import (
    MOST_PODS,
    EmptyNodes,
    eventually_admitted,
    replicas_on_empty,
)
from kai_py.plan.state.eviction_history import EvictionHistory
from kai_py.snapshot.accounting import DeviceRequestSpec, total
from kai_py.snapshot.gangs import Charge, Gang, Member, PodState, counts_by_leaf
from kai_py.snapshot.nodes import NodeColumns
from kai_py.snapshot.resources import Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.topology import TopologyLevel

EXACT_COUNT = "ExactCount"
TOLERANCE = 1e-6


@dataclass
class InfeasibleDemand:
    """Pending requests that can never be served; cached while nodes and slices are the same."""

    _inputs: tuple[object, ...] = ()
    _totals: dict[int, int] = field(default_factory=dict)
    _by_gang: dict[str, tuple[Gang, Charge]] = field(default_factory=dict)
    _gangs: Mapping[str, Gang] | None = None
    _pending: tuple[str, ...] = ()
    charges: Mapping[str, Charge] = field(default_factory=dict)
    """What ``of`` returned last: the same object while its inputs are."""
    gangs: frozenset[str] = frozenset()
    """Keys of the gangs none of whose pending pods can ever run."""

    def concerns(self, key: str) -> bool:
        """Whether any pending pod of the gang can never run."""
        known = self._by_gang.get(key)
        return known is not None and bool(known[1])

    def of(
        self, snapshot: Snapshot, devices: ClusterDevices, empty_nodes: EmptyNodes
    ) -> Mapping[str, Charge]:
        """By queue, the charge of the pending pods that can never run."""
        if not len(snapshot.nodes):
            self.gangs, self._gangs, self.charges = frozenset(), None, {}
            return self.charges
        inputs = snapshot.nodes.generation, snapshot.devices.generation, snapshot.topologies
        if inputs != self._inputs:
            self._inputs, self._totals, self._by_gang, self._gangs = inputs, {}, {}, None
        if snapshot.gangs is self._gangs and snapshot.pending == self._pending:
            return self.charges
        nodes = _DeviceNodes(snapshot, devices, self._totals, empty_nodes)
        gangs = snapshot.gangs
        found: list[tuple[str, Charge]] = []
        for key in snapshot.pending:
            gang, known = gangs[key], self._by_gang.get(key)
            if known is None or known[0] is not gang:
                known = self._by_gang[key] = gang, _charge(gang, nodes)
            if known[1]:
                found.append((gang.queue, known[1]))
        if len(self._by_gang) > 2 * len(snapshot.pending):
            self._by_gang = {key: self._by_gang[key] for key in snapshot.pending}
        self._gangs, self._pending = snapshot.gangs, snapshot.pending
        self.charges = total_by_queue(found)
        self.gangs = frozenset(
            key
            for key in (snapshot.pending if found else ())
            if (charge := self._by_gang[key][1])
            and charge == total(member.charge for member in gangs[key].pending)
        )
        return self.charges


def total_by_queue(charges: Iterable[tuple[str, Charge]]) -> dict[str, Charge]:
    """The total of the charges of each queue."""
    by_queue: dict[str, list[Charge]] = {}
    for queue, charge in charges:
        by_queue.setdefault(queue, []).append(charge)
    return {queue: total(each) for queue, each in by_queue.items()}


@dataclass(frozen=True)
class _DeviceNodes:
    """Upper bounds of the pods of a shape that the nodes can hold; ``totals``: with devices."""

    snapshot: Snapshot
    devices: ClusterDevices
    totals: dict[int, int]
    empty_nodes: EmptyNodes
    _held: dict[tuple[int, int], bool] = field(default_factory=dict)

    def total(self, shape: Shape) -> int:
        """How many pods of ``shape`` all nodes together hold at most."""
        if _is_by_resources(shape):
            return self.empty_nodes.total(self.snapshot, shape)
        known = self.totals.get(shape.number)
        if known is None:
            known = self.totals[shape.number] = int(self.replicas(shape).sum())
        return known

    def hold(self, shape: Shape, count: int) -> bool:
        """Whether all nodes together hold ``count`` pods of ``shape``."""
        known = self._held.get((shape.number, count))
        if known is None:
            if _is_by_resources(shape):
                known = self.empty_nodes.hold(self.snapshot, shape, count)
            else:
                known = self.total(shape) >= count
            self._held[shape.number, count] = known
        return known

    def hold_in_domain(self, shape: Shape, count: int, level: TopologyLevel) -> bool:
        """Whether any domain of ``level`` holds ``count`` pods of ``shape``."""
        first = self.empty_nodes.first(self.snapshot)
        if first is not None and not shape.has_claims:
            # Mostly one of the domains of the first nodes does, as in ``EmptyNodes``.
            found = self._by_resources(shape, first)
            if int(level.sums(found).max()) >= count:
                return True
        return int(level.sums(self.replicas(shape)).max()) >= count

    def _by_resources(self, shape: Shape, nodes: NodeColumns) -> Ints:
        admitted = eventually_admitted(shape, nodes)
        fit = replicas_on_empty(shape, nodes, self.snapshot.resources, admitted)
        return fit if shape.gpu_share is None else np.minimum(fit, self._by_share(shape, nodes))

    def _by_share(self, shape: Shape, nodes: NodeColumns) -> Ints:
        """(nodes,) int64: pods whose parts of GPUs a node holds, by its device plugin's GPUs.

        Nodes without a device plugin hold any number where a claim may get the parts.
        """
        share, row = shape.gpu_share, self.snapshot.resources.positions.get(GPU_RESOURCE)
        gpus = np.zeros(len(nodes)) if row is None else nodes.allocatable[row]
        if share is None:
            return np.full(len(nodes), MOST_PODS, dtype=np.int64)
        sharing = self.snapshot.gpu_sharing
        known, memory = sharing.memory_known[: len(nodes)], sharing.memory[: len(nodes)]
        part = np.where(known, share.memory / np.maximum(memory, 1.0), np.inf)
        if share.fraction:
            part = np.full(len(nodes), share.fraction)
        per_gpu = np.floor(1.0 / part + TOLERANCE)
        held = np.where(gpus >= share.devices, gpus * per_gpu // share.devices, 0.0)
        claimable = MOST_PODS if shape.extended.share is not None else 0
        return np.minimum(np.where(gpus > 0, held, claimable), MOST_PODS).astype(np.int64)

    def replicas(self, shape: Shape) -> Ints:
        """(nodes,) int64: how many pods of ``shape`` each node holds at most."""
        fit = self._by_resources(shape, self.snapshot.nodes)
        for use in shape.claims:
            for request in () if use.is_allocated else use.spec.devices.requests:
                exactly = request.exactly
                if exactly is not None and exactly.allocation_mode == EXACT_COUNT:
                    # A claim that exists is allocated once, however many pods share it.
                    shared = use.claim is not None or exactly.admin_access
                    fit = np.minimum(fit, self._by_devices(exactly, exactly.count, shared=shared))
        return self._by_extended_resources(shape, fit)

    def _by_extended_resources(self, shape: Shape, fit: Ints) -> Ints:
        """``fit``, bounded on nodes where a DeviceClass must serve an extended resource."""
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


def _is_by_resources(shape: Shape) -> bool:
    """Whether resources alone decide how many pods of the shape an empty node holds."""
    return not shape.has_claims and shape.gpu_share is None


def _charge(gang: Gang, nodes: _DeviceNodes) -> Charge:
    """``_infeasible_charge``; {} where it fails, so that all requests of this gang count."""
    try:
        return _infeasible_charge(gang, nodes)
    except Exception:
        # It will fail again in the turn of the gang, where it is reported and sets the gang aside.
        return {}


def _infeasible_charge(gang: Gang, nodes: _DeviceNodes) -> Charge:
    """The charge of the gang's pending pods that can never run; {} for most gangs."""
    if not gang.charged:
        return {}
    if len(gang.pending_shapes) == 1 and nodes.hold(gang.pending[0].shape, len(gang.members)):
        # The cheap case, which is that of most gangs: empty nodes hold all pods.
        if gang.tree.topology is None or not _is_larger_than_domain(gang, nodes):
            return {}
        return total(member.charge for member in gang.pending)
    able = list(_feasible_pods(gang, nodes))
    never = [m for m in gang.pending if not nodes.total(m.shape)]
    present = gang.counts(PodState.BOUND, PodState.PENDING)
    reached = counts_by_leaf((*gang.bound, *able))
    never_starts = is_satisfied(gang.tree, present) and not is_satisfied(gang.tree, reached)
    if never_starts or _is_larger_than_domain(gang, nodes):
        never = list(gang.pending)
    return total(member.charge for member in never)


def _feasible_pods(gang: Gang, nodes: _DeviceNodes) -> Iterator[Member]:
    """The pending pods of each shape, as many as all nodes hold beside the bound ones."""
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


def _is_larger_than_domain(gang: Gang, nodes: _DeviceNodes) -> bool:
    """Whether no domain of the required level holds minMember; known only for one shape."""
    constraint = resolved_constraint(nodes.snapshot, gang, gang.tree)
    if constraint is None or not constraint.required_level or len(gang.pending_shapes) != 1:
        return False
    level = level_of(nodes.snapshot, constraint, constraint.required_level)
    if level is None or not len(level.names) or gang.bound:
        return False
    return not nodes.hold_in_domain(gang.pending[0].shape, gang.tree.min_pods(), level)


RECREATION_SECONDS = 60.0
"""How long controllers may take to create evicted pods again."""


@dataclass
class IncompleteDemand:
    """Pending requests that cannot be served yet; cached while gangs and nodes are the same."""

    non_preemptible: Mapping[str, Charge] = field(default_factory=dict)
    """By queue, the charge of those pending non-preemptible gangs that lack nothing."""
    counts_until: float = math.inf
    """When the first gang that counts for ``RECREATION_SECONDS`` no longer does."""
    _gangs: Mapping[str, Gang] | None = None
    _pending: tuple[str, ...] = ()
    _infeasible: Mapping[str, Charge] | None = None
    _charges: dict[str, Charge] = field(default_factory=dict)

    def of(
        self, snapshot: Snapshot, evictions: EvictionHistory, infeasible: InfeasibleDemand
    ) -> Mapping[str, Charge]:
        """By queue, the charge of the pending pods that lack something.

        Without gangs of which a part is ``infeasible``: that does not count already.
        """
        gangs, now = snapshot.gangs, snapshot.now
        if (
            gangs is not self._gangs
            or snapshot.pending != self._pending
            or infeasible.charges is not self._infeasible
        ):
            counted = [gangs[key] for key in snapshot.pending if gangs[key].charged]
            self._charges = {g.key: _charge_of_unable(g) for g in counted if not g.is_complete}
            self.non_preemptible = total_by_queue(
                (gang.queue, _pending_charge(gang))
                for gang in counted
                if gang.is_complete and not (gang.preemptible or infeasible.concerns(gang.key))
            )
            self._gangs, self._pending = gangs, snapshot.pending
            self._infeasible = infeasible.charges
        self.counts_until = math.inf
        found: list[tuple[str, Charge]] = []
        for key, charge in self._charges.items():
            times = evictions.times_of(key, now)
            until = times[-1] + RECREATION_SECONDS if times else now
            if until > now:
                self.counts_until = min(self.counts_until, until)
            elif not infeasible.concerns(key):
                found.append((gangs[key].queue, charge))
        return total_by_queue(found)


def _charge_of_unable(gang: Gang) -> Charge:
    """The charge of the pending pods that cannot start yet."""
    able = [m for m in gang.pending if not (m.waiting_for or m.problem)]
    if gang.problem or not is_satisfied(gang.tree, counts_by_leaf((*gang.bound, *able))):
        return _pending_charge(gang)
    return total([m.charge for m in gang.pending if m.waiting_for or m.problem])


def _pending_charge(gang: Gang) -> Charge:
    return total([member.charge for member in gang.pending])
