"""View of a cycle: its snapshot, its plan, and the allocation of GPUs to nodes, ordered for people.

Snapshot and plan are immutable, so a view may be read while the next cycle runs. Pending gangs are
in the order of their queues; names are ordered by the numbers in them (``gpu-2`` before
``gpu-10``).

Complexity: O(g log g) for g pending gangs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from kai_py.api.records.node import HOSTNAME_LABEL
from kai_py.plan.plan import Plan
from kai_py.policy.runtime_history import ExpectedEnds
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot

DEFAULT_LEVELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")
OTHER_SCHEDULERS = ""
"""The queue of pods of other schedulers."""


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key that compares runs of digits as numbers, however long."""
    parts = re.split(r"([0-9]+)", name)
    digits = [part.lstrip("0") for part in parts[1::2]]
    parts[1::2] = digits
    return tuple((len(part), part) if at % 2 else (-1, part) for at, part in enumerate(parts))


def pending_by_queue(snapshot: Snapshot, plan: Plan) -> Mapping[str, Sequence[str]]:
    """Keys of the pending gangs by queue: higher priority first, with ageing, then older."""
    ranks: dict[str, list[tuple[int, float, str]]] = {}
    for unplaced in plan.unplaced:
        gang = snapshot.gangs.get(unplaced.gang)
        if gang is not None:
            rank = (-gang.priority - unplaced.ageing_points, gang.created, gang.key)
            ranks.setdefault(unplaced.queue, []).append(rank)
    return {queue: [key for *_, key in sorted(queue_ranks)] for queue, queue_ranks in ranks.items()}


def queue_positions(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[int, int]]:
    """Position in its queue, from 1, and number of pending gangs there, by pending gang."""
    return {
        key: (position, len(keys))
        for keys in pending_by_queue(snapshot, plan).values()
        for position, key in enumerate(keys, start=1)
    }


class NodeUsage(Struct, frozen=True):
    """GPUs of one node, and how many each queue has of them; ``row`` is its row in the snapshot."""

    row: int
    name: str
    gpus: float
    by_queue: dict[str, float]
    usable: bool

    @property
    def used(self) -> float:
        """GPUs that are allocated."""
        return sum(self.by_queue.values())


class ClusterView(Struct, frozen=True, dict=True):
    """One cycle; ``node_gpus``: (nodes,) float64 GPUs per node. ``number`` counts cycles from 1.

    ``ends``: when pods are expected to end, None: only as they declare.
    """

    number: int
    snapshot: Snapshot
    plan: Plan
    node_gpus: Floats
    ends: ExpectedEnds | None = None

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Node label keys, coarse to fine, that form the domains: a Topology's, or the usual ones.

        Of several Topologies the first by name counts. Levels without two values are left out.
        """
        topologies = self.snapshot.topologies
        keys = topologies[min(topologies)] if topologies else DEFAULT_LEVELS
        nodes = self.snapshot.nodes
        return tuple(k for k in keys if k != HOSTNAME_LABEL and len(nodes.label(k).values) > 1)

    @cached_property
    def domains(self) -> dict[str, tuple[NodeUsage, ...]]:
        """Domain of the finest level, values joined by "/", to its nodes; "" without labels."""
        nodes = self.snapshot.nodes
        columns = [nodes.label(key) for key in self.levels]
        found: dict[str, list[NodeUsage]] = {}
        for usage in self._node_usages():
            path = (column.values[column.codes[usage.row]] for column in columns)
            found.setdefault("/".join(path).rstrip("/"), []).append(usage)
        return {
            name: tuple(sorted(found[name], key=lambda usage: natural_order(usage.name)))
            for name in sorted(found, key=natural_order)
        }

    @cached_property
    def members_on(self) -> dict[str, list[tuple[Gang, Member]]]:
        """Our pods that are allocated capacity, by node, in order of their gangs."""
        found: dict[str, list[tuple[Gang, Member]]] = {}
        for _, gang in sorted(self.snapshot.gangs.items()):
            for member in gang.members:
                if member.node:
                    found.setdefault(member.node, []).append((gang, member))
        return found

    @cached_property
    def queue_positions(self) -> dict[str, tuple[int, int]]:
        """Position in its queue, from 1, and number of pending gangs there, by pending gang."""
        return queue_positions(self.snapshot, self.plan)

    def _node_usages(self) -> Iterator[NodeUsage]:
        nodes = self.snapshot.nodes
        usable = nodes.ready & ~nodes.unschedulable
        allocated = self._plugin_gpus_allocated()
        for row, name in enumerate(nodes.names):
            by_queue: dict[str, float] = {}
            foreign = float(allocated[row])
            for gang, member in self.members_on.get(name, ()):
                gpus = member.charged_gpus
                if gpus:
                    by_queue[gang.queue] = by_queue.get(gang.queue, 0.0) + gpus
                # Shares of GPUs are not part of the plugin's count, so they cannot be subtracted
                # from it.
                foreign -= gpus if member.shape.gpu_share is None else 0.0
            if foreign > 0:
                by_queue[OTHER_SCHEDULERS] = foreign
            yield NodeUsage(row, name, float(self.node_gpus[row]), by_queue, bool(usable[row]))

    def _plugin_gpus_allocated(self) -> Floats:
        """(nodes,) whole GPUs that pods of any scheduler are allocated through a device plugin."""
        allocated = np.zeros(len(self.snapshot.nodes))
        for name, row in self.snapshot.resources.positions.items():
            if name.endswith("/gpu"):
                offered = self.snapshot.nodes.allocatable[row] > 0
                allocated += np.where(offered, self.snapshot.used[row], 0.0)
        shared = self.snapshot.gpu_sharing
        return allocated - shared.whole_gpus(releasing=False) if len(shared.memory) else allocated
