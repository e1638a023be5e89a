"""Kubernetes' own groups, in the versions of 1.35, 1.36 and 1.37.

    1.35        pod.spec.workloadRef names a group inside a Workload; each replica key is a gang
    1.36, 1.37  pod.spec.schedulingGroup names a PodGroup; in 1.37 composite groups may be above it

The gang policy's ``minCount`` is minMember while pods are placed: a group that falls below it later
is not evicted as stale. The basic policy starts with one pod. The priority of a PodGroup applies to
its gang. Its labels and annotations take precedence over those of composite groups above it, these
over its Workload's, these over those of its pods and their owners. Pods of one group that name
several schedulers are rejected, as by kube-scheduler. The annotation
``kai.scheduler/ignore-workload-api`` on a pod or its topmost owner disables this for it.

A PodGroup may name a CompositePodGroup above it (``composite_groups``).

Source: KEP-4671, scheduling.k8s.io v1alpha1 to v1beta1.
"""

from msgspec.structs import replace

from kai_py.api.numbers import MAX_COUNT
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.unstructured import Unstructured
from kai_py.api.texts import first_of
from kai_py.dialects.group_reader import GroupReader, gang_from_group, group_source
from kai_py.dialects.native_group_tree import GroupTree, group_ancestors, group_tree
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.gang_settings import GangSettings
from kai_py.grouping.gang_template import InvalidWorkloadError
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain, Owners
from kai_py.snapshot.pod_claims import POD_GROUPS

WORKLOADS = "workloads"
WORKLOAD_FIELDS = (
    "spec.workloadRef.workloadName",
    "spec.podGroupTemplateRef.workload.workloadName",
)
"""The field in which a group names its Workload: from 1.37 on, and in 1.36."""
NEVER_STALE = -1.0
IGNORE_KEY = "kai.scheduler/ignore-workload-api"


def _group_name(chain: OwnerChain) -> str:
    group = chain.pod.spec.scheduling_group
    return group.pod_group_name if group is not None else ""


def _group_marker(chain: OwnerChain) -> str:
    return _marker("spec.schedulingGroup", _group_name(chain), chain)


def _marker(field: str, name: str, chain: OwnerChain) -> str:
    """What says that a pod belongs to the group ``name``; "" if that is to be ignored."""
    ends = (chain.pod.metadata, chain.metas[-1])
    is_ignored = any(meta.annotations.get(IGNORE_KEY) == "true" for meta in ends)
    return f'{field} "{name}"' if name and not is_ignored else ""


def _workload_name(chain: OwnerChain) -> str:
    reference = chain.pod.spec.workload_ref
    return reference.name if reference is not None else ""


def _workload_marker(chain: OwnerChain) -> str:
    return _marker("spec.workloadRef", _workload_name(chain), chain)


def _workload_gang_suffix(chain: OwnerChain) -> str:
    reference = chain.pod.spec.workload_ref
    if reference is None:
        return ""
    parts = (reference.pod_group, reference.pod_group_replica_key)
    return "/".join(part for part in parts if part)


def _workload_tree(found: Unstructured, chain: OwnerChain) -> Subgroup:
    reference = chain.pod.spec.workload_ref
    group_name = reference.pod_group if reference is not None else ""
    for group in entries(found.content, "spec.podGroups.*"):
        if group.get("name") == group_name:
            return Subgroup(min_members=count_at(group, "policy.gang.minCount", 1, least=1))
    raise InvalidWorkloadError(f'spec.podGroups has no group "{group_name}"')


_GROUP_READER = GroupReader(
    kind="PodGroup.scheduling.k8s.io",
    collection=POD_GROUPS,
    marker=_group_marker,
    name=_group_name,
    tree=lambda _found, _chain: Subgroup(min_members=1),
)
_WORKLOAD_READER = GroupReader(
    kind="Workload.scheduling.k8s.io",
    collection=WORKLOADS,
    marker=_workload_marker,
    name=_workload_name,
    tree=_workload_tree,
    gang_suffix=_workload_gang_suffix,
)


def _group_metadata(chain: OwnerChain, owners: Owners) -> tuple[ObjectMeta, ...]:
    namespace = chain.pod.metadata.namespace
    group = owners.named(POD_GROUPS, namespace, _group_name(chain))
    if not isinstance(group, Unstructured):
        return ()
    try:
        ancestors = group_ancestors(group, owners)
    except InvalidWorkloadError:
        ancestors = (group,)
    named = (each.first_at(path) for each in ancestors for path in WORKLOAD_FIELDS)
    name = next((str(each) for each in named if each), "")
    workload = owners.named(WORKLOADS, namespace, name) if name else None
    objects = (*ancestors, workload) if isinstance(workload, Unstructured) else ancestors
    return tuple(each.metadata for each in objects)


def _group_gang(context: PodContext) -> GangSpec:
    spec = gang_from_group(_GROUP_READER, context)
    meta = context.chain.pod.metadata
    name = _group_name(context.chain)
    found = context.owners.named(POD_GROUPS, meta.namespace, name)
    if not isinstance(found, Unstructured):
        return spec
    try:
        tree = group_tree(found, context.owners)
    except InvalidWorkloadError as error:
        return replace(spec, problem=f"{_GROUP_READER.kind} {meta.namespace}/{name}: {error}")
    return _require_one_scheduler(_in_group_tree(spec, tree, name), context)


def _in_group_tree(spec: GangSpec, above: GroupTree, name: str) -> GangSpec:
    root = above.root
    spec = replace(spec, tree=above.tree, settings=_gang_settings(root))
    if not above.tree.children:
        return spec
    meta = root.metadata
    return replace(
        spec,
        key=f"{meta.namespace}/CompositePodGroup.scheduling.k8s.io/{meta.name}",
        owner=Owner(root.api_version, root.kind, meta.namespace, meta.name, meta.uid),
        subgroup=name,
    )


def _gang_settings(root: Unstructured) -> GangSettings:
    priority = root.first_at("spec.priority")
    return GangSettings(
        priority=priority if isinstance(priority, int) and abs(priority) <= MAX_COUNT else None,
        may_preempt=root.first_at("spec.preemptionPolicy") != "Never",
        staleness_grace=NEVER_STALE,
        is_default_priority=not (priority or root.first_at("spec.priorityClassName")),
    )


def _require_one_scheduler(spec: GangSpec, context: PodContext) -> GangSpec:
    """``spec``; with a problem if its pods name several schedulers, which would deadlock."""
    named = context.owners.schedulers(context.chain.pod)
    if len(named) < 2 or spec.problem:
        return spec
    listed = first_of([f'"{each}"' for each in named])
    marker = _group_marker(context.chain) or _workload_marker(context.chain)
    hint = "all pods of a group must name the same scheduler in spec.schedulerName"
    return replace(spec, problem=f"pods with {marker} name the schedulers {listed}; {hint}")


def _workload_gang(context: PodContext) -> GangSpec:
    spec = replace(
        gang_from_group(_WORKLOAD_READER, context),
        settings=GangSettings(staleness_grace=NEVER_STALE),
    )
    return _require_one_scheduler(spec, context)


NATIVE_GROUP = GroupSource(
    marker=_group_marker, gang_spec=_group_gang, group_metadata=_group_metadata
)
NATIVE_WORKLOAD = replace(group_source(_WORKLOAD_READER), gang_spec=_workload_gang)
