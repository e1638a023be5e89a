"""Records of nodes (core v1): the fields that the scheduler reads."""

import msgspec

from kai_py.api.records.core import Condition, ObjectMeta, QuantityText, Record


class Taint(Record, frozen=True):
    """node.spec.taints[]."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Record, frozen=True):
    """node.spec."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeSystemInfo(Record, frozen=True):
    """node.status.nodeInfo: the boot id changes with each boot."""

    boot_id: str = msgspec.field(default="", name="bootID")


class NodeStatus(Record, frozen=True):
    """node.status."""

    allocatable: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    capacity: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    declared_features: tuple[str, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Record, frozen=True):
    """v1 Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
