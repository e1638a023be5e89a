"""Node groups of the configuration as the objects of one node: a Node and its ResourceSlices.

An autoscaler makes nodes of a group from nothing; drivers publish their devices once they run. What
gangs could start there is known before by the node that the group describes.
"""

from kai_py.api.autoscaling import GroupDevices, NodeGroupConfig
from kai_py.simulate.objects import Document

TYPES = ((bool, "bool"), (int, "int"), (str, "string"))


def group_node(group: NodeGroupConfig) -> list[Document]:
    """A Node of the group, and the slices that drivers publish for it.

    It is named as no value of a label is: every mention of it is the node's.
    """
    name = f"{group.name}//node"
    amounts = {"pods": "110"} | {name: str(each) for name, each in group.allocatable.items()}
    taints = [each.model_dump(exclude_defaults=False) for each in group.taints]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(group.labels)},
        "spec": {"taints": taints} if taints else {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    slices = (_slice(group.name, name, number, each) for number, each in enumerate(group.devices))
    return [node, *slices]


def _slice(group: str, node: str, number: int, devices: GroupDevices) -> Document:
    """The slice has a pool of its own: one driver may have several kinds of devices on a node."""
    typed = {name: _typed(value) for name, value in devices.attributes.items()}
    capacity = {name: {"value": str(amount)} for name, amount in devices.capacity.items()}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{group}-{number}"},
        "spec": {
            "driver": devices.driver,
            "nodeName": node,
            "pool": {"name": f"{group}-{number}", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"device-{index}", "attributes": typed, "capacity": capacity}
                for index in range(devices.count)
            ],
        },
    }


def _typed(value: object) -> Document:
    """The value with its type: to Python a bool is an int, too."""
    kind = next(name for of, name in TYPES if isinstance(value, of))
    return {kind: value}
