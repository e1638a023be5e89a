"""Every device of a cluster, of drivers and of device plugins, for the command line and the API."""

from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.dra.explain.device_list import DeviceEntry, list_devices
from kai_py.observe.plugin_devices import list_plugin_devices
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
