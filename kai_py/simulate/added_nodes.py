"""Nodes that are added: like an existing one, or as the node group of an autoscaler has them.

Of an existing node the kind counts. A cordon, the taints and conditions that tell the state of a
node, and the signals of one that is about to go are about one machine; the next one of its kind has
none of them.

An autoscaler makes nodes of a group from nothing; drivers publish their devices once they run. What
gangs could start there is known before by the node that the group describes, in the configuration
or by the annotations of a MachineDeployment, which are Cluster Autoscaler's:

    capacity.cluster-autoscaler.kubernetes.io/
        cpu, memory, ephemeral-disk, maxPods   what a node has
        labels, taints                         a=b,c=d and key=value:Effect,…
        gpu-type, gpu-count                    an extended resource, and how much of it
        dra-driver, gpu-count                  devices of a driver, with attribute type: gpu

Source: kubernetes/autoscaler, cluster-autoscaler/cloudprovider/clusterapi, scale from zero.
"""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from kai_py.api.autoscaling import GroupDevices, NodeGroupConfig
from kai_py.api.node_departures import NodeSignal
from kai_py.api.problems import field_problems
from kai_py.policy.node_filters import PASSING_TAINTS
from kai_py.simulate.files.objects import Document

STATE_METADATA = frozenset({"deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"})


def as_added(node: Document, signals: Iterable[NodeSignal]) -> Document:
    """``node`` as a new one: ready, not cordoned, and without those of ``signals`` that it has."""
    signals = tuple(signals)
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = [each for each in spec.get("taints") or () if not _is_state(each, signals)]
    return {
        **node,
        "metadata": _metadata(node["metadata"], signals),
        "spec": {**spec, "unschedulable": False, "taints": taints},
        "status": {**status, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _metadata(meta: Document, signals: Iterable[NodeSignal]) -> Document:
    kept = {key: value for key, value in meta.items() if key not in STATE_METADATA}
    labels = dict(meta.get("labels") or {})
    for each in signals:
        if each.label in labels and each.counts(labels[each.label]):
            del labels[each.label]
    return {**kept, "labels": labels}


def _is_state(taint: Document, signals: Iterable[NodeSignal]) -> bool:
    key, value = str(taint.get("key")), str(taint.get("value", ""))
    return key.startswith(PASSING_TAINTS) or any(
        each.taint == key and each.counts(value, taint.get("effect")) for each in signals
    )


MACHINES = frozenset({"MachineDeployment", "MachineSet", "MachinePool"})
PREFIX = "capacity.cluster-autoscaler.kubernetes.io/"
AMOUNTS = {
    "cpu": "cpu",
    "memory": "memory",
    "ephemeral-disk": "ephemeral-storage",
    "maxPods": "pods",
}
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


def machine_group(documents: Sequence[Document]) -> NodeGroupConfig | None:
    """The node group that a single MachineDeployment describes; None for other documents.

    Raises ValueError for annotations that cannot be read.
    """
    if len(documents) != 1 or documents[0].get("kind") not in MACHINES:
        return None
    meta = documents[0].get("metadata") or {}
    written = meta.get("annotations") or {}
    known = {
        key.removeprefix(PREFIX): str(value)
        for key, value in written.items()
        if key.startswith(PREFIX)
    }
    if "cpu" not in known or "memory" not in known:
        raise ValueError(f"annotations {PREFIX}cpu and {PREFIX}memory must say what a node has")
    try:
        return NodeGroupConfig.model_validate(_group(str(meta.get("name", "")), known))
    except ValidationError as error:
        problem = field_problems(error, NodeGroupConfig)[0]
        raise ValueError(f"annotations {PREFIX}…: {problem}") from None


def _group(name: str, known: Mapping[str, str]) -> Document:
    allocatable = {to: known[key] for key, to in AMOUNTS.items() if key in known}
    count, devices = known.get("gpu-count", "0"), []
    if known.get("gpu-type"):
        allocatable[known["gpu-type"]] = count
    elif known.get("dra-driver"):
        number = int(count) if count.isdecimal() else count
        devices = [{"driver": known["dra-driver"], "count": number, "attributes": {"type": "gpu"}}]
    labels = (each.partition("=") for each in _listed(known.get("labels", "")))
    return {
        "name": name,
        "labels": {key: value for key, _, value in labels},
        "taints": [_taint(each) for each in _listed(known.get("taints", ""))],
        "allocatable": allocatable,
        "devices": devices,
    }


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _taint(text: str) -> Document:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}
