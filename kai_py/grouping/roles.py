"""Gangs of roles: replicas of several templates, a leaf each, distinguished by a label.

A leaf has the topology that its template requests; with segments it is a subgroup of them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured, mapping_at
from kai_py.grouping.counts import count_at
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.gang_template import WorkloadOwner
from kai_py.grouping.rule import RoleRule
from kai_py.grouping.segments import SubgroupBudget, leaf_of_template, leaf_reader
from kai_py.grouping.topology_annotations import is_annotated, template_topology


class Role(Struct, frozen=True):
    """``pods`` replicas of a template, of which the ``annotations`` are given with their place.

    ``index_label``: the pod label with their index, empty if they have none.
    ``has_segments_of_workload``: whether segments that the workload requests are of these pods.
    """

    name: str
    pods: int
    min_members: int
    annotations: tuple[str, Mapping[str, Any]]
    index_label: str = ""
    has_segments_of_workload: bool = False


class RoleLeaves(Struct, frozen=True):
    """The subgroups of roles, and by role a function that names the leaf of a pod."""

    subgroups: tuple[Subgroup, ...]
    readers: Mapping[str, Callable[[Pod], str]]

    def reader(self, role_of: Callable[[Pod], str]) -> Callable[[Pod], str]:
        """A function that names the leaf of a pod; an unknown role is its own name."""

        def leaf(pod: Pod) -> str:
            role = role_of(pod)
            read = self.readers.get(role)
            return role if read is None else read(pod)

        return leaf


def role_leaves(workload: WorkloadOwner, roles: Iterable[Role]) -> RoleLeaves:
    """The leaves of ``roles``; raises InvalidWorkloadError."""
    subgroups: list[Subgroup] = []
    budget = SubgroupBudget()
    readers: dict[str, Callable[[Pod], str]] = {}
    for role in roles:
        topology = template_topology(
            workload, role.annotations, with_workload=role.has_segments_of_workload
        )
        leaf = leaf_of_template(
            role.name, role.pods, role.min_members, topology, has_index=bool(role.index_label)
        )
        subgroups.append(budget.counted(leaf))
        readers[role.name] = leaf_reader(role.name, role.pods, topology, role.index_label)
    return RoleLeaves(tuple(subgroups), readers)


def template_annotations(
    value: Any, template: str, location: str = ""
) -> tuple[str, Mapping[str, Any]]:
    """The annotations of the template at a path below ``value``, after their place.

    ``location``: the path of ``value`` in the owner.
    """
    path = f"{template}.metadata.annotations"
    found = mapping_at(value, path)
    return f"{location}.{path}" if location else path, found


WORKER = "worker"


def roles_of_rule(rule: RoleRule, owner: Unstructured, min_members: int) -> tuple[Role, ...]:
    """The roles of an owner, where any of its templates, or the owner, is annotated; else none.

    minMember counts the roles as they are listed. Segments that the workload requests are those of
    its workers; of all roles where none is called so.
    """
    found = owner.first_at(rule.each)
    listed = found.items() if isinstance(found, dict) else _named(found, rule.name)
    templates = {str(name).lower(): each for name, each in listed if isinstance(each, dict)}
    annotated = {
        name: template_annotations(each, "template", f"{rule.each}[{name}]")
        for name, each in templates.items()
    }
    own = {**owner.metadata.labels, **owner.metadata.annotations}
    if not any(is_annotated(each) for each in (own, *(each for _, each in annotated.values()))):
        return ()
    roles: list[Role] = []
    for name, each in templates.items():
        pods = count_at(each, rule.count, 1, location=f"{rule.each}[{name}]")
        required = min(pods, min_members)
        min_members -= required
        segmented = name == WORKER or WORKER not in templates
        roles.append(Role(name, pods, required, annotated[name], rule.index_label, segmented))
    return tuple(roles)


def _named(found: object, field: str) -> list[tuple[str, Any]]:
    items = found if isinstance(found, list) else []
    return [(str(each.get(field, "")), each) for each in items if isinstance(each, dict)]
