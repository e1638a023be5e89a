"""Totals of the resources that queues count, over the ready nodes of the cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU, Accounting
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.gpu_nodes import REPLICA_RESOURCE, gpu_replicas
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, DEVICE_SELECTOR


@dataclass(slots=True)
class ClusterTotals:
    """The last totals of nodes, kept as long as these are the same."""

    _inputs: tuple[object, ...] = ()
    _resources: tuple[str, ...] = ()
    _of_nodes: Floats | None = None

    def of(
        self,
        snapshot: Snapshot,
        resources: tuple[str, ...],
        accounting: Accounting,
        device_gpus: Floats,
    ) -> Floats:
        """(resources,) what all ready nodes have, or their devices; arguments as of ``quota_of``.

        O(resources) as long as no node changes.
        """
        inputs = snapshot.nodes, snapshot.resources, accounting, device_gpus
        is_known = self._inputs and all(map(is_, inputs, self._inputs))
        if self._of_nodes is None or not is_known or resources != self._resources:
            self._inputs, self._resources = inputs, resources
            self._of_nodes = _totals_of_nodes(snapshot, resources, accounting, device_gpus)
        totals = self._of_nodes.copy()
        for row, name in enumerate(resources):
            if name.startswith((DEVICE_CLASS, DEVICE_ATTRIBUTE, DEVICE_SELECTOR)):
                totals[row] = accounting.device_count(name)
        return totals


def _totals_of_nodes(
    snapshot: Snapshot, resources: Sequence[str], accounting: Accounting, device_gpus: Floats
) -> Floats:
    nodes = snapshot.nodes
    usable = slice(None) if nodes.ready.all() else nodes.ready
    totals = np.zeros(len(resources))
    for name, row in snapshot.resources.positions.items():
        if name in resources:
            totals[resources.index(name)] = nodes.allocatable[row, usable].sum()
    gpus = gpus_of_nodes(snapshot, accounting, device_gpus)
    totals[resources.index(GPU)] = gpus[usable].sum()
    return totals


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
