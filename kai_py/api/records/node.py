"""Records of nodes (core v1) and their taints, and of NodeResourceTopology.

A NodeResourceTopology has the resources of a node's NUMA zones. An exporter on the node writes it
from the kubelet's accounts. v1alpha2 has policy and scope as attributes, v1alpha1 as one word in
``topologyPolicies``; both are read from either version.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from kai_py.api.numbers import parse_int64
from kai_py.api.records.core import Condition, ObjectMeta, Toleration
from kai_py.api.records.record import QuantityText, Record

HOSTNAME_LABEL = "kubernetes.io/hostname"
"""Label by which kubelets register nodes."""


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


GROUP = "topology.node.k8s.io"


class ZoneResource(Record, frozen=True):
    """``allocatable``: for pods in total; ``available``: not allocated to any pod."""

    name: str = ""
    allocatable: QuantityText = 0
    available: QuantityText = 0


class Zone(Record, frozen=True):
    """Zones of type ``Node`` are NUMA nodes; others are parts of them."""

    name: str = ""
    type: str = "Node"
    resources: tuple[ZoneResource, ...] = ()


class TopologyAttribute(Record, frozen=True):
    """``topologyManagerPolicy`` or ``topologyManagerScope``, with the kubelet's value."""

    name: str = ""
    value: str = ""


class NodeResourceTopology(Record, frozen=True):
    """A topology object, named like its node."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[TopologyAttribute, ...] = ()
    zones: tuple[Zone, ...] = ()


HARD_EFFECTS = ("NoSchedule", "NoExecute")
"""Effects of taints that keep new pods away; others do not matter."""
AnyTaint = TypeVar("AnyTaint", bound=Taint)


def untolerated(taints: Iterable[AnyTaint], tolerations: Sequence[Toleration]) -> AnyTaint | None:
    """The first taint that keeps pods or requests with these tolerations away."""
    hard = (taint for taint in taints if taint.effect in HARD_EFFECTS)
    return next((taint for taint in hard if not tolerates(tolerations, taint)), None)


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether any toleration covers the taint."""
    return any(covers(toleration, taint) for toleration in tolerations)


def covers(toleration: Toleration, taint: Taint) -> bool:
    """Whether a taint is tolerated, for however short a time; no operator means Equal.

    Gt and Lt compare the taint's value, as a number, with the toleration's (KEP-5471).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Gt", "Lt"):
        limit, value = _whole(toleration.value), _whole(taint.value)
        if limit is None or value is None:
            return False
        return value > limit if toleration.operator == "Gt" else value < limit
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def taint_text(taint: Taint) -> str:
    """The taint as kubectl writes it: ``key=value:effect``."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _whole(text: str) -> int | None:
    """An integer as the API server accepts it here: without a sign + or leading zeros."""
    number = parse_int64(text)
    return number if str(number) == text else None
