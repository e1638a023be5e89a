"""Every device of a cluster, of drivers and of device plugins, for the command line and the API.

Devices of device plugins have no names: a node has one entry for the units that are allocated, and
one for those that are free. Units of pods that another scheduler placed are among the allocated
ones; no gang is named for them.
"""

from collections.abc import Mapping
from dataclasses import replace

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.explain.device_list import DeviceEntry, DeviceStatus, Holder, list_devices
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.snapshot import Snapshot


def entries_of(snapshot: Snapshot) -> list[DeviceEntry]:
    """The devices of a snapshot, by node: those in ResourceSlices, then those of plugins."""
    devices = ClusterDevices()
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
