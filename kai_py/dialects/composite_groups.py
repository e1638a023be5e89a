"""The tree of a native PodGroup and of the CompositePodGroups above it.

A PodGroup may name a CompositePodGroup, which may name another. The topmost is the gang;
``gang.minGroupCount`` of the groups below one must start together, with the basic policy any one.
Groups that are required and don't exist yet are leaves that wait for a pod. A topology constraint
is a node label key, always required. With the disruption mode ``all`` (``PodGroup`` in 1.36) a
group is evicted as a whole.

The tree is the same for all pods of a gang. What is below a composite group is read again only if
one of these groups has changed.

Source: KEP-4671, scheduling.k8s.io v1alpha3 and later.
"""

import operator
from collections.abc import Sequence

from msgspec import Struct

from kai_py.api.bounded import remember
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import (
    MAX_SUBGROUPS,
    TOO_MANY_SUBGROUPS,
    Subgroup,
    TopologyConstraint,
)
from kai_py.grouping.gang_template import InvalidWorkloadError
from kai_py.grouping.owner_chain import Owners
from kai_py.snapshot.object_cache import PARENT_FIELD
from kai_py.snapshot.pod_claims import POD_GROUPS

COMPOSITE_GROUPS = "compositepodgroups"
MAX_DEPTH = 10


class GroupTree(Struct, frozen=True):
    """The topmost object above a PodGroup (itself, if there is none), and the tree below that."""

    root: Unstructured
    tree: Subgroup


def group_tree(group: Unstructured, owners: Owners) -> GroupTree:
    """The tree of ``group``; raises InvalidWorkloadError for a loop or a missing part.

    Cost: two look-ups per composite group of the tree.
    """
    root = group_ancestors(group, owners)[-1]
    tree = _leaf(root, "") if root is group else _composite(root, "", owners, MAX_DEPTH).tree
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


class _Composite(Struct, frozen=True):
    """The tree of a composite group, of ``size`` subgroups, and all that it was made from.

    ``groups``: the PodGroups directly below it; ``below``: the trees of its composite groups.
    ``problem``: what is wrong with it; then there is no tree.
    """

    group: Unstructured
    groups: tuple[Unstructured, ...]
    below: tuple["_Composite", ...]
    tree: Subgroup
    size: int = 0
    problem: str = ""


_KNOWN: dict[tuple[str, str, str], _Composite] = {}
"""Trees by namespace, name and the name in the tree; each is used only if nothing has changed."""
MAX_KNOWN = 4096
"""Composite groups of which the tree is kept."""


def _composite(group: Unstructured, name: str, owners: Owners, depth: int) -> _Composite:
    if depth == 0:
        raise InvalidWorkloadError(
            f"{PARENT_FIELD}: the composite groups below {group.metadata.name} form a cycle"
        )
    meta, size = group.metadata, 1
    below: list[_Composite] = []
    for each in owners.child_groups(COMPOSITE_GROUPS, meta.namespace, meta.name):
        below.append(_composite(each, each.metadata.name, owners, depth - 1))
        size = _counted(size + below[-1].size, group)
    groups = owners.child_groups(POD_GROUPS, meta.namespace, meta.name)
    key = meta.namespace, meta.name, name
    known = _KNOWN.get(key)
    if known is None or not _is_made_from(known, group, groups, below):
        try:
            tree, size = _tree(group, name, groups, below, size)
            known = _Composite(group, groups, tuple(below), tree, size)
        except InvalidWorkloadError as error:
            known = _Composite(group, groups, tuple(below), Subgroup(), problem=str(error))
        remember(_KNOWN, key, known, MAX_KNOWN)
    if known.problem:
        raise InvalidWorkloadError(known.problem)
    return known


def _is_made_from(
    known: _Composite,
    group: Unstructured,
    groups: tuple[Unstructured, ...],
    below: Sequence[_Composite],
) -> bool:
    return (
        known.group is group
        and known.groups is groups
        and len(known.below) == len(below)
        and all(map(operator.is_, known.below, below))
    )


def _tree(
    group: Unstructured,
    name: str,
    groups: Sequence[Unstructured],
    below: Sequence[_Composite],
    size: int,
) -> tuple[Subgroup, int]:
    """The tree and its size; ``size``: that of itself and of the composite groups below it."""
    _counted(size + len(groups), group)
    children = [each.tree for each in below]
    children += [_leaf(each, each.metadata.name) for each in groups]
    needed = count_at(group.content, "spec.schedulingPolicy.gang.minGroupCount", 1, least=1)
    if needed > MAX_SUBGROUPS:
        field = "spec.schedulingPolicy.gang.minGroupCount"
        raise InvalidWorkloadError(f"{field} must be at most {MAX_SUBGROUPS}, is {needed}")
    missing = range(len(children), max(needed, 1))
    size = _counted(size + len(groups) + len(missing), group)
    children += [Subgroup(name=f"{group.metadata.name}/{n}", min_members=1) for n in missing]
    tree = Subgroup(
        name=name,
        min_subgroups=needed,
        children=tuple(children),
        topology=_constraint(group),
        evicted_together=_evicted_together(group),
    )
    return tree, size


def _counted(size: int, group: Unstructured) -> int:
    """``size`` subgroups, if a gang may have as many; they are counted before they are made."""
    if size > MAX_SUBGROUPS:
        above = f"CompositePodGroup {group.metadata.name}"
        raise InvalidWorkloadError(
            f"{TOO_MANY_SUBGROUPS.format(MAX_SUBGROUPS)}; {above} has more groups below it, or "
            "requires more by minGroupCount"
        )
    return size


def _leaf(group: Unstructured, name: str) -> Subgroup:
    return Subgroup(
        name=name,
        min_members=count_at(group.content, "spec.schedulingPolicy.gang.minCount", 1, least=1),
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
