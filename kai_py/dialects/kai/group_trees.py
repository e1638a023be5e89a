"""The tree of a KAI PodGroup, and what is wrong with the list that it is made from.

The tree is built from a flat list of subgroups. An entry without children is a leaf with its
``minMember``, 1 where unset. An entry with children, and the root, requires ``minSubGroup`` of
them, all where unset. Without subgroups the root is the only leaf. Of siblings those with a minimum
come first, then by name. In a topology constraint an alias of a level becomes its node label.

It is the same for all pods of the group, and made once.

Source: KAI-Scheduler, docs/developer/designs/hierarchical-podgroup.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from kai_py.api.groups import grouped
from kai_py.api.numbers import quoted, shortened
from kai_py.api.records.kai import (
    KaiPodGroup,
    KaiPodGroupSpec,
    KaiSubGroup,
    KaiTopologyConstraint,
)
from kai_py.grouping.gang import MAX_TREE_DEPTH, Subgroup, TopologyConstraint
from kai_py.grouping.owner_chain import Owners
from kai_py.grouping.topology_annotations import with_labels

POD_GROUP_COLLECTION = "podgroups.scheduling.run.ai"
MAX_ENTRIES = 1000
"""Most entries of a PodGroup."""
ConstraintReader = Callable[[KaiTopologyConstraint | None], TopologyConstraint | None]
Constraints = Mapping[KaiTopologyConstraint, TopologyConstraint | None]


class KaiGroupTree(Struct, frozen=True):
    """The tree of a PodGroup; ``leaves`` by name, ``problems`` of the list as sentences.

    It is valid as long as its ``constraints`` mean the same.
    """

    constraints: Constraints
    tree: Subgroup
    leaves: Mapping[str, Subgroup]
    problems: tuple[str, ...]


def group_tree(group: KaiPodGroup, owners: Owners) -> KaiGroupTree:
    """The tree of ``group``; ``owners`` notes the Topologies that it depends on."""
    meta = group.metadata
    kept = owners.kept((POD_GROUP_COLLECTION, meta.namespace, meta.name))
    known: KaiGroupTree | None = kept.get(group_tree)
    written = _written(group.spec) if known is None else known.constraints
    constraints = {each: constraint_of(each, owners) for each in written}
    if known is None or constraints != known.constraints:
        kept[group_tree] = known = _group_tree(group.spec, constraints)
    return known


def _group_tree(spec: KaiPodGroupSpec, constraints: Constraints) -> KaiGroupTree:
    tree = tree_of(spec, lambda written: constraints[written] if written else None)
    leaves = {each.name: each for each in tree.leaves()}
    return KaiGroupTree(constraints, tree, leaves, tuple(problems_of(spec)))


def _written(spec: KaiPodGroupSpec) -> Iterator[KaiTopologyConstraint]:
    """The constraints of the group and of its entries, as far as these are read."""
    entries = spec.sub_groups if len(spec.sub_groups) <= MAX_ENTRIES else ()
    found = (spec.topology_constraint, *(entry.topology_constraint for entry in entries))
    return (each for each in dict.fromkeys(found) if each is not None)


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
