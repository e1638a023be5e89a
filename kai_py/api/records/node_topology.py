"""Records of NodeResourceTopology (``topology.node.k8s.io``): the resources of a node's NUMA zones.

An exporter on the node writes it from the kubelet's accounts. v1alpha2 has policy and scope as
attributes, v1alpha1 as one word in ``topologyPolicies``; both are read from either version.
"""

from kai_py.api.records.core import ObjectMeta, QuantityText, Record

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
