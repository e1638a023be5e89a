"""Record of NodeResourceTopology (``topology.node.k8s.io``): what the NUMA zones of a node have.

An exporter on the node writes it, by the kubelet's own account. v1alpha2 names policy and scope as
attributes, v1alpha1 as one word in ``topologyPolicies``; both are read from either version.
"""

from kai_py.api.records.core import ObjectMeta, QuantityText, Record

GROUP = "topology.node.k8s.io"


class ZoneResource(Record, frozen=True):
    """``allocatable`` is for pods in all, ``available`` is what no pod has."""

    name: str = ""
    allocatable: QuantityText = 0
    available: QuantityText = 0


class Zone(Record, frozen=True):
    """Zones of type ``Node`` are NUMA nodes; others are parts of them."""

    name: str = ""
    type: str = "Node"
    resources: tuple[ZoneResource, ...] = ()


class TopologyAttribute(Record, frozen=True):
    """``topologyManagerPolicy`` or ``topologyManagerScope``, with the kubelet's word for it."""

    name: str = ""
    value: str = ""


class NodeResourceTopology(Record, frozen=True):
    """Named like the node that it is about."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[TopologyAttribute, ...] = ()
    zones: tuple[Zone, ...] = ()
