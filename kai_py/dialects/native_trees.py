"""The tree of Kubernetes groups that a PodGroup belongs to.

A PodGroup may name a CompositePodGroup above it, which may name another. The topmost is the gang;
``gang.minGroupCount`` of the groups below one must start together, with the basic policy any one.
Groups that are required and don't exist yet are leaves that wait for a pod. A topology constraint
is a node label key, always required. With the disruption mode ``all`` (``PodGroup`` in 1.36) a
group is evicted as a whole.

Source: KEP-4671, scheduling.k8s.io v1alpha2 to v1beta1; composite groups from v1alpha3 on.
"""

from dataclasses import dataclass

from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import MAX_SUBGROUPS, Subgroup, TopologyConstraint
from kai_py.grouping.gang_template import InvalidWorkloadError
from kai_py.grouping.owner_chain import Owners
from kai_py.snapshot.tables.claims import POD_GROUPS

COMPOSITE_GROUPS = "compositepodgroups"
PARENT_FIELD = "spec.parentCompositePodGroupName"
MAX_DEPTH = 10


@dataclass(frozen=True, slots=True)
class GroupTree:
    """The topmost object above a PodGroup (itself, if there is none), and the tree below that."""

    root: Unstructured
    tree: Subgroup


def group_tree(group: Unstructured, owners: Owners) -> GroupTree:
    """The tree of ``group``; raises InvalidWorkloadError for a loop or a missing part.

    Cost: one look-up per group of the tree.
    """
    root = group_ancestors(group, owners)[-1]
    tree = _leaf(root, "") if root is group else _composite(root, "", owners, MAX_DEPTH)
    return GroupTree(root, tree)


def group_ancestors(group: Unstructured, owners: Owners) -> tuple[Unstructured, ...]:
    """``group`` and the composite groups above it; raises as ``group_tree`` does."""
    ancestors = [group]
    while name := ancestors[-1].first_at(PARENT_FIELD):
        found = owners.named(COMPOSITE_GROUPS, group.metadata.namespace, str(name))
        if not isinstance(found, Unstructured):
            raise InvalidWorkloadError(
                f'{PARENT_FIELD}: CompositePodGroup "{name}" does not exist (yet)'
            )
        ancestors.append(found)
        if len(ancestors) > MAX_DEPTH:
            raise InvalidWorkloadError(
                f"{PARENT_FIELD}: the composite groups above it form a cycle"
            )
    return tuple(ancestors)


def _leaf(group: Unstructured, name: str) -> Subgroup:
    return Subgroup(
        name=name,
        min_members=count_at(group.content, "spec.schedulingPolicy.gang.minCount", 1),
        topology=_constraint(group),
        evicted_together=_evicted_together(group),
    )


def _composite(group: Unstructured, name: str, owners: Owners, depth: int) -> Subgroup:
    if depth == 0:
        raise InvalidWorkloadError(
            f"{PARENT_FIELD}: the composite groups below {group.metadata.name} form a cycle"
        )
    meta = group.metadata
    children = [
        _composite(each, each.metadata.name, owners, depth - 1)
        for each in owners.child_groups(COMPOSITE_GROUPS, meta.namespace, meta.name)
    ]
    children += [
        _leaf(each, each.metadata.name)
        for each in owners.child_groups(POD_GROUPS, meta.namespace, meta.name)
    ]
    needed = count_at(group.content, "spec.schedulingPolicy.gang.minGroupCount", 1)
    if needed > MAX_SUBGROUPS:
        field = "spec.schedulingPolicy.gang.minGroupCount"
        raise InvalidWorkloadError(f"{field} must be at most {MAX_SUBGROUPS}, is {needed}")
    missing = range(len(children), max(needed, 1))
    children += [Subgroup(name=f"{meta.name}/{n}", min_members=1) for n in missing]
    return Subgroup(
        name=name,
        min_subgroups=needed,
        children=tuple(children),
        topology=_constraint(group),
        evicted_together=_evicted_together(group),
    )


def _constraint(group: Unstructured) -> TopologyConstraint | None:
    constraints = entries(group.content, "spec.schedulingConstraints.topology.*")
    keys = [str(each.get("key") or each.get("level") or "") for each in constraints]
    return TopologyConstraint(required_level=keys[0]) if keys else None


def _evicted_together(group: Unstructured) -> bool:
    mode = group.first_at("spec.disruptionMode")
    return "all" in mode if isinstance(mode, dict) else mode == "PodGroup"
