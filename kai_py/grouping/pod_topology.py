"""Topology annotations of pods: what they add to a gang, and what they cannot add.

Pods carry the annotations of their template. Where a framework's object decides, its templates have
been read already, and the leaf of the pod has their constraints. In a gang of equal pods, without
subgroups, the template is that of all its pods: they are the leaf, also below a coarser constraint
of the gang. Nothing else that a pod, or an owner between it and the workload, is annotated with
constrains the gang; it is reported on the pod.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.kai import POD_GROUP_API_VERSION
from kai_py.grouping.gang import GangSpec, Subgroup, TopologyConstraint
from kai_py.grouping.group_sources import PodContext
from kai_py.grouping.owner_chain import Owners
from kai_py.grouping.segments import PODS, Segments, split_into_segments
from kai_py.grouping.topology_annotations import (
    INDEX_LABEL_KEY,
    SEGMENT_SIZE_KEYS,
    TOPOLOGY_KEY,
    constraint_of,
    first_key,
    is_annotated,
    segment_constraint_of,
)


def with_pod_topology(spec: GangSpec, context: PodContext) -> GangSpec:
    """``spec`` with the topology that the annotations of its pods and their group request."""
    if not any(_is_annotated(meta) for meta in context.chain.metadata_sources):
        return spec
    if spec.owner.api_version != POD_GROUP_API_VERSION:
        spec = _constrained(spec, context)
        if not spec.tree.children and not spec.has_roles:
            spec = _constrained_leaf(spec, context)
    ignored = tuple(_without_effect(spec, context))
    return replace(spec, ignored_markers=(*spec.ignored_markers, *ignored)) if ignored else spec


def _is_annotated(meta: ObjectMeta) -> bool:
    return is_annotated(meta.annotations) or is_annotated(meta.labels)


def _constrained(spec: GangSpec, context: PodContext) -> GangSpec:
    """``spec`` constrained by its group or else its top owner, where nothing constrains it yet."""
    chain = context.chain
    if spec.tree.topology is not None:
        return spec
    topology = chain.nearest(TOPOLOGY_KEY)
    top = () if _is_single_pod(spec) else chain.owners[-1:]
    for meta in (*chain.groups, *(each.found.metadata for each in top)):
        found = constraint_of(meta.annotations, topology, context.owners)
        if found is not None:
            return replace(spec, tree=replace(spec.tree, topology=found))
    return spec


def _is_single_pod(spec: GangSpec) -> bool:
    """Whether its owners' pods start one by one: what holds them together holds none of them."""
    return spec.owner.kind == "Pod" and spec.total_pods == 1


def _constrained_leaf(spec: GangSpec, context: PodContext) -> GangSpec:
    """``spec``, a gang of equal pods, with the constraint and the segments of their template."""
    annotations, tree = _nearest(context), spec.tree
    topology = str(annotations.get(TOPOLOGY_KEY) or "")
    below = constraint_of(context.chain.pod.metadata.annotations, topology, context.owners)
    if below is not None and tree.topology is None:
        tree = replace(tree, topology=below)
        spec = replace(spec, tree=tree)
    within = None if below == tree.topology else below
    size_key = first_key(annotations, SEGMENT_SIZE_KEYS)
    if size_key:
        return split_into_segments(
            spec,
            context.chain.pod,
            (size_key, str(annotations[size_key])),
            Segments(
                segment_constraint_of(annotations, topology, context.owners),
                within,
                str(annotations.get(INDEX_LABEL_KEY) or ""),
            ),
        )
    if within is None:
        return spec
    leaf = Subgroup(name=PODS, min_members=tree.min_members, topology=within)
    return replace(spec, tree=replace(tree, min_members=0, children=(leaf,)), subgroup=PODS)


def _nearest(context: PodContext) -> Mapping[str, Any]:
    merged: dict[str, Any] = {}
    for meta in reversed(context.chain.metadata_sources):
        merged.update(meta.labels)
        merged.update(meta.annotations)
    return merged


def _without_effect(spec: GangSpec, context: PodContext) -> Iterator[str]:
    """What pods and the owners between them and the workload request, and the leaf has not."""
    chain = context.chain
    owners = chain.owners if _is_single_pod(spec) else chain.owners[:-1]
    below = [chain.pod.metadata, *(each.found.metadata for each in owners)]
    requesting = [meta for meta in below if is_annotated(meta.annotations)]
    if not requesting or spec.problem:
        return
    effective = topology_constraints(spec)
    topology = chain.nearest(TOPOLOGY_KEY)
    for meta in requesting:
        if meta.uid == spec.owner.uid:
            continue
        for requested in _requests(meta, topology, context.owners):
            if not any(_covers(each, requested) for each in effective):
                level = requested.required_level or requested.preferred_level
                level = level or requested.fitting_level
                yield f'the topology level "{level}" in the annotations of {meta.name}'


def _requests(meta: ObjectMeta, topology: str, owners: Owners) -> Iterator[TopologyConstraint]:
    for read in (constraint_of, segment_constraint_of):
        requested = read(meta.annotations, topology, owners)
        if requested is not None:
            yield requested


def _covers(effective: TopologyConstraint, requested: TopologyConstraint) -> bool:
    """Whether a constraint contains all levels of another."""
    return (
        requested.required_level in ("", effective.required_level)
        and requested.preferred_level in ("", effective.preferred_level, effective.required_level)
        and requested.fitting_level in ("", effective.fitting_level, effective.required_level)
    )


def topology_constraints(spec: GangSpec) -> tuple[TopologyConstraint, ...]:
    """The constraints of the subgroups from the root to the leaf of the pod."""
    tree = spec.tree
    own = () if tree.topology is None else (tree.topology,)
    return own + _of_leaves(_Children(tree.children)).get(spec.subgroup, ())


class _Children:
    """Subgroups that are compared by identity: the same for all pods of a gang."""

    def __init__(self, subgroups: tuple[Subgroup, ...]) -> None:
        self.subgroups = subgroups

    def __hash__(self) -> int:
        return id(self.subgroups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Children) and self.subgroups is other.subgroups


@lru_cache(maxsize=256)
def _of_leaves(children: _Children) -> Mapping[str, tuple[TopologyConstraint, ...]]:
    """The constraints above each leaf, and its own. O(subgroups), once for all pods of a gang."""
    found: dict[str, tuple[TopologyConstraint, ...]] = {}
    waiting: list[tuple[Subgroup, tuple[TopologyConstraint, ...]]]
    waiting = [(each, ()) for each in children.subgroups]
    while waiting:
        subgroup, above = waiting.pop()
        path = above if subgroup.topology is None else (*above, subgroup.topology)
        if not subgroup.children:
            found[subgroup.name] = path
        waiting += [(each, path) for each in subgroup.children]
    return found
