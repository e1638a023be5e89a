"""NUMA zones as nodes report them.

The kubelet refuses pods by the TopologyManager policies ``single-numa-node`` and ``restricted``; of
other nodes the zones only say how close together a pod's resources would be. What is available in a
zone is what the node's exporter reports. A pod that we bound since the last report is in none: it
stays *unreported* until the zones of the report change.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.quantity import QuantityError
from kai_py.api.records.node import NodeResourceTopology, Zone
from kai_py.snapshot.derived_pod import AssumedBinding, DerivedPod
from kai_py.snapshot.numa_alignment import Alignment
from kai_py.snapshot.resources import amount
from kai_py.snapshot.tables.pod_table import PodTable, Uids

AmountsByZone = tuple[tuple[float, ...], ...]
"""(zones, resources) in row units."""

MAX_ZONES = 16
"""A kubelet that aligns starts on nodes of at most 8 unless it is configured otherwise."""


class NumaPolicy(StrEnum):
    """TopologyManager policies under which a kubelet refuses pods."""

    SINGLE_NUMA_NODE = "single-numa-node"
    RESTRICTED = "restricted"


class NumaNode(Struct, frozen=True):
    """The zones of a node, in order, and the resources that they report.

    ``policy``: None where the kubelet refuses no pods. ``pod_scope``: all containers of a pod are
    aligned together, else each by itself. ``unreported``: pods bound since the report.
    ``problem``: what of the report cannot be read, with its place.
    """

    policy: NumaPolicy | None
    pod_scope: bool
    zones: tuple[str, ...]
    resources: tuple[str, ...]
    allocatable: AmountsByZone
    available: AmountsByZone
    unreported: tuple[Alignment, ...] = ()
    problem: str = ""


class NumaReports(PodTable):
    """The last report of each node, and the pods bound since that it cannot know of."""

    kinds: ClassVar[tuple[str, ...]] = ("noderesourcetopologies",)

    def __init__(self) -> None:
        """No reports yet."""
        self._reports: dict[str, NodeResourceTopology] = {}
        self._nodes: dict[str, NumaNode] = {}
        self._assumed: dict[str, str] = {}
        self._unreported_on: dict[str, str] = {}
        self._unreported: dict[str, dict[str, Alignment]] = {}

    def apply(self, _kind: str, old: object | None, new: object | None) -> None:
        """Take in one change of a NodeResourceTopology."""
        changed = new if new is not None else old
        if not isinstance(changed, NodeResourceTopology):
            return
        name = changed.metadata.name
        before = self._reports.pop(name, None)
        self._nodes.pop(name, None)
        if before is None or new is None or before.zones != changed.zones:
            for uid in self._unreported.pop(name, ()):
                del self._unreported_on[uid]
        if new is None:
            return
        self._reports[name] = changed
        node = numa_node(changed)
        if node is not None:
            self._nodes[name] = node

    def assume(self, binding: AssumedBinding) -> Uids:
        """A pod is being bound; what of it is aligned is known once it is placed."""
        self._assumed[binding.pod_uid] = binding.node
        return ()

    def place(self, pod: DerivedPod) -> Uids:
        """Count a pod that is being bound until its node reports other zones.

        A pod that turns up on another node than was assumed counts on neither.
        """
        if pod.placement.node != self._unreported_on.get(pod.uid, pod.placement.node):
            self._drop(pod.uid)
        node, aligned = self._assumed.pop(pod.uid, ""), pod.parsed.demand.shape.alignment
        if aligned is not None and node in self._nodes and node == pod.placement.node:
            self._unreported.setdefault(node, {})[pod.uid] = aligned
            self._unreported_on[pod.uid] = node
        return ()

    def forget(self, uid: str) -> Uids:
        """The pod does not come to its node after all."""
        self._assumed.pop(uid, None)
        self._drop(uid)
        return ()

    def release(self, uid: str) -> Uids:
        """The pod needs no zone any more."""
        return self.forget(uid)

    def _drop(self, uid: str) -> None:
        node = self._unreported_on.pop(uid, None)
        if node is not None:
            del self._unreported[node][uid]

    def snapshot(self) -> dict[str, NumaNode]:
        """By name, the nodes that report zones."""
        return {name: self._with_unreported(name, node) for name, node in self._nodes.items()}

    def _with_unreported(self, name: str, node: NumaNode) -> NumaNode:
        pods = self._unreported.get(name)
        if not pods:
            return node
        return replace(node, unreported=tuple(pods.values()))


def numa_node(report: NodeResourceTopology) -> NumaNode | None:
    """The report as the scheduler reads it; None for a node without zones.

    Nodes of more than ``MAX_ZONES`` are left to their kubelet; amounts that can't be read are 0.
    """
    zones = sorted((zone for zone in report.zones if zone.type == "Node"), key=_zone_order)
    if not 0 < len(zones) <= MAX_ZONES:
        return None
    policy, pod_scope = _policy(report)
    resources = tuple(sorted({each.name for zone in zones for each in zone.resources}))
    allocatable = [{each.name: each.allocatable for each in zone.resources} for zone in zones]
    available = [{each.name: each.available for each in zone.resources} for zone in zones]
    return NumaNode(
        policy,
        pod_scope,
        tuple(zone.name for zone in zones),
        resources,
        tuple(tuple(_amount_or_zero(name, listed) for name in resources) for listed in allocatable),
        tuple(tuple(_amount_or_zero(name, listed) for name in resources) for listed in available),
        problem=_problem(report.metadata.name, zones),
    )


def _problem(name: str, zones: Sequence[Zone]) -> str:
    """The first amount that can't be read."""
    for zone in zones:
        for each in zone.resources:
            for field, text in (("allocatable", each.allocatable), ("available", each.available)):
                if _amount_or_none(each.name, text) is None:
                    place = f"zone {zone.name}, resource {each.name}: {field}"
                    return (
                        f"NodeResourceTopology {name}, {place} {text!r} is not a "
                        "quantity: treated as 0"
                    )
    return ""


def _policy(report: NodeResourceTopology) -> tuple[NumaPolicy | None, bool]:
    """The policy, if pods are refused by it, and whether its scope is the pod."""
    attributes = {each.name: each.value for each in report.attributes}
    word = attributes.get("topologyManagerPolicy")
    if word is None:
        old = report.topology_policies[0] if report.topology_policies else ""
        return _V1ALPHA1_POLICIES.get(old), old.endswith("PodLevel")
    policy = NumaPolicy(word) if word in set(NumaPolicy) else None
    return policy, attributes.get("topologyManagerScope") == "pod"


_V1ALPHA1_POLICIES: Mapping[str, NumaPolicy] = {
    "SingleNUMANodePodLevel": NumaPolicy.SINGLE_NUMA_NODE,
    "SingleNUMANodeContainerLevel": NumaPolicy.SINGLE_NUMA_NODE,
    "SingleNUMANode": NumaPolicy.SINGLE_NUMA_NODE,
    "RestrictedPodLevel": NumaPolicy.RESTRICTED,
    "RestrictedContainerLevel": NumaPolicy.RESTRICTED,
    "Restricted": NumaPolicy.RESTRICTED,
}


def _zone_order(zone: Zone) -> tuple[int, str]:
    """``node-2`` before ``node-10``."""
    return len(zone.name), zone.name


def _amount_or_zero(name: str, listed: Mapping[str, str | int | float]) -> float:
    return _amount_or_none(name, listed.get(name, 0)) or 0.0


def _amount_or_none(name: str, text: str | int | float) -> float | None:
    try:
        return amount(name, text)
    except QuantityError:
        return None
