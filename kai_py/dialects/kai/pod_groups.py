"""KAI PodGroups: the gang of the pods that name one, with the tree of its subgroups.

A pod names its PodGroup in the annotation ``pod-group-name`` and its leaf in the label
``kai.scheduler/subgroup-name``. The gang is the PodGroup of the pod's namespace: groups of one name
in two namespaces are two gangs. While a PodGroup does not exist its pods wait; an unknown leaf only
affects the pod that names it.

The tree is built from a flat list of subgroups. An entry without children is a leaf with its
``minMember``, 1 where unset. An entry with children, and the root, requires ``minSubGroup`` of
them, all where unset. Without subgroups the root is the only leaf. Of siblings those with a minimum
come first, then by name. In a topology constraint an alias of a level becomes its node label.

Order inside a gang: Kubeflow's master or launcher, Ray's head, then ``kai.scheduler/task-priority``
in descending order, then pods without it.

Source: KAI-Scheduler, docs/developer/designs/external-podgroups, hierarchical-podgroup.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from kai_py.api.groups import grouped
from kai_py.api.numbers import parse_int64, quoted, shortened
from kai_py.api.records.core import Pod
from kai_py.api.records.kai import (
    POD_GROUP_API_VERSION,
    KaiPodGroup,
    KaiPodGroupSpec,
    KaiSubGroup,
    KaiTopologyConstraint,
)
from kai_py.api.texts import first_of
from kai_py.dialects.kai import keys
from kai_py.dialects.kai.keys import first_duration, parse_time
from kai_py.dialects.kai.priority import is_preemptible, named_priority
from kai_py.grouping.gang import (
    MAX_TREE_DEPTH,
    GangSpec,
    Owner,
    Subgroup,
    TopologyConstraint,
    pod_owner,
)
from kai_py.grouping.gang_settings import GangSettings, Preemptibility, Wording
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain, Owners
from kai_py.grouping.topology_annotations import with_labels

POD_GROUP_COLLECTION = "podgroups.scheduling.run.ai"
KIND = "PodGroup.scheduling.run.ai"
DEFAULT_SUBGROUP = "default"
LEADER_ORDER, HEAD_ORDER, UNLABELLED_ORDER = -(1 << 50), -(1 << 49), 1 << 48
MAX_ENTRIES = 1000
"""Most entries of a PodGroup; the tree is built for each of its pods."""
ConstraintReader = Callable[[KaiTopologyConstraint | None], TopologyConstraint | None]


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
    tree = tree_of(spec, lambda written: constraint_of(written, owners))
    settings, problems = _gang_settings(group, pod, owners)
    subgroup_name = pod.metadata.labels.get(keys.SUBGROUP, "") or (
        subgroup if tree.children else ""
    )
    subgroup = "" if subgroup_name == DEFAULT_SUBGROUP and not tree.children else subgroup_name
    problem = "; ".join((*problems_of(spec), *problems))
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
        pod_problem=_subgroup_problem(meta.name, subgroup, tree),
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


def _subgroup_problem(group: str, subgroup: str, tree: Subgroup) -> str:
    leaves = [each.name for each in tree.leaves()]
    if subgroup in leaves:
        return ""
    if leaves == [""]:
        return f'label {keys.SUBGROUP} names "{subgroup}", but PodGroup {group} has no subGroups'
    listed = f"a leaf of PodGroup {group} ({first_of(leaves)})"
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


def tree_of(spec: KaiPodGroupSpec, read_constraint: ConstraintReader) -> Subgroup:
    """The gang's tree without the entries that ``problems_of`` reports."""
    children = _reachable(spec)
    return Subgroup(
        min_members=_min_members(spec.min_member),
        min_subgroups=spec.min_sub_group if children.get("") else None,
        children=_build_children(children, "", read_constraint),
        topology=read_constraint(spec.topology_constraint),
    )


def problems_of(spec: KaiPodGroupSpec) -> Iterator[str]:
    """The problems of the list, as sentences that name the field."""
    yield from tree_problems_of(spec)
    yield from min_sub_group_problems(spec)


