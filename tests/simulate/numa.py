"""What a NUMA exporter reports of a node."""

from tests.support.cluster.api import Document


def two_zones(node: str, *, cpu: str, gpus: str) -> Document:
    """A report of a node with two equal zones, all of whose capacity is available."""
    zones = [
        {
            "name": f"node-{index}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": most, "allocatable": most, "available": most}
                for name, most in (("cpu", cpu), ("nvidia.com/gpu", gpus))
            ],
        }
        for index in range(2)
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": zones,
    }
