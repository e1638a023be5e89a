"""The tree of a gang from a PodGroup's flat list of subgroups.

An entry without children is a leaf with its ``minMember``, 1 where unset. An entry with children,
and the root, requires ``minSubGroup`` of them, all where unset. Without subgroups the root is the
only leaf. Of siblings those with a minimum come first, then by name.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from kai_py.api.records.kai import KaiPodGroupSpec, KaiSubGroup, KaiTopologyConstraint
from kai_py.grouping.gang import MAX_TREE_DEPTH, Subgroup, TopologyConstraint

MAX_ENTRIES = 1000
"""Most entries of a PodGroup; the tree is built for each of its pods."""
ConstraintReader = Callable[[KaiTopologyConstraint | None], TopologyConstraint | None]


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
            yield f'spec.subGroups: the name "{name}" is used more than once'
    if "" in names:
        yield "spec.subGroups: an entry has no name"
    yield from _minimum_problems("spec", spec)
    for entry in spec.sub_groups:
        yield from _minimum_problems(f"spec.subGroups[{entry.name}]", entry)
    reached = {entry.name for entries in _reachable(spec).values() for entry in entries}
    for entry in spec.sub_groups:
        parent = entry.parent or ""
        if parent and parent not in names:
            yield f'spec.subGroups[{entry.name}].parent: there is no subgroup "{parent}"'
        elif entry.name and entry.name not in reached:
            hint = f"it is its own ancestor, or nested more than {MAX_TREE_DEPTH} deep"
            yield f"spec.subGroups[{entry.name}].parent: {hint}"


def _minimum_problems(location: str, entry: KaiPodGroupSpec | KaiSubGroup) -> Iterator[str]:
    """That both minimums are set, which KAI's webhook refuses, or that one is below 0."""
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
        location = f"spec.subGroups[{entry.name}]"
        yield from _min_sub_group_problem(
            location, entry.min_sub_group, len(children.get(entry.name, ()))
        )


def _min_sub_group_problem(location: str, required: int | None, children: int) -> Iterator[str]:
    if required is not None and required > children:
        yield f"{location}.minSubGroup is {required}, but there are only {children} subgroups below"


def _children(spec: KaiPodGroupSpec) -> Mapping[str, list[KaiSubGroup]]:
    children: dict[str, list[KaiSubGroup]] = {}
    for entry in spec.sub_groups:
        children.setdefault(entry.parent or "", []).append(entry)
    return children


def _reachable(spec: KaiPodGroupSpec) -> Mapping[str, list[KaiSubGroup]]:
    """The children, by name, of the root and of every entry that a walk from the root reaches.

    Of entries of one name the first counts. The walk ends ``MAX_TREE_DEPTH`` below the root.
    """
    if len(spec.sub_groups) > MAX_ENTRIES:
        return {}
    unique = {entry.name: entry for entry in reversed(spec.sub_groups) if entry.name}
    children: dict[str, list[KaiSubGroup]] = {}
    for entry in spec.sub_groups:
        if unique.get(entry.name) is entry:
            children.setdefault(entry.parent or "", []).append(entry)
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
