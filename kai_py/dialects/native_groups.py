"""Kubernetes' own groups, in the shapes of 1.35, 1.36 and 1.37.

1.35         pod.spec.workloadRef names a group inside a Workload, each replica key of it one gang
1.36, 1.37   pod.spec.schedulingGroup names a PodGroup, which may be below composite groups (1.37)

The gang policy's ``minCount`` is the floor while pods are placed: a group that falls below it later
is not ended for that. The basic policy starts with one pod. A PodGroup with a
priority gives it to its gang. Its labels and annotations go before those of composite groups above
it, these before its Workload's, these before what its pods and their owners say. Pods of one group
that name several schedulers are refused, as by kube-scheduler. The annotation
``kai.scheduler/ignore-workload-api`` on a pod turns this off for it.

Source: KEP-4671, scheduling.k8s.io v1alpha1 to v1beta1.
"""

from dataclasses import replace

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.document import Document
from kai_py.dialects.group_objects import Form, gang_of, source
from kai_py.dialects.native_trees import TreeAbove, line_above, tree_above
from kai_py.grouping.blueprint import Unusable
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.lineage import Lineage
from kai_py.grouping.owners import Owners
from kai_py.grouping.sources import Asked, Source
from kai_py.grouping.terms import Terms
from kai_py.snapshot.group_claims import GROUPS

WORKLOADS = "workloads"
WORKLOAD_FIELDS = (
    "spec.workloadRef.workloadName",
    "spec.podGroupTemplateRef.workload.workloadName",
)
"""Where a group names its Workload: from 1.37 on, in 1.36."""
FOR_EVER = -1.0
IGNORE_KEY = "kai.scheduler/ignore-workload-api"


def _group_name(lineage: Lineage) -> str:
    group = lineage.pod.spec.scheduling_group
    return group.pod_group_name if group is not None else ""


def _group_mark(lineage: Lineage) -> str:
    name = _group_name(lineage)
    if not name or lineage.pod.metadata.annotations.get(IGNORE_KEY) == "true":
        return ""
    return f'spec.schedulingGroup "{name}"'


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


_GROUP = Form(
    kind="PodGroup.scheduling.k8s.io",
    collection=GROUPS,
    mark=_group_mark,
    name=_group_name,
    tree=lambda _found, _lineage: Subgroup(min_members=1),
)
_WORKLOAD = Form(
    kind="Workload.scheduling.k8s.io",
    collection=WORKLOADS,
    mark=_workload_mark,
    name=_workload_name,
    tree=_workload_tree,
    part=_workload_part,
)


def _group_metas(lineage: Lineage, owners: Owners) -> tuple[ObjectMeta, ...]:
    namespace = lineage.pod.metadata.namespace
    group = owners.named(GROUPS, namespace, _group_name(lineage))
    if not isinstance(group, Document):
        return ()
    try:
        line = line_above(group, owners)
    except Unusable:
        line = (group,)
    named = (each.first_at(path) for each in line for path in WORKLOAD_FIELDS)
    name = next((str(each) for each in named if each), "")
    workload = owners.named(WORKLOADS, namespace, name) if name else None
    behind = (*line, workload) if isinstance(workload, Document) else line
    return tuple(each.metadata for each in behind)


def _group_gang(asked: Asked) -> GangSpec:
    spec = gang_of(_GROUP, asked)
    meta = asked.lineage.pod.metadata
    name = _group_name(asked.lineage)
    found = asked.owners.named(GROUPS, meta.namespace, name)
    if not isinstance(found, Document):
        return spec
    try:
        above = tree_above(found, asked.owners)
    except Unusable as error:
        return replace(spec, problem=f"{_GROUP.kind} {meta.namespace}/{name}: {error}")
    return _of_one_scheduler(_in_tree(spec, above, name), asked)


def _in_tree(spec: GangSpec, above: TreeAbove, name: str) -> GangSpec:
    root = above.root
    spec = replace(spec, tree=above.tree, terms=_terms(root))
    if not above.tree.children:
        return spec
    meta = root.metadata
    return replace(
        spec,
        key=f"{meta.namespace}/CompositePodGroup.scheduling.k8s.io/{meta.name}",
        owner=Owner(root.api_version, root.kind, meta.namespace, meta.name, meta.uid),
        leaf=name,
    )


def _terms(root: Document) -> Terms:
    priority = root.first_at("spec.priority")
    return Terms(
        priority=priority if isinstance(priority, int) else None,
        may_preempt=root.first_at("spec.preemptionPolicy") != "Never",
        staleness_grace=FOR_EVER,
    )


def _of_one_scheduler(spec: GangSpec, asked: Asked) -> GangSpec:
    """``spec``, refused if its pods name several schedulers: each would wait for the other's."""
    named = asked.owners.schedulers(asked.lineage.pod)
    if len(named) < 2 or spec.problem:
        return spec
    listed = ", ".join(f'"{each}"' for each in named)
    mark = _group_mark(asked.lineage) or _workload_mark(asked.lineage)
    hint = "all pods of a group must name the same scheduler in spec.schedulerName"
    return replace(spec, problem=f"pods with {mark} name the schedulers {listed}; {hint}")


def _workload_gang(asked: Asked) -> GangSpec:
    spec = replace(gang_of(_WORKLOAD, asked), terms=Terms(staleness_grace=FOR_EVER))
    return _of_one_scheduler(spec, asked)


NATIVE_GROUP = Source(mark=_group_mark, gang=_group_gang, metas=_group_metas)
NATIVE_WORKLOAD = replace(source(_WORKLOAD), gang=_workload_gang)
