"""Problems of objects that are ignored, in full or in part, because of what they contain.

Nodes with negative or unreadable amounts, and incomplete or contradictory device pools, are not
used for placement; a pool is reported at its first slice. Pods that name several groups belong to
one of them. Of a NUMA report only the readable part counts. Pods whose ``schedulerName`` is a
misspelling of this scheduler's are scheduled by none. Objects of any kind that could not be
processed are set aside.
"""

from kai_py.api.records.core import ObjectMeta
from kai_py.dra.inventory import Inventory
from kai_py.grouping.gang import Owner
from kai_py.plan.observations import ObjectProblem
from kai_py.snapshot.snapshot import Snapshot

MAX_MISNAMED = 64
"""How many pods with a misspelt scheduler name are reported."""


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
        ObjectProblem(_owner("resource.k8s.io/v1", "ResourceSlice", resource_slice.metadata), text)
        for resource_slice, text in inventory.faults()
    ]
    ambiguous_pods = [
        ObjectProblem(
            Owner("v1", "Pod", each.pod.namespace, each.pod.name, each.pod.uid),
            f"belongs to gang {each.gang}; ignored: {', '.join(each.markers)}",
        )
        for each in snapshot.ignored_markers
    ]
    misnamed = [
        ObjectProblem(
            Owner("v1", "Pod", each.pod.namespace, each.pod.name, each.pod.uid), each.message
        )
        for each in snapshot.misnamed_schedulers[:MAX_MISNAMED]
    ]
    set_aside = [ObjectProblem(each.object, each.message) for each in snapshot.invalid_objects]
    pods = (*ambiguous_pods, *misnamed)
    return (*faulty_nodes, *faulty_reports, *faulty_pools, *pods, *set_aside)


def _owner(api_version: str, kind: str, meta: ObjectMeta) -> Owner:
    return Owner(api_version=api_version, kind=kind, namespace="", name=meta.name, uid=meta.uid)
