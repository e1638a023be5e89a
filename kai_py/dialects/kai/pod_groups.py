"""KAI PodGroups: the gang of the pods that name one, with the tree of its subgroups.

A pod names its PodGroup in the annotation ``pod-group-name`` and its leaf in the label
``kai.scheduler/subgroup-name``. The gang is the PodGroup of the pod's namespace: groups of one name
in two namespaces are two gangs. While a PodGroup does not exist its pods wait; an unknown leaf only
affects the pod that names it.

Order inside a gang: Kubeflow's master or launcher, Ray's head, then ``kai.scheduler/task-priority``
in descending order, then pods without it.

Source: KAI-Scheduler, docs/developer/designs/external-podgroups, hierarchical-podgroup.
"""

from collections.abc import Mapping

from kai_py.api.numbers import parse_int64
from kai_py.api.records.core import Pod
from kai_py.api.records.kai import POD_GROUP_API_VERSION, KaiPodGroup
from kai_py.api.texts import first_of
from kai_py.dialects.kai import keys
from kai_py.dialects.kai.group_trees import POD_GROUP_COLLECTION, group_tree
from kai_py.dialects.kai.keys import first_duration, parse_time
from kai_py.dialects.kai.priority import is_preemptible, named_priority
from kai_py.grouping.gang import GangSpec, Owner, Subgroup, pod_owner
from kai_py.grouping.gang_settings import GangSettings, Preemptibility, Wording
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain, Owners

KIND = "PodGroup.scheduling.run.ai"
DEFAULT_SUBGROUP = "default"
LEADER_ORDER, HEAD_ORDER, UNLABELLED_ORDER = -(1 << 50), -(1 << 49), 1 << 48


def _marker(chain: OwnerChain) -> str:
    name = chain.pod.metadata.annotations.get(keys.POD_GROUP, "")
    return f'annotation {keys.POD_GROUP} "{name}"' if name else ""


def _gang(context: PodContext) -> GangSpec:
    pod, queue = context.chain.pod, context.queue.name
    namespace, name = pod.metadata.namespace, pod.metadata.annotations[keys.POD_GROUP]
    found = context.owners.named(POD_GROUP_COLLECTION, namespace, name)
    if isinstance(found, KaiPodGroup):
        return gang_from_pod_group(found, pod, context.owners, queue=queue)
    return GangSpec(
        key=f"{namespace}/{KIND}/{name}",
        owner=pod_owner(pod.metadata),
        queue=queue,
        tree=Subgroup(min_members=1),
        problem=f"PodGroup {namespace}/{name} does not exist (yet)",
    )


POD_GROUP = GroupSource(marker=_marker, gang_spec=_gang)


def in_existing_group(spec: GangSpec, context: PodContext) -> GangSpec:
    """The gang of the PodGroup that KAI created for the owner of ``spec``, else ``spec``.

    Pods created after KAI's grouper has stopped name no PodGroup; those created before do.
    """
    owner, pod = spec.owner, context.chain.pod
    found = context.owners.named(POD_GROUP_COLLECTION, owner.namespace, _kai_group_name(spec))
    if not isinstance(found, KaiPodGroup):
        return spec
    return gang_from_pod_group(found, pod, context.owners, queue=spec.queue, subgroup=spec.subgroup)


def _kai_group_name(spec: GangSpec) -> str:
    """KAI's name for a gang; groups of a LeaderWorkerSet have their index appended."""
    owner = spec.owner
    name = f"pg-{owner.name}-{owner.uid}"
    if owner.kind != "LeaderWorkerSet":
        return name
    return f"{name}-group-{spec.key.rpartition('/')[2]}"


