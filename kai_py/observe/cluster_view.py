"""What of a cycle is shown: its snapshot, its plan, and where the GPUs are.

Both are immutable, so a view may be read while the next cycle runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kai_py.observe.natural_order import natural
from kai_py.observe.pending_order import queue_positions
from kai_py.plan.plan import Plan
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot

DEFAULT_LEVELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")
HOST_LEVEL = "kubernetes.io/hostname"
OTHER_SCHEDULERS = ""
"""Stands for the queue of whoever is not scheduled by us."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """GPUs of one node: how many there are, and how many each queue holds."""

    row: int
    name: str
    gpus: float
    by_queue: dict[str, float]
    usable: bool

    @property
    def used(self) -> float:
        """GPUs that somebody holds."""
        return sum(self.by_queue.values())


@dataclass(frozen=True)
class ClusterView:
    """One cycle; ``node_gpus``: (nodes,) float64 GPUs per node. ``number`` counts cycles from 1."""

    number: int
    snapshot: Snapshot
    plan: Plan
    node_gpus: Floats

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Node label keys, coarse to fine, by which the map is drawn: a Topology's, or the usual.

        Where there are several, the first by name counts. Levels that no node has are left out.
        """
        topologies = self.snapshot.topologies
        keys = topologies[min(topologies)] if topologies else DEFAULT_LEVELS
        nodes = self.snapshot.nodes
        return tuple(k for k in keys if k != HOST_LEVEL and len(nodes.label(k).values) > 1)

    @cached_property
    def domains(self) -> dict[str, tuple[NodeUsage, ...]]:
        """Domain of the finest level, values joined by "/", to its nodes; "" without labels."""
        nodes = self.snapshot.nodes
        columns = [nodes.label(key) for key in self.levels]
        found: dict[str, list[NodeUsage]] = {}
        for use in self._node_usages():
            path = (column.values[column.codes[use.row]] for column in columns)
            found.setdefault("/".join(path).rstrip("/"), []).append(use)
        return {
            name: tuple(sorted(found[name], key=lambda use: natural(use.name)))
            for name in sorted(found, key=natural)
        }

    @cached_property
    def members_on(self) -> dict[str, list[tuple[Gang, Member]]]:
        """Node to our pods that hold room on it, by gang and order."""
        found: dict[str, list[tuple[Gang, Member]]] = {}
        for _, gang in sorted(self.snapshot.gangs.items()):
            for member in gang.members:
                if member.node:
                    found.setdefault(member.node, []).append((gang, member))
        return found

    @cached_property
    def queue_positions(self) -> dict[str, tuple[int, int]]:
        """Waiting gang to its place in the line of its queue, from 1, and the line's length."""
        return queue_positions(self.snapshot, self.plan)

    def _node_usages(self) -> Iterator[NodeUsage]:
        nodes = self.snapshot.nodes
        usable = nodes.ready & ~nodes.unschedulable
        taken = self._plugin_gpus_allocated()
        for row, name in enumerate(nodes.names):
            by_queue: dict[str, float] = {}
            foreign = float(taken[row])
            for gang, member in self.members_on.get(name, ()):
                gpus = member.charge.get(GPU, 0.0)
                if gpus:
                    by_queue[gang.queue] = by_queue.get(gang.queue, 0.0) + gpus
                foreign -= gpus if member.shape.gpu_share is None else 0.0
            if foreign > 0:
                by_queue[OTHER_SCHEDULERS] = foreign
            yield NodeUsage(row, name, float(self.node_gpus[row]), by_queue, bool(usable[row]))

    def _plugin_gpus_allocated(self) -> Floats:
        """(nodes,) whole GPUs that pods of any scheduler hold through a device plugin."""
        taken = np.zeros(len(self.snapshot.nodes))
        for name, row in self.snapshot.resources.positions.items():
            if name.endswith("/gpu"):
                offered = self.snapshot.nodes.allocatable[row] > 0
                taken += np.where(offered, self.snapshot.used[row], 0.0)
        shared = self.snapshot.gpu_sharing
        return taken - shared.whole_gpus(releasing=False) if len(shared.memory) else taken
