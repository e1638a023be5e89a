"""Kinds of nodes: nodes of one kind have the same amounts, taints, type and devices.

To ask about additional nodes, a user names an existing node as an example; one node per kind is
enough to choose from. Drivers publish devices in ResourceSlices, so nodes that look the same to the
kubelet may have different GPUs: these count too. Nodes that accept no pods at present do not serve
as examples.

Complexity: O(nodes + devices).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from kai_py.api.records.node import Node
from kai_py.api.records.resource import Device, ResourceSlice
from kai_py.snapshot.snapshot import Snapshot

TYPE_LABELS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.product")
DEVICE_NAMES = ("profile", "productName", "model", "type")
"""Attributes by which people know what a device is, the clearest one first."""


class NodeKind(Struct, frozen=True):
    """Nodes that are alike; ``example`` is the first of them by name.

    ``amounts``: what the kubelet offers, as the API writes it. ``devices``: what drivers publish
    for one such node: product, or partition profile, or type, or driver, with how many there are.
    """

    example: str
    count: int
    type: str
    amounts: Mapping[str, str]
    devices: Mapping[str, int]
    taints: tuple[str, ...]


def node_kinds(snapshot: Snapshot) -> list[NodeKind]:
    """The kinds of nodes, the most frequent first."""
    nodes = snapshot.nodes
    devices = _devices_by_node(snapshot.devices.slices.values())
    alike: dict[tuple[object, ...], list[Node]] = {}
    for row in np.flatnonzero(nodes.ready & ~nodes.unschedulable):
        node = nodes.records[row]
        published = tuple(sorted(devices.get(node.metadata.name, {}).items()))
        key = (_amounts(node), node.spec.taints, _type(node), published)
        alike.setdefault(key, []).append(node)
    return [
        NodeKind(
            example=first.metadata.name,
            count=1 + len(others),
            type=_type(first),
            amounts=dict(_amounts(first)),
            devices=dict(devices.get(first.metadata.name, {})),
            taints=tuple(f"{taint.key}:{taint.effect}" for taint in first.spec.taints),
        )
        for first, *others in sorted(alike.values(), key=_most_frequent_first)
    ]


def _most_frequent_first(alike: list[Node]) -> tuple[int, str]:
    return -len(alike), alike[0].metadata.name


def _amounts(node: Node) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in node.status.allocatable.items()))


def _type(node: Node) -> str:
    labels = node.metadata.labels
    return next((labels[key] for key in TYPE_LABELS if labels.get(key)), "")


def _devices_by_node(slices: Iterable[ResourceSlice]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for each in slices:
        if each.spec.node_name:
            counted = found.setdefault(each.spec.node_name, Counter())
            counted.update(_name(device) or each.spec.driver for device in each.spec.devices)
    return found


def _name(device: Device) -> str:
    texts = {
        name.rpartition("/")[2]: value.string_value for name, value in device.attributes.items()
    }
    return next((text for name in DEVICE_NAMES if (text := texts.get(name))), "")
