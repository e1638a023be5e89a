"""Which nodes and ResourceSlices are of no use because of what they say?

Nodes with amounts that are negative or no quantities, and pools of devices that are incomplete or
contradict themselves. They are left out of placement; a pool is told of at its first slice.
"""

from kai_py.api.records.core import ObjectMeta
from kai_py.dra.inventory import Inventory
from kai_py.grouping.gang import Owner
from kai_py.plan.decisions import ObjectProblem
from kai_py.snapshot.nodes import NodeColumns


def object_problems(nodes: NodeColumns, inventory: Inventory) -> tuple[ObjectProblem, ...]:
    """Problems of nodes by name, then of pools by driver and name."""
    faulty_nodes = [
        ObjectProblem(_owner("v1", "Node", nodes.records[nodes.positions[name]].metadata), text)
        for name, text in sorted(nodes.problems.items())
    ]
    faulty_pools = [
        ObjectProblem(_owner("resource.k8s.io/v1", "ResourceSlice", piece.metadata), text)
        for piece, text in inventory.faults()
    ]
    return (*faulty_nodes, *faulty_pools)


def _owner(api_version: str, kind: str, meta: ObjectMeta) -> Owner:
    return Owner(api_version=api_version, kind=kind, namespace="", name=meta.name, uid=meta.uid)