def tree_problems_of(spec: KaiPodGroupSpec) -> Iterator[str]:
    """Problems of entries that have no place in the tree, or whose minimum is not clear."""
    count = len(spec.sub_groups)
    if count > MAX_ENTRIES:
        yield f"spec.subGroups has {count} entries, the maximum is {MAX_ENTRIES}"
        return
    names = Counter(entry.name for entry in spec.sub_groups)
    for name, uses in names.items():
        if uses > 1:
            yield f"spec.subGroups: the name {quoted(name)} is used more than once"
    if "" in names:
        yield "spec.subGroups: an entry has no name"
    yield from _minimum_problems("spec", spec)
    for entry in spec.sub_groups:
        yield from _minimum_problems(_location(entry), entry)
    reached = {entry.name for entries in _reachable(spec).values() for entry in entries}
    for entry in spec.sub_groups:
        parent = entry.parent or ""
        if parent and parent not in names:
            yield f"{_location(entry)}.parent: there is no subgroup {quoted(parent)}"
        elif entry.name and entry.name not in reached:
            hint = f"it is its own ancestor, or nested more than {MAX_TREE_DEPTH} deep"
            yield f"{_location(entry)}.parent: {hint}"


def _location(entry: KaiSubGroup) -> str:
    return f"spec.subGroups[{shortened(entry.name)}]"


def _minimum_problems(location: str, entry: KaiPodGroupSpec | KaiSubGroup) -> Iterator[str]:
    """Problems of an entry with both minimums, which KAI's webhook refuses, or one below 0."""
    for name, minimum in (("minMember", entry.min_member), ("minSubGroup", entry.min_sub_group)):
        if minimum is not None and minimum < 0:
            yield f"{location}.{name} is {minimum}, which is below 0"
    if entry.min_member is not None and entry.min_sub_group is not None:
        yield f"{location}.minMember and {location}.minSubGroup are both set: set one of them"


def min_sub_group_problems(spec: KaiPodGroupSpec) -> Iterator[str]:
    """Problems of minimums above the number of subgroups that they count."""
    children = _children(spec)
    if spec.sub_groups:
        yield from _min_sub_group_problem("spec", spec.min_sub_group, len(children.get("", ())))
    for entry in spec.sub_groups:
        count = len(children.get(entry.name, ()))
        yield from _min_sub_group_problem(_location(entry), entry.min_sub_group, count)


def _min_sub_group_problem(location: str, required: int | None, children: int) -> Iterator[str]:
    if required is not None and required > children:
        yield f"{location}.minSubGroup is {required}, but there are only {children} subgroups below"


def _children(spec: KaiPodGroupSpec) -> Mapping[str, list[KaiSubGroup]]:
    return grouped(spec.sub_groups, lambda entry: entry.parent or "")


def _reachable(spec: KaiPodGroupSpec) -> Mapping[str, list[KaiSubGroup]]:
    """The children, by name, of the root and of every entry that a walk from the root reaches.

    Of entries of one name the first counts. The walk ends ``MAX_TREE_DEPTH`` below the root.
    """
    if len(spec.sub_groups) > MAX_ENTRIES:
        return {}
    unique = {entry.name: entry for entry in reversed(spec.sub_groups) if entry.name}
    first = (entry for entry in spec.sub_groups if unique.get(entry.name) is entry)
    children = grouped(first, lambda entry: entry.parent or "")
    reached: dict[str, list[KaiSubGroup]] = {}
    level = [""]
    for _ in range(MAX_TREE_DEPTH):
        reached.update({name: children[name] for name in level if name in children})
        level = [entry.name for name in level for entry in children.get(name, ())]
    return reached


def _build_children(
    children: Mapping[str, list[KaiSubGroup]], name: str, read_constraint: ConstraintReader
) -> tuple[Subgroup, ...]:
    built = [_subgroup(entry, children, read_constraint) for entry in children.get(name, ())]
    return tuple(sorted(built, key=lambda group: (group.min_pods() == 0, group.name)))


def _subgroup(
    entry: KaiSubGroup, children: Mapping[str, list[KaiSubGroup]], read_constraint: ConstraintReader
) -> Subgroup:
    below = _build_children(children, entry.name, read_constraint)
    return Subgroup(
        name=entry.name,
        min_members=0 if below else _min_members(entry.min_member),
        min_subgroups=entry.min_sub_group if below else None,
        children=below,
        topology=read_constraint(entry.topology_constraint),
    )


def _min_members(min_member: int | None) -> int:
    return 1 if min_member is None else min_member


def constraint_of(
    written: KaiTopologyConstraint | None, owners: Owners
) -> TopologyConstraint | None:
    """The constraint, with labels for aliases; None where nothing is constrained."""
    if written is None:
        return None
    required, preferred = written.required_topology_level, written.preferred_topology_level
    if not required and not preferred:
        return None
    return with_labels(TopologyConstraint(written.topology, required, preferred), owners)
