"""Group objects of other schedulers: a pod names one, and it says how many pods start together.

All are read alike: the object is looked up by name in the pod's namespace; while it is not there
its pods wait. Its queue, where it names one, goes before what the pod and its owners say.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.unstructured import Unstructured
from kai_py.dialects.kai.keys import QUEUE
from kai_py.grouping.counts import count_at
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.gang_template import InvalidWorkloadError
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.metadata import annotation_or_label
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.grouping.owners import Owners
from kai_py.grouping.pod_group_annotation import pod_owner


@dataclass(frozen=True, slots=True)
class GroupReader:
    """How one scheduler writes groups.

    ``mark`` and ``name``: what on the pod names a group, and the group's name. ``part`` splits a
    group into several gangs, ``leaf`` names the pod's leaf in the tree. ``tree`` raises Unusable
    for an object that makes no sense.
    """

    kind: str
    collection: str
    marker: Callable[[OwnerChain], str]
    name: Callable[[OwnerChain], str]
    tree: Callable[[Unstructured, OwnerChain], Subgroup]
    gang_suffix: Callable[[OwnerChain], str] = lambda _lineage: ""
    subgroup: Callable[[OwnerChain, Subgroup], str] = lambda _lineage, _tree: ""
    queue: str = ""
    """Path of the field that names its queue, empty if it has none."""


def group_source(reader: GroupReader) -> GroupSource:
    """The source for groups of ``form``."""
    return GroupSource(
        marker=reader.marker,
        gang_spec=lambda asked: gang_from_group(reader, asked),
        group_metadata=lambda lineage, owners: _group_metadata(reader, lineage, owners),
    )


def gang_from_group(reader: GroupReader, context: PodContext) -> GangSpec:
    """The gang of the pod in question, as the object that it names says."""
    lineage = context.chain
    namespace, name = lineage.pod.metadata.namespace, reader.name(lineage)
    found = context.owners.named(reader.collection, namespace, name)
    key = f"{namespace}/{reader.kind}/{name}"
    if not isinstance(found, Unstructured):
        return GangSpec(
            key=key,
            owner=pod_owner(lineage),
            queue=context.queue.name,
            tree=Subgroup(min_members=1),
            problem=f"{reader.kind} {namespace}/{name}, named by {reader.marker(lineage)}, "
            "does not exist (yet)",
        )
    part = reader.gang_suffix(lineage)
    tree, problem = Subgroup(min_members=1), ""
    try:
        tree = reader.tree(found, lineage)
    except InvalidWorkloadError as error:
        problem = f"{reader.kind} {namespace}/{name}: {error}"
    meta = found.metadata
    return GangSpec(
        key=f"{key}/{part}" if part else key,
        owner=Owner(found.api_version, found.kind, namespace, name, meta.uid),
        queue=_queue(reader, found, meta) or context.queue.name,
        tree=tree,
        subgroup=reader.subgroup(lineage, tree),
        problem=problem,
    )


def _group_metadata(
    reader: GroupReader, chain: OwnerChain, owners: Owners
) -> tuple[ObjectMeta, ...]:
    found = owners.named(reader.collection, chain.pod.metadata.namespace, reader.name(chain))
    return (found.metadata,) if isinstance(found, Unstructured) else ()


def min_member_tree(found: Unstructured, _chain: OwnerChain) -> Subgroup:
    """A gang of ``spec.minMember`` pods, whichever."""
    return Subgroup(min_members=count_at(found.content, "spec.minMember", 1))


def _queue(reader: GroupReader, found: Unstructured, meta: ObjectMeta) -> str:
    said = annotation_or_label(meta, QUEUE_NAME_KEY) or annotation_or_label(meta, QUEUE)
    return said or (str(found.first_at(reader.queue) or "") if reader.queue else "")
