"""Group objects of other schedulers: a pod names one, which says how many pods start together.

All are read in one way: the object is looked up by name in the pod's namespace; while it does not
exist its pods wait. The queue that it names, if any, takes precedence over that of the pod and its
owners. Its tree is computed once per version, not for each of its pods. The PodGroup of the
coscheduling plug-in (scheduling.x-k8s.io/v1alpha1), which a label names, has nothing beyond that.
"""

from collections.abc import Callable

from msgspec import Struct

from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.unstructured import Unstructured
from kai_py.dialects.kai.keys import QUEUE
from kai_py.dialects.kai.priority import existing_class, may_name, priority_of
from kai_py.grouping.counts import count_at
from kai_py.grouping.gang import GangSpec, Owner, Subgroup, pod_owner, tree_problem
from kai_py.grouping.gang_settings import GangSettings
from kai_py.grouping.gang_template import InvalidWorkloadError, annotation_or_label
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain, Owners


class _GroupTree(Struct, frozen=True):
    """The tree of a group, or what is wrong with it."""

    tree: Subgroup
    problem: str


class GroupReader(Struct, frozen=True):
    """The form in which one scheduler writes groups.

    ``marker`` and ``name``: what on the pod names a group, and the group's name. ``gang_suffix``
    splits a group into several gangs, ``subgroup`` is the pod's leaf in the tree. ``tree`` raises
    InvalidWorkloadError for an invalid object, and is the same for all pods with one suffix.
    """

    kind: str
    collection: str
    marker: Callable[[OwnerChain], str]
    name: Callable[[OwnerChain], str]
    tree: Callable[[Unstructured, OwnerChain], Subgroup]
    gang_suffix: Callable[[OwnerChain], str] = lambda _chain: ""
    subgroup: Callable[[OwnerChain, Subgroup], str] = lambda _chain, _tree: ""
    queue: str = ""
    """Path of the field that names the group's queue, empty if it has none."""
    priority_class: str = ""
    """Path of the field that names the group's PriorityClass, empty if it has none."""
    unread: tuple[str, ...] = ()
    """Paths of fields that would change the gang and that are not read."""


def group_source(reader: GroupReader) -> GroupSource:
    """The source for groups that ``reader`` reads."""
    return GroupSource(
        marker=reader.marker,
        gang_spec=lambda context: gang_from_group(reader, context),
        group_metadata=lambda chain, owners: _group_metadata(reader, chain, owners),
    )


def gang_from_group(reader: GroupReader, context: PodContext) -> GangSpec:
    """The gang of the pod in question, from the object that it names."""
    chain = context.chain
    namespace, name = chain.pod.metadata.namespace, reader.name(chain)
    found = context.owners.named(reader.collection, namespace, name)
    key = f"{namespace}/{reader.kind}/{name}"
    if not isinstance(found, Unstructured):
        return GangSpec(
            key=key,
            owner=pod_owner(chain.pod.metadata),
            queue=context.queue.name,
            tree=Subgroup(min_members=1),
            problem=f"{reader.kind} {namespace}/{name}, named by {reader.marker(chain)}, "
            "does not exist (yet)",
        )
    gang_suffix = reader.gang_suffix(chain)
    kept = context.owners.kept((reader.collection, namespace, name))
    if gang_suffix not in kept:
        kept[gang_suffix] = _group_tree(reader, found, chain)
    made: _GroupTree = kept[gang_suffix]
    tree, meta = made.tree, found.metadata
    return GangSpec(
        key=f"{key}/{gang_suffix}" if gang_suffix else key,
        owner=Owner(found.api_version, found.kind, namespace, name, meta.uid),
        queue=_queue(reader, found, meta) or context.queue.name,
        tree=tree,
        subgroup=reader.subgroup(chain, tree),
        problem=f"{reader.kind} {namespace}/{name}: {made.problem}" if made.problem else "",
        settings=_settings(reader, found, context),
        ignored_markers=tuple(
            f"{path} of {reader.kind} {name}" for path in reader.unread if found.first_at(path)
        ),
    )


def _group_tree(reader: GroupReader, found: Unstructured, chain: OwnerChain) -> _GroupTree:
    try:
        tree = reader.tree(found, chain)
        problem = tree_problem(tree)
    except InvalidWorkloadError as error:
        problem = str(error)
    return _GroupTree(Subgroup(min_members=1), problem) if problem else _GroupTree(tree, "")


def _settings(reader: GroupReader, found: Unstructured, context: PodContext) -> GangSettings:
    """The priority of the class that the group names; of one that does not exist, the pods'."""
    named = str(found.first_at(reader.priority_class) or "") if reader.priority_class else ""
    pod, owners = context.chain.pod, context.owners
    if not existing_class((named,), owners) or not may_name(named, pod.metadata.namespace, owners):
        return GangSettings()
    return GangSettings(priority=priority_of(named, owners))


def _group_metadata(
    reader: GroupReader, chain: OwnerChain, owners: Owners
) -> tuple[ObjectMeta, ...]:
    found = owners.named(reader.collection, chain.pod.metadata.namespace, reader.name(chain))
    return (found.metadata,) if isinstance(found, Unstructured) else ()


def min_member_tree(found: Unstructured, _chain: OwnerChain) -> Subgroup:
    """A gang of any ``spec.minMember`` pods."""
    return Subgroup(min_members=count_at(found.content, "spec.minMember", 1))


def _queue(reader: GroupReader, found: Unstructured, meta: ObjectMeta) -> str:
    annotated = annotation_or_label(meta, QUEUE_NAME_KEY) or annotation_or_label(meta, QUEUE)
    return annotated or (str(found.first_at(reader.queue) or "") if reader.queue else "")


GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


def _name(chain: OwnerChain) -> str:
    return chain.pod.metadata.labels.get(GROUP_LABEL, "")


def _marker(chain: OwnerChain) -> str:
    name = _name(chain)
    return f'label {GROUP_LABEL} "{name}"' if name else ""


COSCHEDULING = group_source(
    GroupReader(
        kind="PodGroup.scheduling.x-k8s.io",
        collection="podgroups.scheduling.x-k8s.io",
        marker=_marker,
        name=_name,
        tree=min_member_tree,
    )
)
