"""Lists of the API: the rows that ``kai-py gangs``, ``queues`` and ``devices`` print.

Devices are those of drivers and of device plugins. The latter have no names: a node has one entry
for the units that are allocated, and one for those that are free. Units of pods that another
scheduler placed are among the allocated ones; no gang is named for them.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.explain.device_list import DeviceEntry, DeviceStatus, Holder, list_devices
from kai_py.observe.cluster_state import OtherGangs, QueueRow, queue_rows
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.gang_rows import GangRow, gang_rows
from kai_py.observe.queue_explanation import QueueExplanation, explain_queue
from kai_py.observe.tenant_answers import (
    other_gangs,
    other_queues,
    tenant_devices,
    tenant_gangs,
    tenant_queues,
)
from kai_py.observe.visibility import Visibility
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.quarantine import Quarantine, ignore_failure
from kai_py.snapshot.snapshot import Snapshot


def entries_of(snapshot: Snapshot) -> list[DeviceEntry]:
    """The devices of a snapshot, by node: those in ResourceSlices, then those of plugins."""
    devices = ClusterDevices(quarantine=Quarantine(ignore_failure))
    devices.sync(snapshot.devices)
    published = list_devices(
        devices.inventory,
        devices.state,
        snapshot.nodes.records,
        snapshot.devices.claims.values(),
        snapshot.gangs,
    )
    return sorted([*published, *list_plugin_devices(snapshot)], key=lambda each: each.node)


KIND = "device plugin"
PRODUCT_SUFFIX = ".product"
"""GPU feature discovery labels nodes with RESOURCE.product."""


def list_plugin_devices(snapshot: Snapshot) -> list[DeviceEntry]:
    """By node and resource; O(nodes x extended resources + pods)."""
    nodes, holders = snapshot.nodes, _holders(snapshot)
    entries: list[DeviceEntry] = []
    for name, row in sorted(snapshot.resources.positions.items()):
        if "/" not in name:
            continue
        units = nodes.allocatable[row]
        for position in units.nonzero()[0].tolist():
            node, total = nodes.names[position], int(units[position])
            allocated = min(total, int(snapshot.used[row, position]))
            states = (
                (DeviceStatus.ALLOCATED, allocated, tuple(holders.get((node, name), ()))),
                (DeviceStatus.FREE, total - allocated, ()),
            )
            entry = DeviceEntry(
                node=node,
                driver="",
                pool="",
                device=name,
                product=nodes.records[position].metadata.labels.get(f"{name}{PRODUCT_SUFFIX}", ""),
                kind=KIND,
                parent="",
                status=DeviceStatus.FREE,
                detail="",
                claims=(),
            )
            entries += [
                replace(entry, status=status, count=count, claims=claims)
                for status, count, claims in states
                if count
            ]
    return sorted(entries, key=lambda each: (each.node, each.device))


def _holders(snapshot: Snapshot) -> dict[tuple[str, str], list[Holder]]:
    """By node and resource, a holder per gang."""
    pods: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for gang in snapshot.gangs.values():
        for member in gang.bound:
            for resource, amount in member.shape.requests.items():
                if "/" in resource:
                    of_gang = pods.setdefault((member.node, resource), {})
                    of_gang.setdefault(gang.key, {})[member.pod.name] = amount
    return {
        place: [_holder(snapshot.gangs[key], units) for key, units in sorted(gangs.items())]
        for place, gangs in pods.items()
    }


def _holder(gang: Gang, pods: Mapping[str, float]) -> Holder:
    """``pods``: how many units each has."""
    return Holder(
        claim="",
        pods=tuple(pods),
        units=int(sum(pods.values())),
        gang=gang.key,
        queue=gang.queue,
        consumed={},
        admin_access=False,
    )


class GangList(Struct, frozen=True):
    """Gangs of a cycle; ``others``: those that this reader does not see."""

    cycle: int
    gangs: list[GangRow]
    others: OtherGangs | None = None
    unreviewed: int = 0
    """Namespaces that were not looked at; a query names those that are wanted."""
    queues: tuple[str, ...] = ()
    """The queues that there are, as far as the reader sees them."""


class QueueList(Struct, frozen=True):
    """Queues of a cycle; ``others``: by resource, what queues have that are not shown."""

    cycle: int
    queues: list[QueueRow]
    others: dict[str, float] | None = None


class DeviceList(Struct, frozen=True):
    """Devices of a cycle; where nodes may not be seen, those of others are counted."""

    cycle: int
    devices: list[DeviceEntry]


def gang_list(view: ClusterView, seen: Visibility | None) -> GangList:
    """The gangs by key."""
    rows = list(gang_rows(view.snapshot, view.plan))
    queues = tuple(sorted(share.queue for share in view.plan.queues))
    if seen is None:
        return GangList(view.number, rows, queues=queues)
    return GangList(
        cycle=view.number,
        gangs=tenant_gangs(rows, seen),
        others=other_gangs(view, seen),
        unreviewed=seen.unreviewed,
        queues=tuple(queue for queue in queues if queue in seen.queues),
    )


def queue_list(view: ClusterView, seen: Visibility | None) -> QueueList:
    """The queues in the plan's order."""
    rows = list(queue_rows(view.snapshot, view.plan))
    if seen is None:
        return QueueList(view.number, rows)
    return QueueList(view.number, list(tenant_queues(rows, seen)), other_queues(rows, seen))


def device_list(view: ClusterView, seen: Visibility | None) -> DeviceList:
    """The devices by node."""
    entries = entries_of(view.snapshot)
    return DeviceList(view.number, entries if seen is None else tenant_devices(entries, seen))


class QueuePage(Struct, frozen=True):
    """A queue and those of its gangs that the reader sees."""

    explanation: QueueExplanation
    gangs: list[GangRow]


def queue_page(view: ClusterView, name: str, seen: Visibility | None) -> QueuePage | None:
    """The page of a queue; None if no queue of that name exists or the reader may not see it."""
    if seen is not None and name not in seen.queues:
        return None
    shows = seen.queues.__contains__ if seen is not None else lambda _queue: True
    explanation = explain_queue(view.snapshot, view.plan, name, shows)
    if explanation is None:
        return None
    rows = [row for row in gang_rows(view.snapshot, view.plan) if row.queue == name]
    return QueuePage(explanation, rows if seen is None else tenant_gangs(rows, seen))


LISTS: Mapping[str, Callable[[ClusterView, Visibility | None], object]] = {
    "gangs": gang_list,
    "queues": queue_list,
    "devices": device_list,
}
