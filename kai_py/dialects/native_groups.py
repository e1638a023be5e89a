"""Kubernetes' own groups, in the shapes of 1.35, 1.36 and 1.37.

1.35         pod.spec.workloadRef names a group inside a Workload, each replica key of it one gang
1.36, 1.37   pod.spec.schedulingGroup names a PodGroup

The gang policy's ``minCount`` is the floor; the basic policy starts with one pod. A topology
constraint is a node label key, always required. The annotation
``kai.scheduler/ignore-workload-api`` on a pod turns this off for it.

Source: KEP-4671, scheduling.k8s.io v1alpha1 to v1beta1.
"""

from kai_py.api.records.document import Document
from kai_py.dialects.group_objects import Form, source
from kai_py.grouping.blueprint import Unusable
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.grouping.lineage import Lineage

IGNORE_KEY = "kai.scheduler/ignore-workload-api"


def _group_name(lineage: Lineage) -> str:
    group = lineage.pod.spec.scheduling_group
    return group.pod_group_name if group is not None else ""


def _group_mark(lineage: Lineage) -> str:
    name = _group_name(lineage)
    if not name or lineage.pod.metadata.annotations.get(IGNORE_KEY) == "true":
        return ""
    return f'spec.schedulingGroup "{name}"'


def _group_tree(found: Document, _lineage: Lineage) -> Subgroup:
    constraints = entries(found.content, "spec.schedulingConstraints.topology.*")
    keys = [str(each.get("key") or each.get("level") or "") for each in constraints]
    return Subgroup(
        min_members=count_at(found.content, "spec.schedulingPolicy.gang.minCount", 1),
        topology=TopologyConstraint(required_level=keys[0]) if keys else None,
    )


def _workload_name(lineage: Lineage) -> str:
    reference = lineage.pod.spec.workload_ref
    return reference.name if reference is not None else ""


def _workload_mark(lineage: Lineage) -> str:
    name = _workload_name(lineage)
    if not name or lineage.pod.metadata.annotations.get(IGNORE_KEY) == "true":
        return ""
    return f'spec.workloadRef "{name}"'


def _workload_part(lineage: Lineage) -> str:
    reference = lineage.pod.spec.workload_ref
    if reference is None:
        return ""
    parts = (reference.pod_group, reference.pod_group_replica_key)
    return "/".join(part for part in parts if part)


def _workload_tree(found: Document, lineage: Lineage) -> Subgroup:
    reference = lineage.pod.spec.workload_ref
    wanted = reference.pod_group if reference is not None else ""
    for group in entries(found.content, "spec.podGroups.*"):
        if group.get("name") == wanted:
            return Subgroup(min_members=count_at(group, "policy.gang.minCount", 1))
    raise Unusable(f'spec.podGroups has no group "{wanted}"')


NATIVE_GROUP = source(
    Form(
        kind="PodGroup.scheduling.k8s.io",
        collection="podgroups",
        mark=_group_mark,
        name=_group_name,
        tree=_group_tree,
    )
)
NATIVE_WORKLOAD = source(
    Form(
        kind="Workload.scheduling.k8s.io",
        collection="workloads",
        mark=_workload_mark,
        name=_workload_name,
        tree=_workload_tree,
        part=_workload_part,
    )
)
