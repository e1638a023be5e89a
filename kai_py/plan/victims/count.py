"""Counting capacity: how many pods of a request fit once certain pods are released.

For each shape of the request the replicas that fit (``shape_count``) are summed over the nodes; if
the gang must stay within one domain, over the nodes of each domain. Releasing a pod changes one
node. If all pods of the request have one shape, and there are no claims, limits of nodes, pod rules
or subgroups with constraints, the count is exact: the request fits if, and only if, a sum reaches
the number of its pods. Otherwise enough replicas are necessary, not sufficient.
O(nodes) once, O(resources) per pod released.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from kai_py.grouping.gang import has_topology_constraint
from kai_py.plan.placement.shape_groups import by_shape
from kai_py.plan.placement.topology import required_domains
from kai_py.plan.session.cycle_state import CycleState
from kai_py.plan.victims.shape_count import FreedResources, ShapeCount
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.tables.topology import NO_DOMAIN

MANY_NODES = 16
"""From this many nodes on, counting in arrays is faster than one by one."""


class CapacityCount:
    """Counts the capacity for the pods of a request while other pods are released."""

    def __init__(self, state: CycleState, gang: Gang, members: Sequence[Member]) -> None:
        """Start with no pod released."""
        self._state, self._positions = state, state.snapshot.nodes.positions
        self._domains = required_domains(state.statement, gang, gang.tree)
        if self._domains is None and state.placer.compute_domains is not None:
            cliques = state.placer.compute_domains
            self._domains = cliques.required_cliques(state.statement, gang, members)
        self._free = dict[int, list[float]]()
        self._freed_devices: dict[int, float] = {}
        self._freed = FreedResources(state)
        self._max_by_shape: dict[int, int] = {}
        self._shapes = [ShapeCount(state, group, self._domains) for group in by_shape(members)]
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
        touched: dict[int, None] = {}
        for member in members:
            row = self._positions.get(member.node)
            if row is None:
                continue
            free = self._free.get(row)
            if free is None:
                free = self._free[row] = self._state.statement.future_idle[:, row].tolist()
            for position, amount in self._freed.of(member):
                free[position] += sign * amount
            if member.claims:
                devices = self._freed_devices.get(row, 0.0) + sign * member.charged_gpus
                self._freed_devices[row] = devices
            touched[row] = None
        if self._single_shape is None:
            for row in touched:
                self._recount(row)
        elif len(touched) >= MANY_NODES:
            self._recount_together(self._single_shape, list(touched))
        else:
            for row in touched:
                self._recount_only(self._single_shape, row)

    @property
    def missing(self) -> int:
        """How many replicas are missing; 0 if ``max_gained`` is not an upper bound here."""
        return 0 if self._single_shape is None else self._single_shape.missing

    def max_gained(self, members: Iterable[Member]) -> int:
        """An upper bound of the replicas gained by releasing these pods; 0 if none is known."""
        single = self._single_shape
        if single is None:
            return 0
        gained = 0
        for member in members:
            most = self._max_by_shape.get(member.shape.number)
            if most is None:
                most = single.max_gained(self._freed.of(member))
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
        row = self._state.snapshot.nodes.positions.get(member.node)
        if row is None:
            return False
        free = self._free[row].copy()
        for position, amount in self._freed.of(member):
            free[position] -= amount
        lost = single.on_row(row) - single.replicas(row, free, 0.0)
        return lost > -single.missing

    def has_gained(self, node: str) -> bool:
        """Whether more replicas fit on a node than before any pod was released."""
        row = self._state.snapshot.nodes.positions.get(node)
        if self._single_shape is not None:
            return row is not None and self._single_shape.has_gained(row)
        return row is not None and any(each.has_gained(row) for each in self._shapes)

    def _recount(self, row: int) -> None:
        domain = 0 if self._domains is None else int(self._domains[row])
        if domain == NO_DOMAIN:
            return
        free, devices = self._free[row], self._freed_devices.get(row, 0.0)
        changed = False
        for shape in self._shapes:
            changed |= shape.set_replicas(row, domain, shape.replicas(row, free, devices))
        if changed:
            before, now = (
                self._domain_is_enough[domain],
                all(each.is_enough[domain] for each in self._shapes),
            )
            self._enough_domains += now - before
            self._domain_is_enough[domain] = now

    def _recount_only(self, shape: ShapeCount, row: int) -> None:
        if shape.set_replicas(row, 0, shape.replicas(row, self._free[row], 0.0)):
            self._enough_domains = sum(shape.is_enough)

    def _recount_together(self, shape: ShapeCount, rows: Sequence[int]) -> None:
        free = np.array([self._free[row] for row in rows])
        for row, replicas in zip(rows, shape.replicas_of_rows(rows, free), strict=True):
            shape.set_replicas(row, 0, replicas)
        self._enough_domains = sum(shape.is_enough)


def is_exact(state: CycleState, gang: Gang, members: Sequence[Member]) -> bool:
    """Whether ``members`` fit if, and only if, enough replicas are counted."""
    shape = members[0].shape
    return (
        all(member.shape is shape for member in members)
        and not any(has_topology_constraint(child) for child in gang.tree.children)
        and not state.statement.pod_rules.concern(shape)
        and not shape.has_claims
        and shape.gpu_share is None
        and not state.snapshot.gpu_sharing.rows.size
        and not state.statement.limits.refusing(shape)
    )
