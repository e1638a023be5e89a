"""Counting capacity: how many pods of a request fit once certain pods are released.

A replica is one more pod of a shape. For each shape of the request the replicas that fit are summed
over the nodes; if the gang must stay within one domain, over the nodes of each domain. Releasing a
pod changes one node. If all pods of the request have one shape, and there are no limits of nodes,
pod rules, subgroups with constraints, or claims other than for whole devices (``whole_devices``),
the count is exact: the request fits if, and only if, a sum reaches the number of its pods.
Otherwise enough replicas are necessary, not sufficient. O(nodes) once, O(resources) per pod
released.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.dra.whole_devices import WholeDevices
from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.placement.attempt import by_shape
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.victims.freed_capacity import FreedCapacity, FreedNodes
from kai_py.plan.victims.shared_domains import shared_domains
from kai_py.policy.fit import requests_where_reported
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.topology import NO_DOMAIN

MANY_NODES = 16
"""From this many nodes on, counting in arrays is faster than one by one."""


class CapacityCount:
    """Counts the capacity for the pods of a request while other pods are released."""

    def __init__(
        self,
        state: CycleState,
        gang: Gang,
        members: Sequence[Member],
        possible_nodes: Mapping[int, Bools],
    ) -> None:
        """Start with no pod released. ``possible_nodes``: by number of a shape, the only nodes."""
        self._positions = state.snapshot.nodes.positions
        self._node_names = state.snapshot.nodes.names
        self._domains = shared_domains(state, gang, members)
        self._nodes = FreedNodes(state)
        self._max_by_shape: dict[int, int] = {}
        self._shapes = [
            ShapeCount(state, group, self._domains, possible_nodes.get(group[0].shape.number))
            for group in by_shape(members)
        ]
        counts = [each.is_enough for each in self._shapes]
        self._domain_is_enough = [all(each) for each in zip(*counts, strict=True)]
        is_simple = self._domains is None and len(self._shapes) == 1
        self._single_shape: ShapeCount | None = None
        """The shape of the request if it is the only one and only resources of nodes decide."""
        if is_simple and self._shapes[0].is_by_resources:
            self._single_shape = self._shapes[0]
        self._enough_domains = sum(self._domain_is_enough)

    @property
    def is_enough(self) -> bool:
        """Whether every shape reaches its number of replicas, in one domain."""
        return self._enough_domains > 0

    def release(self, members: Iterable[Member], sign: float = 1.0) -> None:
        """Count these pods as gone (or, with -1, as back again)."""
        rows = self._nodes.release(members, sign)
        if self._single_shape is None:
            for row in rows:
                self._recount(row)
        elif len(rows) >= MANY_NODES:
            self._recount_together(self._single_shape, rows)
        else:
            for row in rows:
                self._recount_only(self._single_shape, row)

    @property
    def is_by_node(self) -> bool:
        """Whether resources of each node decide how many replicas fit there, and nothing else."""
        return self._single_shape is not None

    @property
    def replicas(self) -> int:
        """The replicas that fit on all nodes together; 0 unless ``is_by_node``."""
        return 0 if self._single_shape is None else self._single_shape.total

    def missing(self, least: int = 0) -> int:
        """How many replicas are missing for the request, and for ``least`` in all.

        0 if ``max_gained`` is not an upper bound here.
        """
        single = self._single_shape
        return 0 if single is None else max(single.missing, least - single.total)

    def max_gained(self, members: Iterable[Member]) -> int:
        """An upper bound of the replicas gained by releasing these pods; 0 if none is known."""
        single = self._single_shape
        if single is None:
            return 0
        gained = 0
        for member in members:
            most = self._max_by_shape.get(member.shape.number)
            if most is None:
                most = single.max_gained(self._nodes.freed_by(member))
                self._max_by_shape[member.shape.number] = most
            gained += most
        return gained

    def must_leave(self, members: Sequence[Member]) -> bool:
        """Whether the request certainly does not fit unless ``members``, released so far, leave.

        That holds whatever other pods stay. Known for single pods only, else False.
        """
        single = self._single_shape
        if single is None or len(members) != 1:
            return False
        member = members[0]
        row = self._positions.get(member.node)
        if row is None:
            return False
        lost = single.on_row(row) - single.replicas(row, self._nodes.without(row, member))
        return lost > -single.missing

    def gaining_nodes(self) -> set[str]:
        """The nodes that fit more replicas than before any pod was released."""
        gaining = np.any([each.gaining for each in self._shapes], axis=0)
        return {self._node_names[row] for row in np.flatnonzero(gaining).tolist()}

    def _recount(self, row: int) -> None:
        domain = 0 if self._domains is None else int(self._domains[row])
        if domain == NO_DOMAIN:
            return
        changed, node = False, self._nodes.of(row)
        for shape in self._shapes:
            changed |= shape.set_replicas(row, domain, shape.replicas(row, node))
        if changed:
            now = all(each.is_enough[domain] for each in self._shapes)
            self._enough_domains += now - self._domain_is_enough[domain]
            self._domain_is_enough[domain] = now

    def _recount_only(self, shape: "ShapeCount", row: int) -> None:
        if shape.set_replicas(row, 0, shape.replicas(row, self._nodes.of(row))):
            self._enough_domains = sum(shape.is_enough)

    def _recount_together(self, shape: "ShapeCount", rows: Sequence[int]) -> None:
        shape.set_replicas_together(rows, self._nodes.free_on(rows))
        self._enough_domains = sum(shape.is_enough)


class ShapeCount:
    """The replicas of one shape that fit by node, and their sums by domain.

    ``group``: the pods of the shape in the request; ``domains``: (nodes,) as of
    ``required_domains``; ``allowed``: (nodes,) the only nodes to count, if given. ``is_enough``: by
    domain, whether the sum reaches the number of pods.
    """

    def __init__(
        self,
        state: CycleState,
        group: Sequence[Member],
        domains: Ints | None = None,
        allowed: Bools | None = None,
    ) -> None:
        statement, nodes, shape = state.statement, state.snapshot.nodes, group[0].shape
        resources = state.snapshot.resources
        self._count = len(group)
        reported = shape.reported_requests
        self._resources_exist = all(name in resources.positions for name in reported)
        self._request = [
            (resources.positions[name], amount, False)
            for name, amount in reported.items()
            if self._resources_exist
        ]
        self._request += [
            (resources.positions[name], amount, True)
            for name, amount in requests_where_reported(shape)
            if name in resources.positions
        ]
        # What is scarcest comes first, as it mostly decides that no replica fits.
        self._request.sort(key=lambda each: state.future_idle_totals[each[0]] / each[1])
        self._one_per_node = shape.one_per_node
        self._share = shape.gpu_share
        self._gpu_row = resources.positions.get(GPU_RESOURCE)
        self._allocatable = nodes.allocatable
        # One device of a shared claim may serve all pods: only trial placements show whether it
        # does.
        counts_devices = shape.needs_devices and not (shape.shares_claims and self._count > 1)
        self._devices = group[0].charged_gpus if counts_devices else 0.0
        self._mask = state.admitting(shape)
        if allowed is not None:
            self._mask = self._mask & allowed
        fitting = state.placer.shapes.fits.future_replicas(statement, shape)
        parts = statement.gpu_share_replicas(shape, Capacity.FUTURE_IDLE, self._count)
        self._gpu_share_replicas: list[int] = [] if parts is None else parts.total.tolist()
        self._idle_gpus: list[float] = []
        if parts is not None:
            fitting = np.minimum(fitting, parts.total)
            if self._gpu_row is not None:
                self._idle_gpus = statement.future_idle[self._gpu_row].tolist()
        self._shares_per_gpu: list[float] = _max_shares_per_gpu(state, shape)
        self._device_replicas: list[int] = []
        self._idle_devices: list[int] = []
        self._whole = whole_devices(state, group)
        if shape.needs_devices:
            found = self._count_device_replicas(state, shape)
            self._device_replicas, fitting = found.tolist(), np.minimum(fitting, found)
        fitting = np.minimum(fitting, self._count)
        if allowed is not None:
            fitting = np.where(allowed, fitting, 0)
        self._initial = fitting
        self._replicas = fitting.copy()
        self._sums = _sums_by_domain(fitting, domains)
        self.is_enough = [replicas >= self._count for replicas in self._sums]

    def _count_device_replicas(self, state: CycleState, shape: Shape) -> Ints:
        """(nodes,) int64: the replicas that fit by devices before any pod is released."""
        count = partial(
            state.statement.devices.replicas, mask=self._mask, capacity=Capacity.FUTURE_IDLE
        )
        if self._whole is None:
            return count(shape, count=self._count)
        use = structs.replace(shape.claims[0], spec=self._whole.for_one, claim=None)
        for_one = replace(shape, claims=(use,))
        idle = count(for_one, count=self._count * self._whole.per_claim)
        self._idle_devices = idle.tolist()
        return idle // self._whole.per_claim

    def initial_replicas(self) -> list[int]:
        """(nodes,) the replicas that fit before any pod is released."""
        found: list[int] = self._initial.tolist()
        return found

    def replicas(self, row: int, node: FreedCapacity) -> int:
        """Replicas that fit on node ``row`` with the capacity of ``node``."""
        if not self._mask[row] or not self._resources_exist:
            return 0
        free, fitting = node.free, float("inf")
        for position, amount, only_if_reported in self._request:
            if not only_if_reported or self._allocatable[position, row] > 0:
                fitting = min(fitting, free[position] / amount)
                if fitting < 1.0:
                    return 0
        if self._share is not None:
            freed_gpus = (
                0.0 if self._gpu_row is None else free[self._gpu_row] - self._idle_gpus[row]
            )
            fitting = min(
                fitting,
                self._gpu_share_replicas[row] + max(freed_gpus, 0.0) * self._shares_per_gpu[row],
            )
        if self._whole is not None:
            released = sum([node.devices.get(kind, 0.0) for kind in self._whole.kinds])
            fitting = min(fitting, (self._idle_devices[row] + released) // self._whole.per_claim)
        elif self._device_replicas:
            released = math.ceil(node.gpus / self._devices) if self._devices else self._count
            fitting = min(fitting, self._device_replicas[row] + released)
        return max(0, int(min(fitting, 1 if self._one_per_node else self._count)))

    @property
    def is_by_resources(self) -> bool:
        """Whether resources alone decide how many replicas fit on a node."""
        return self._share is None and not self._device_replicas

    @property
    def missing(self) -> int:
        """How many replicas are missing on all nodes together; negative if there are more."""
        return self._count - self._sums[0]

    @property
    def total(self) -> int:
        """The replicas that fit on all nodes together."""
        return self._sums[0]

    def on_row(self, row: int) -> int:
        """The replicas that fit on node ``row`` now."""
        return int(self._replicas[row])

    def max_gained(self, freed: Iterable[tuple[int, float]]) -> int:
        """At most how many more replicas fit where ``freed`` (rows, amounts) is released."""
        amounts = dict(freed)
        gained = (math.ceil(amounts.get(at, 0.0) / amount) for at, amount, _ in self._request)
        return max(gained, default=0)

    def set_replicas_together(self, rows: Sequence[int], free: Floats) -> None:
        """Set the replicas that fit on several nodes, where resources alone decide.

        ``free``: (rows, resources). There are no domains.
        """
        fitting = np.full(len(rows), float(1 if self._one_per_node else self._count))
        for position, amount, only_if_reported in self._request:
            there = free[:, position] / amount
            counts = self._allocatable[position, rows] > 0 if only_if_reported else True
            np.minimum(fitting, there, out=fitting, where=counts)
        fitting[~self._mask[rows]] = 0.0
        if not self._resources_exist:
            fitting[:] = 0.0
        replicas = np.maximum(fitting, 0.0).astype(np.int64)
        self._sums[0] += int((replicas - self._replicas[rows]).sum())
        self._replicas[rows] = replicas
        self.is_enough[0] = self._sums[0] >= self._count

    def scarcest_resource(self, row: int, free: Sequence[float]) -> int | None:
        """The row of the resource that limits the replicas; None: devices do, or nothing."""
        if self._device_replicas or self._share is not None:
            return None
        counted = [
            (free[position] / amount, position)
            for position, amount, only_if_reported in self._request
            if not only_if_reported or self._allocatable[position, row] > 0
        ]
        return min(counted, default=(0.0, None))[1]

    @property
    def gaining(self) -> Bools:
        """(nodes,) whether more replicas fit than at first."""
        return self._replicas > self._initial

    def set_replicas(self, row: int, domain: int, replicas: int) -> bool:
        """Set the replicas that fit on a node of ``domain``; whether their number changed."""
        before = int(self._replicas[row])
        if replicas == before:
            return False
        self._sums[domain] += replicas - before
        self._replicas[row] = replicas
        self.is_enough[domain] = self._sums[domain] >= self._count
        return True


def _sums_by_domain(fitting: Ints, domains: Ints | None) -> list[int]:
    """Sums of ``fitting`` (nodes,) by domain; one sum of all nodes where ``domains`` is None."""
    if domains is None:
        return [int(fitting.sum())]
    sums = np.zeros(int(domains.max(initial=0)) + 1, dtype=np.int64)
    inside = domains != NO_DOMAIN
    np.add.at(sums, domains[inside], fitting[inside])
    listed: list[int] = sums.tolist()
    return listed


def _max_shares_per_gpu(state: CycleState, shape: Shape) -> list[float]:
    """By node, the most pods of the shape that can share one whole GPU."""
    if shape.gpu_share is None:
        return []
    need = state.statement.gpu_parts.shared.required_mib(shape.gpu_share)
    per_gpu: list[float] = np.ceil(state.snapshot.gpu_sharing.memory / need).tolist()
    return per_gpu


def whole_devices(state: CycleState, group: Sequence[Member]) -> WholeDevices | None:
    """The devices that each of these pods of one shape needs, if counting is exact, else None."""
    claims, devices = group[0].shape.claims, state.statement.devices
    if len(claims) != 1 or group[0].shape.extended.requests:
        return None
    if claims[0].claim is not None and not (len(group) == 1 and devices.is_unallocated(claims[0])):
        return None  # The first of several pods may get the devices for all.
    return devices.whole_claims.needed(devices.narrowed_spec(claims[0].spec))


def is_exact(state: CycleState, gang: Gang, members: Sequence[Member]) -> bool:
    """Whether ``members`` fit if, and only if, enough replicas are counted."""
    shape = members[0].shape
    return (
        (len(members) == 1 or all(member.shape is shape for member in members))
        and not any(map(has_topology_constraint, gang.tree.children))
        and not state.statement.pod_rules.concern(shape)
        and (not shape.has_claims or whole_devices(state, members) is not None)
        and shape.gpu_share is None
        and not state.snapshot.gpu_sharing.rows.size
        and not state.statement.limits.refusing(shape)
    )