def gang_from_pod_group(
    group: KaiPodGroup, pod: Pod, owners: Owners, *, queue: str, subgroup: str = ""
) -> GangSpec:
    """The gang of ``group`` as ``pod`` belongs to it.

    ``queue`` applies if the group names none, ``subgroup`` if the pod names none.
    """
    meta, spec = group.metadata, group.spec
    known = group_tree(group, owners)
    tree = known.tree
    settings, problems = _gang_settings(group, pod, owners)
    subgroup_name = pod.metadata.labels.get(keys.SUBGROUP, "") or (
        subgroup if tree.children else ""
    )
    subgroup = "" if subgroup_name == DEFAULT_SUBGROUP and not tree.children else subgroup_name
    problem = "; ".join((*known.problems, *problems))
    return GangSpec(
        key=f"{meta.namespace}/{KIND}/{meta.name}",
        owner=Owner(POD_GROUP_API_VERSION, "PodGroup", meta.namespace, meta.name, meta.uid),
        queue=spec.queue or meta.labels.get(keys.QUEUE, "") or queue,
        tree=tree,
        subgroup=subgroup,
        order=order_of(pod.metadata.labels),
        preemptible=is_preemptible(spec.preemptibility, settings.priority or 0),
        semi_preemptible=spec.preemptibility == Preemptibility.SEMI_PREEMPTIBLE,
        problem=f"PodGroup {meta.namespace}/{meta.name}: {problem}" if problem else "",
        pod_problem=_subgroup_problem(meta.name, subgroup, known.leaves),
        settings=settings,
        rule=f"PodGroup {meta.name} of KAI's grouper",
    )


def order_of(labels: Mapping[str, str], rank: int = 0) -> int:
    """The order of a pod in its gang, the lowest placed first; ``rank`` if no label sets it."""
    if labels.get(keys.KUBEFLOW_ROLE) in ("master", "launcher"):
        return LEADER_ORDER
    if labels.get(keys.RAY_NODE_TYPE) == "head":
        return HEAD_ORDER
    priority = parse_int64(labels.get(keys.TASK_PRIORITY, ""))
    return UNLABELLED_ORDER + rank if priority is None else -priority


def _subgroup_problem(group: str, subgroup: str, leaves: Mapping[str, Subgroup]) -> str:
    if subgroup in leaves:
        return ""
    if list(leaves) == [""]:
        return f'label {keys.SUBGROUP} names "{subgroup}", but PodGroup {group} has no subGroups'
    listed = f"a leaf of PodGroup {group} ({first_of([*leaves])})"
    if not subgroup:
        return f"label {keys.SUBGROUP} is missing; it must name {listed}"
    return f'label {keys.SUBGROUP} names "{subgroup}", which is not {listed}'


def _gang_settings(group: KaiPodGroup, pod: Pod, owners: Owners) -> tuple[GangSettings, list[str]]:
    meta, spec = group.metadata, group.spec
    grace, bad_grace = first_duration(
        ("spec.stalenessGracePeriod", spec.staleness_grace_period),
        (keys.STALENESS_GRACE, meta.annotations.get(keys.STALENESS_GRACE)),
    )
    delay, bad_delay = first_duration(
        ("spec.preemptionDelay", spec.preemption_delay),
        (keys.PREEMPTION_DELAY, meta.annotations.get(keys.PREEMPTION_DELAY)),
    )
    created = meta.creation_timestamp
    settings = GangSettings(
        priority=named_priority(spec.priority_class_name, pod, owners),
        created=created.timestamp() if created else None,
        staleness_grace=grace,
        stale_since=parse_time(meta.annotations.get(keys.STALE_SINCE, "")),
        preemption_delay=delay or 0.0,
        last_evicted=parse_time(meta.annotations.get(keys.LAST_EVICTION, "")),
        attempts_exhausted=spec.scheduling_backoff == 1 and _was_attempted(group),
        mark_unschedulable=spec.mark_unschedulable is not False,
        wording=Wording.KAI,
    )
    return settings, [problem for problem in (bad_grace, bad_delay) if problem]


def _was_attempted(group: KaiPodGroup) -> bool:
    pool = group.metadata.labels.get(keys.NODE_POOL) or keys.DEFAULT_POOL
    return any(each.node_pool == pool for each in group.status.scheduling_conditions)
