"""From a PodGroup's flat list of subgroups to the gang's tree.

An entry without children is a leaf: ``minMember`` is its floor, 1 where unset. An entry with
children, and the root, needs ``minSubGroup`` of them, all where unset. Without subgroups the root
is the only leaf. Of siblings those with a floor come first, then by name.
"""

from collections.abc import Callable, Iterator, Mapping

from kai_py.api.records.kai import KaiPodGroupSpec, KaiSubGroup, KaiTopologyConstraint
from kai_py.grouping.gang import Subgroup, TopologyConstraint

Constrain = Callable[[KaiTopologyConstraint | None], TopologyConstraint | None]


def tree_of(spec: KaiPodGroupSpec, constrain: Constrain) -> Subgroup:
    """The gang's tree; entries that ``problems_of`` complains of are left out."""
    children = _children(spec)
    return Subgroup(
        min_members=_floor(spec.min_member),
        min_subgroups=spec.min_sub_group if children.get("") else None,
        children=_built(children, "", constrain),
        topology=constrain(spec.topology_constraint),
    )


def problems_of(spec: KaiPodGroupSpec) -> Iterator[str]:
    """What is wrong with the list, as sentences that name the field."""
    yield from tree_problems_of(spec)
    yield from too_few_below(spec)


def tree_problems_of(spec: KaiPodGroupSpec) -> Iterator[str]:
    """Entries that have no place in the tree."""
    names = [entry.name for entry in spec.sub_groups]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield f'spec.subGroups: the name "{name}" is used more than once'
    children = _children(spec)
    reached = {entry.name for entry in _below(children, "")}
    for entry in spec.sub_groups:
        parent = entry.parent or ""
        if parent and parent not in names:
            yield f'spec.subGroups[{entry.name}].parent: there is no subgroup "{parent}"'
        elif entry.name not in reached:
            yield f"spec.subGroups[{entry.name}].parent: it is its own ancestor"


def too_few_below(spec: KaiPodGroupSpec) -> Iterator[str]:
    """Floors above the number of subgroups that they are counted in."""
    children = _children(spec)
    if spec.sub_groups:
        yield from _too_many("spec", spec.min_sub_group, len(children.get("", ())))
    for entry in spec.sub_groups:
        where = f"spec.subGroups[{entry.name}]"
        yield from _too_many(where, entry.min_sub_group, len(children.get(entry.name, ())))


def _too_many(where: str, wanted: int | None, children: int) -> Iterator[str]:
    if wanted is not None and wanted > children:
        yield f"{where}.minSubGroup is {wanted}, but there are only {children} subgroups below"


def _children(spec: KaiPodGroupSpec) -> Mapping[str, list[KaiSubGroup]]:
    children: dict[str, list[KaiSubGroup]] = {}
    for entry in spec.sub_groups:
        children.setdefault(entry.parent or "", []).append(entry)
    return children


def _below(children: Mapping[str, list[KaiSubGroup]], name: str) -> Iterator[KaiSubGroup]:
    for entry in children.get(name, ()):
        yield entry
        if entry.name:
            yield from _below(children, entry.name)


def _built(
    children: Mapping[str, list[KaiSubGroup]], name: str, constrain: Constrain
) -> tuple[Subgroup, ...]:
    built = [_subgroup(entry, children, constrain) for entry in children.get(name, ())]
    return tuple(sorted(built, key=lambda group: (group.floor() == 0, group.name)))


def _subgroup(
    entry: KaiSubGroup, children: Mapping[str, list[KaiSubGroup]], constrain: Constrain
) -> Subgroup:
    below = _built(children, entry.name, constrain)
    return Subgroup(
        name=entry.name,
        min_members=0 if below else _floor(entry.min_member),
        min_subgroups=entry.min_sub_group if below else None,
        children=below,
        topology=constrain(entry.topology_constraint),
    )


def _floor(min_member: int | None) -> int:
    return 1 if min_member is None else min_member
