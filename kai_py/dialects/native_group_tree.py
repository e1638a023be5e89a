"""The tree of a native PodGroup and of the CompositePodGroups above it.

A PodGroup may name a CompositePodGroup, which may name another. The topmost is the gang;
``gang.minGroupCount`` of the groups below one must start together, with the basic policy any one.
Groups that are required and don't exist yet are leaves that wait for a pod. A topology constraint
is a node label key, always required. With the disruption mode ``all`` (``PodGroup`` in 1.36) a
group is evicted as a whole.

The tree is the same for all pods of a gang; only what is above a changed group is made again.

Source: KEP-4671, scheduling.k8s.io v1alpha3 and later.
"""

from collections.abc import Sequence

from msgspec import Struct

from kai_py.api.numbers import quoted
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.composite_groups import (
    COMPOSITE_GROUPS,
    MAX_DEPTH,
    PARENT_FIELD,
    parent_of,
    within,
)
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import (
    MAX_SUBGROUPS,
    TOO_MANY_SUBGROUPS,
    Subgroup,
    TopologyConstraint,
)
from kai_py.grouping.gang_template import InvalidWorkloadError
from kai_py.grouping.owner_chain import Owners
from kai_py.snapshot.pod_claims import POD_GROUPS

NEEDED = "spec.schedulingPolicy.gang.minGroupCount"


class GroupTree(Struct, frozen=True):
    """The topmost object above a PodGroup (itself, if there is none), and the tree below that."""

    root: Unstructured
    tree: Subgroup


def group_tree(group: Unstructured, owners: Owners) -> GroupTree:
    """The tree of ``group``; raises InvalidWorkloadError for a loop or a missing part.

    Cost: one look-up per composite group above it, once its tree is made.
    """
    root = group_ancestors(group, owners)[-1]
    if root is group:
        return GroupTree(root, _leaf(root, ""))
    made = _Trees(root, owners).tree(root, "", MAX_DEPTH)
    if made.problem:
        raise InvalidWorkloadError(made.problem)
    return GroupTree(root, made.tree)


def group_ancestors(group: Unstructured, owners: Owners) -> tuple[Unstructured, ...]:
    """``group`` and the composite groups above it; raises as ``group_tree`` does."""
    ancestors = [group]
    while name := parent_of(ancestors[-1]):
        found = owners.named(COMPOSITE_GROUPS, group.metadata.namespace, name)
        if not isinstance(found, Unstructured):
            raise InvalidWorkloadError(
                f"{PARENT_FIELD}: CompositePodGroup {quoted(name)} does not exist (yet)"
            )
        ancestors.append(found)
        if len(ancestors) > MAX_DEPTH:
            raise InvalidWorkloadError(
                f"{PARENT_FIELD}: the composite groups above it form a cycle"
            )
    return tuple(ancestors)


class _Made(Struct, frozen=True):
    """The tree of a composite group, of ``size`` subgroups, or what is wrong with it."""

    tree: Subgroup = Subgroup()
    size: int = 0
    problem: str = ""


class _Trees:
    """Makes the trees of the composite groups within ``root``, each once for all pods."""

    def __init__(self, root: Unstructured, owners: Owners) -> None:
        self._kept, self._groups = owners.kept, owners.groups_within(root)

    def tree(self, group: Unstructured, name: str, depth: int) -> _Made:
        """The tree of a composite group, called ``name``, of at most ``depth`` levels."""
        kept = self._kept(within(COMPOSITE_GROUPS, group))
        if depth not in kept:
            try:
                kept[depth] = self._make(group, name, depth)
            except InvalidWorkloadError as error:
                kept[depth] = _Made(problem=str(error))
        made: _Made = kept[depth]
        return made

    def _make(self, group: Unstructured, name: str, depth: int) -> _Made:
        if depth == 0:
            raise InvalidWorkloadError(
                f"{PARENT_FIELD}: the composite groups below {group.metadata.name} form a cycle"
            )
        size = 1
        children: list[Subgroup] = []
        for each in self._groups.below(COMPOSITE_GROUPS, group):
            made = self.tree(each, each.metadata.name, depth - 1)
            if made.problem:
                raise InvalidWorkloadError(made.problem)
            size = _counted(size + made.size, group)
            children.append(made.tree)
        leaves = self._groups.below(POD_GROUPS, group)
        _counted(size + len(leaves), group)
        children += [self._leaf(each) for each in leaves]
        needed = count_at(group.content, NEEDED, 1, least=1)
        if needed > MAX_SUBGROUPS:
            raise InvalidWorkloadError(f"{NEEDED} must be at most {MAX_SUBGROUPS}, is {needed}")
        missing = range(len(children), max(needed, 1))
        size = _counted(size + len(leaves) + len(missing), group)
        children += [Subgroup(name=f"{group.metadata.name}/{n}", min_members=1) for n in missing]
        return _Made(_composite(group, name, children, needed), size)

    def _leaf(self, group: Unstructured) -> Subgroup:
        kept = self._kept(within(POD_GROUPS, group))
        if not kept:
            kept[0] = _leaf(group, group.metadata.name)
        leaf: Subgroup = kept[0]
        return leaf


def _composite(
    group: Unstructured, name: str, children: Sequence[Subgroup], needed: int
) -> Subgroup:
    return Subgroup(
        name=name,
        min_subgroups=needed,
        children=tuple(children),
        topology=_constraint(group),
        evicted_together=_evicted_together(group),
    )


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
