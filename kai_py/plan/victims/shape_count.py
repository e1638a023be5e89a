"""How many replicas of one shape fit on each node while pods there are released.

A replica is one more pod of the shape. Where GPUs are shared or claims are used the count is an
upper bound, as only a placement shows what fits. O(nodes) once, O(resources) per count of a node.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.state.capacity import Capacity
from kai_py.policy.fit import requests_where_reported
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import Floats, Ints
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.tables.topology import NO_DOMAIN


class FreedResources:
    """Upper bounds of what evicting a pod releases on its node; computed once per shape."""

    def __init__(self, state: CycleState) -> None:
        """Start with no shape computed."""
        self._state = state
        self._known: dict[int, list[tuple[int, float]]] = {}

    def amount(self, member: Member, resource: int) -> float:
        """The amount released of one resource, given by its row."""
        for row, amount in self.of(member):
            if row == resource:
                return amount
        return 0.0

    def of(self, member: Member) -> list[tuple[int, float]]:
        """The rows and amounts of all resources that are released; amounts are not 0."""
        known = self._known.get(member.shape.number)
        if known is None:
            amounts = _max_freed(self._state, member).tolist()
            known = [(position, amount) for position, amount in enumerate(amounts) if amount]
            self._known[member.shape.number] = known
        return known


class ShapeCount:
    """The replicas of one shape that fit by node, and their sums by domain.

    ``group``: the pods of the shape in the request; ``domains``: (nodes,) as of
    ``required_domains``. ``is_enough``: by domain, whether the sum reaches the number of pods.
    """

    def __init__(
        self, state: CycleState, group: Sequence[Member], domains: Ints | None = None
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
        self._one_per_node = bool(shape.host_ports)
        self._share = shape.gpu_share
        self._gpu_row = resources.positions.get(GPU_RESOURCE)
        self._allocatable = nodes.allocatable
        self._devices = group[0].charged_gpus if shape.needs_devices else 0.0
        self._mask = state.placer.shapes.fits.static_fits.of(shape, nodes).mask
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
        if shape.needs_devices:
            found = statement.devices.replicas(shape, self._mask, self._count, Capacity.FUTURE_IDLE)
            self._device_replicas, fitting = found.tolist(), np.minimum(fitting, found)
        fitting = np.minimum(fitting, self._count)
        self._initial = fitting
        self._by_row: dict[int, int] = {}
        self._sums = _sums_by_domain(fitting, domains)
        self.is_enough = [replicas >= self._count for replicas in self._sums]

    def initial_replicas(self) -> list[int]:
        """(nodes,) the replicas that fit before any pod is released."""
        found: list[int] = self._initial.tolist()
        return found

    def replicas(self, row: int, free: Sequence[float], devices: float) -> int:
        """Replicas that fit on node ``row``.

        ``free``: (resources,) of the node; ``devices``: how many devices of claims were released.
        """
        if not self._mask[row] or not self._resources_exist:
            return 0
        fitting = float("inf")
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
        if self._device_replicas:
            released = np.ceil(devices / self._devices) if self._devices else self._count
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

    def on_row(self, row: int) -> int:
        """The replicas that fit on node ``row`` now."""
        replicas = self._by_row.get(row)
        return int(self._initial[row]) if replicas is None else replicas

    def max_gained(self, freed: Iterable[tuple[int, float]]) -> int:
        """At most how many more replicas fit where ``freed`` (rows, amounts) is released."""
        amounts = dict(freed)
        gained = (math.ceil(amounts.get(at, 0.0) / amount) for at, amount, _ in self._request)
        return max(gained, default=0)

    def replicas_of_rows(self, rows: Sequence[int], free: Floats) -> list[int]:
        """``replicas`` of the nodes ``rows``, by resources alone; ``free``: (rows, resources)."""
        fitting = np.full(len(rows), float(1 if self._one_per_node else self._count))
        for position, amount, only_if_reported in self._request:
            there = free[:, position] / amount
            counts = self._allocatable[position, rows] > 0 if only_if_reported else True
            np.minimum(fitting, there, out=fitting, where=counts)
        fitting[~self._mask[rows]] = 0.0
        replicas: list[int] = np.maximum(fitting, 0.0).astype(np.int64).tolist()
        return replicas if self._resources_exist else [0] * len(rows)

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

    def has_gained(self, row: int) -> bool:
        """Whether more replicas fit on the node than at first."""
        replicas = self._by_row.get(row)
        return replicas is not None and replicas > int(self._initial[row])

    def set_replicas(self, row: int, domain: int, replicas: int) -> bool:
        """Set the replicas that fit on a node of ``domain``; whether their number changed."""
        before = self._by_row.get(row)
        if before is None:
            before = int(self._initial[row])
        if replicas == before:
            return False
        self._sums[domain] += replicas - before
        self._by_row[row] = replicas
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


def _max_freed(state: CycleState, member: Member) -> Floats:
    """(resources,) the most that evicting the pod releases; part of a GPU counts as the GPU."""
    freed, share = state.statement.occupied(member), member.shape.gpu_share
    gpu = state.snapshot.resources.positions.get(GPU_RESOURCE)
    if share is None or gpu is None:
        return freed
    whole = freed.copy()
    whole[gpu] += share.devices
    return whole
