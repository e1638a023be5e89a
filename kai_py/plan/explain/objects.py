"""Which objects are of no use because of what they say, or not in the way they say?

Nodes with amounts that are negative or no quantities, and pools of devices that are incomplete or
contradict themselves. They are left out of placement; a pool is told of at its first slice. Pods
that name several groups: only one of them can count. Nodes whose NUMA report can't be read in full.
"""

from kai_py.api.records.core import ObjectMeta
from kai_py.dra.inventory import Inventory
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import ObjectProblem
from kai_py.snapshot.snapshot import Snapshot


def object_problems(snapshot: Snapshot, inventory: Inventory) -> tuple[ObjectProblem, ...]:
    """Problems of nodes by name, of their NUMA reports, of pools by driver and name, of pods."""
    nodes = snapshot.nodes
    faulty_nodes = [
        ObjectProblem(_owner("v1", "Node", nodes.records[nodes.positions[name]].metadata), text)
        for name, text in sorted(nodes.problems.items())
    ]
    faulty_reports = [
        ObjectProblem(_owner("v1", "Node", nodes.records[nodes.positions[name]].metadata), text)
        for name, node in sorted(snapshot.numa.items())
        if name in nodes.positions and (text := node.problem)
    ]
    faulty_pools = [
        ObjectProblem(_owner("resource.k8s.io/v1", "ResourceSlice", piece.metadata), text)
        for piece, text in inventory.faults()
    ]
    torn_pods = [
        ObjectProblem(
            Owner("v1", "Pod", each.pod.namespace, each.pod.name, each.pod.uid),
            f"belongs to gang {each.gang}; disregarded: {', '.join(each.markers)}",
        )
        for each in snapshot.ignored_markers
    ]
    return (*faulty_nodes, *faulty_reports, *faulty_pools, *torn_pods)


def _owner(api_version: str, kind: str, meta: ObjectMeta) -> Owner:
    return Owner(api_version=api_version, kind=kind, namespace="", name=meta.name, uid=meta.uid)
