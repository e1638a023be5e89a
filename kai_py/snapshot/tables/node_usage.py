"""What pods occupy on nodes, kept up to date as pods come and go.

An event costs one column update; ``snapshot`` hands out the arrays as they are, and they are copied
when the next change comes (copy on write). Nodes stand in the order of their names, so the arrays
are rebuilt only when the set of nodes changes or a resource is named for the first time.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np
from msgspec import Struct

from kai_py.api.gpu_share import MIG_PREFIX
from kai_py.api.node_departures import BUILT_IN, Departure, DepartureSignals
from kai_py.api.records.node import Node
from kai_py.snapshot.derived_pod import DerivedPod, PodUsage
from kai_py.snapshot.nodes import NodeColumns, is_ready, node_columns, with_node
from kai_py.snapshot.resources import Floats, ResourceIndex
from kai_py.snapshot.shape import HostPort
from kai_py.snapshot.shared_gpus import (
    GpuSharing,
    SharedGpuTable,
    with_shared_gpus,
    without_exposed_gpus,
)
from kai_py.snapshot.tables.pod_table import PodTable, Uids
from kai_py.snapshot.volume_requirements import Attachment, Disk

Item = TypeVar("Item")
InUse = tuple[tuple[Item, bool], ...]
"""Items in use, and whether the pod that uses them is releasing them."""

NodeItems = tuple[
    Mapping[int, InUse[HostPort]],
    Mapping[int, InUse[Disk]],
    Mapping[int, InUse[Attachment]],
    InUse[str],
]
"""Host ports, disks and volumes by node row, and volume claims that only one pod may use."""


class NodeUsageState(Struct, frozen=True):
    """Usage at one instant; see Snapshot for the meaning of the fields."""

    resources: ResourceIndex
    nodes: NodeColumns
    used: Floats
    releasing: Floats
    host_ports: Mapping[int, InUse[HostPort]]
    disks: Mapping[int, InUse[Disk]]
    attached: Mapping[int, InUse[Attachment]]
    exclusive_claims: InUse[str]
    gpu_sharing: GpuSharing


class NodeUsageTable(PodTable):
    """Nodes, and what the pods on them occupy."""

    def __init__(self, signals: DepartureSignals = BUILT_IN) -> None:
        """Start with no nodes; ``signals`` show which nodes are about to go."""
        self._nodes: dict[str, Node] = {}
        self._signals = signals
        self._departures: dict[str, Departure] = {}
        self._usages: dict[str, PodUsage] = {}
        self._with_items: dict[str, dict[str, PodUsage]] = {}
        self._items: NodeItems | None = None
        self._resources = ResourceIndex()
        self._columns = node_columns((), self._resources, 0)
        self._used = np.zeros((len(self._resources.names), 0))
        self._releasing = self._used.copy()
        self._generation = 0
        self._stale = True
        self._shared_gpus = SharedGpuTable()
        self._legacy_mig: dict[str, int] = {}

    def set_node(self, name: str, node: Node | None) -> bool:
        """Add, replace or (with None) remove a node; returns whether anything relevant changed."""
        known = self._nodes.get(name)
        if node is None:
            self._departures.pop(name, None)
            self._stale |= self._nodes.pop(name, None) is not None
            return known is not None
        self._nodes[name] = node
        unchanged = not self._set_departure(name, self._signals.departure(node))
        if unchanged and known is not None and _relevant(known) == _relevant(node):
            return False
        new_resources = node.status.allocatable.keys() - self._resources.positions.keys()
        if known is None or new_resources or self._stale:
            self._stale = True
            return True
        self._generation += 1
        self._columns = with_node(
            self._columns, node, self._resources, self._generation, dict(self._departures)
        )
        return True

    def _set_departure(self, name: str, departure: Departure | None) -> bool:
        """Note whether a node is about to go; returns whether that has changed."""
        if self._departures.get(name) == departure:
            return False
        if departure is None:
            del self._departures[name]
        else:
            self._departures[name] = departure
        return True

    def place(self, pod: DerivedPod) -> Uids:
        """Count what the pod occupies now."""
        self.set_usage(pod.uid, pod.usage)
        return ()

    def release(self, uid: str) -> Uids:
        """The pod occupies nothing any more."""
        self.set_usage(uid, None)
        return ()

    def set_usage(self, pod_uid: str, usage: PodUsage | None) -> None:
        """Count what a pod occupies now; None when it occupies nothing any more."""
        before = self._usages.pop(pod_uid, None)
        if before is not None:
            self._apply_usage(pod_uid, before, -1.0)
        if usage is not None:
            self._usages[pod_uid] = usage
            self._apply_usage(pod_uid, usage, 1.0)

    def set_published_memory(self, published: Mapping[str, float]) -> None:
        """Set what drivers publish of their GPUs: MiB by node."""
        self._shared_gpus.set_published_memory(published)

    def snapshot(self) -> NodeUsageState:
        """The current state; the arrays must not be written to."""
        if self._stale:
            self._rebuild()
        for array in (self._used, self._releasing):
            array.flags.writeable = False
        if self._items is None:
            self._items = _node_items(self._with_items, self._columns.positions)
        sharing = self._shared_gpus.snapshot(self._columns)
        return NodeUsageState(
            self._resources,
            self._columns,
            self._without_unknown_mig(
                without_exposed_gpus(
                    self._resources,
                    sharing,
                    with_shared_gpus(self._resources, sharing, self._used, releasing=False),
                    self._columns.allocatable,
                )
            ),
            with_shared_gpus(self._resources, sharing, self._releasing, releasing=True),
            *self._items,
            sharing,
        )

    def _without_unknown_mig(self, used: Floats) -> Floats:
        """``used`` with all MIG devices of nodes on which unknown ones are in use."""
        positions = self._columns.positions
        at = [positions[node] for node in self._legacy_mig if node in positions]
        mig = [row for row, name in enumerate(self._resources.names) if name.startswith(MIG_PREFIX)]
        if not at or not mig:
            return used
        adjusted, cells = used.copy(), np.ix_(mig, at)
        adjusted[cells] = np.maximum(adjusted[cells], self._columns.allocatable[cells])
        return adjusted

    def _apply_usage(self, pod_uid: str, usage: PodUsage, sign: float) -> None:
        if usage.has_items:
            self._items = None
            pods = self._with_items.setdefault(usage.node, {})
            if sign > 0:
                pods[pod_uid] = usage
            else:
                pods.pop(pod_uid, None)
                if not pods:  # nodes of new names come and go
                    del self._with_items[usage.node]
        if usage.shared_gpus is not None:
            self._shared_gpus.add(usage.node, usage.shared_gpus, sign, releasing=usage.releasing)
        if usage.legacy_mig:
            self._count_legacy_mig(usage.node, int(sign))
        if self._stale:
            return
        row = self._columns.positions.get(usage.node)
        if row is None:
            return
        if not self._used.flags.writeable:
            self._used = self._used.copy()
        _add(self._used, self._resources, row, usage.requests, sign)
        if usage.releasing:
            if not self._releasing.flags.writeable:
                self._releasing = self._releasing.copy()
            _add(self._releasing, self._resources, row, usage.requests, sign)

    def _count_legacy_mig(self, node: str, change: int) -> None:
        count = self._legacy_mig.pop(node, 0) + change
        if count > 0:
            self._legacy_mig[node] = count

    def _rebuild(self) -> None:
        names = {name for node in self._nodes.values() for name in node.status.allocatable}
        self._resources = ResourceIndex().extended(names)
        self._generation += 1
        self._columns = node_columns(
            tuple(self._nodes.values()),
            self._resources,
            self._generation,
            dict(self._departures),
        )
        shape = (len(self._resources.names), len(self._columns))
        self._used, self._releasing = np.zeros(shape), np.zeros(shape)
        self._stale = False
        self._items = None
        on_nodes = [each for each in self._usages.values() if each.node in self._columns.positions]
        self._add_all(self._used, on_nodes)
        self._add_all(self._releasing, [each for each in on_nodes if each.releasing])

    def _add_all(self, array: Floats, usages: Iterable[PodUsage]) -> None:
        """Add what pods occupy, one after another: as if each had come by itself."""
        positions, rows = self._resources.positions, self._columns.positions
        entries = [
            (positions[name], rows[usage.node], amount)
            for usage in usages
            for name, amount in usage.requests.items()
            if name in positions
        ]
        if entries:
            resources, nodes, amounts = zip(*entries, strict=True)
            np.add.at(array, (np.array(resources), np.array(nodes)), np.array(amounts))


def _node_items(
    pods_by_node: Mapping[str, Mapping[str, PodUsage]], rows: Mapping[str, int]
) -> NodeItems:
    users = {
        rows[node]: tuple(pods.values())
        for node, pods in pods_by_node.items()
        if node in rows and pods
    }
    return (
        {row: _in_use(pods, _ports) for row, pods in users.items()},
        {row: in_use for row, pods in users.items() if (in_use := _in_use(pods, _disks))},
        {row: _in_use(pods, _attachments) for row, pods in users.items()},
        tuple(item for pods in users.values() for item in _in_use(pods, _exclusive)),
    )


def _in_use(pods: Iterable[PodUsage], items: Callable[[PodUsage], Iterable[Item]]) -> InUse[Item]:
    return tuple((item, usage.releasing) for usage in pods for item in items(usage))


def _ports(usage: PodUsage) -> tuple[HostPort, ...]:
    return usage.host_ports


def _disks(usage: PodUsage) -> tuple[Disk, ...]:
    return usage.disks


def _attachments(usage: PodUsage) -> tuple[Attachment, ...]:
    return usage.attachments


def _exclusive(usage: PodUsage) -> tuple[str, ...]:
    return usage.exclusive


def _add(
    array: Floats,
    resources: ResourceIndex,
    row: int,
    requests: Mapping[str, float],
    sign: float,
) -> None:
    for name, amount in requests.items():
        position = resources.positions.get(name)
        # What no node reports needs no row: pods may ask for resources of any name.
        if position is not None:
            array[position, row] += sign * amount


def _relevant(node: Node) -> tuple[object, ...]:
    return (
        node.metadata.labels,
        node.metadata.unreadable,
        node.spec,
        node.status.allocatable,
        node.status.declared_features,
        is_ready(node),
    )
