"""Totals of the resources that queues count: what is shared among them.

A ready node counts in full; if it is cordoned as well, only what pods of queues have there counts.
The rest of it can be given to no queue, and sharing it would let queues keep what they have beyond
their share of the other nodes.
"""

from collections.abc import Mapping, Sequence
from operator import is_

import numpy as np
from msgspec import Struct, field

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU, Accounting, total
from kai_py.snapshot.gangs import Charge, Gang
from kai_py.snapshot.resources import Bools, Floats
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.gpu_nodes import REPLICA_RESOURCE, gpu_replicas
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, DEVICE_SELECTOR


class CordonedAmounts(Struct):
    """What pods have of the nodes that are ready and cordoned, by gang."""

    _nodes: frozenset[str] = frozenset()
    _gangs: Mapping[str, Gang] = field(default_factory=dict)
    _charges: dict[str, list[Charge]] = field(default_factory=dict)

    def total(self, snapshot: Snapshot) -> Mapping[str, float]:
        """What all of them have; O(gangs that changed) as long as the same nodes are cordoned."""
        nodes = snapshot.nodes
        cordoned = _named(snapshot, nodes.ready & nodes.unschedulable)
        if cordoned != self._nodes:
            self._nodes, self._gangs, self._charges = cordoned, {}, {}
        if not cordoned:
            return {}
        for key in snapshot.gang_changes.between(self._gangs, snapshot.gangs):
            gang = snapshot.gangs.get(key)
            pods = () if gang is None else (*gang.bound, *gang.lingering)
            self._charges[key] = [each.charge for each in pods if each.node in cordoned]
            if not self._charges[key]:
                del self._charges[key]
        self._gangs = snapshot.gangs
        # In their order, as sums of fractions depend on it.
        return total(charge for key in sorted(self._charges) for charge in self._charges[key])


class ClusterTotals(Struct):
    """The last totals of nodes, kept as long as these are the same."""

    _inputs: tuple[object, ...] = ()
    _resources: tuple[str, ...] = ()
    _of_nodes: Floats | None = None
    _of_cordoned: CordonedAmounts = field(default_factory=CordonedAmounts)

    def of(
        self,
        snapshot: Snapshot,
        resources: tuple[str, ...],
        accounting: Accounting,
        device_gpus: Floats,
    ) -> Floats:
        """(resources,) what nodes have, or their devices; arguments as of ``quota_of``.

        O(resources) as long as no node changes, if none is cordoned.
        """
        inputs = snapshot.nodes, snapshot.resources, accounting, device_gpus
        is_known = self._inputs and all(map(is_, inputs, self._inputs))
        if self._of_nodes is None or not is_known or resources != self._resources:
            self._inputs, self._resources = inputs, resources
            self._of_nodes = _totals_of_nodes(snapshot, resources, accounting, device_gpus)
        allocated = self._of_cordoned.total(snapshot)
        totals: Floats = self._of_nodes + np.array([allocated.get(name, 0.0) for name in resources])
        of_devices = (DEVICE_CLASS, DEVICE_ATTRIBUTE, DEVICE_SELECTOR)
        rows = [row for row, name in enumerate(resources) if name.startswith(of_devices)]
        unusable = _named(snapshot, ~_usable(snapshot)) if rows else frozenset()
        for row in rows:
            totals[row] += accounting.device_count(resources[row], unusable)
        return totals


def _totals_of_nodes(
    snapshot: Snapshot, resources: Sequence[str], accounting: Accounting, device_gpus: Floats
) -> Floats:
    nodes = snapshot.nodes
    usable = _usable(snapshot)
    totals = np.zeros(len(resources))
    for name, row in snapshot.resources.positions.items():
        if name in resources:
            totals[resources.index(name)] = nodes.allocatable[row, usable].sum()
    gpus = gpus_of_nodes(snapshot, accounting, device_gpus)
    totals[resources.index(GPU)] = gpus[usable].sum()
    return totals


def _usable(snapshot: Snapshot) -> Bools:
    """(nodes,) those that may get pods."""
    return snapshot.nodes.ready & ~snapshot.nodes.unschedulable


def _named(snapshot: Snapshot, nodes: Bools) -> frozenset[str]:
    return frozenset(snapshot.nodes.names[row] for row in np.flatnonzero(nodes))


def gpus_of_nodes(snapshot: Snapshot, accounting: Accounting, device_gpus: Floats) -> Floats:
    """(nodes,) GPUs of each node, ready or not; arguments as of ``quota_of``."""
    plugin_gpus = np.zeros(len(snapshot.nodes))
    replicas = gpu_replicas(snapshot.nodes)
    for name, row in snapshot.resources.positions.items():
        counted = GPU_RESOURCE if name == REPLICA_RESOURCE else name
        per_unit = accounting.gpus_per_unit(counted)
        if per_unit:
            each = 1.0 / replicas if counted == GPU_RESOURCE else 1.0
            plugin_gpus += per_unit * each * snapshot.nodes.allocatable[row]
    return np.maximum(plugin_gpus, device_gpus)
