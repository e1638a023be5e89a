"""AIBrix RoleSet: a replica of a service whose roles, such as prefill and decode, need each other.

It serves once every role has one replica: a pod, or with ``podGroupSize`` above 1 a PodSet of so
many pods, which start together. Further replicas are elastic, because autoscalers change them. A
RoleSet with a schedulingStrategy has a group of another scheduler, which its pods name.

Source: orchestration.aibrix.ai/v1alpha1; labels in pkg/controller/constants.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import MAX_SUBGROUPS, Subgroup
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    number_label_reader,
)
from kai_py.grouping.roles import template_annotations
from kai_py.grouping.segments import SubgroupBudget, leaf_of_template, leaf_reader
from kai_py.grouping.topology_annotations import TemplateTopology, template_topology

ROLES = "spec.roles"
ROLE_LABEL = "role-name"
REPLICA_LABEL = "stormservice.orchestration.aibrix.ai/role-replica-index"
POD_INDEX_LABEL = "stormservice.orchestration.aibrix.ai/pod-group-index"

_replica = number_label_reader(REPLICA_LABEL)


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    subgroups: list[Subgroup] = []
    readers: dict[str, Callable[[Pod], str]] = {}
    pods, budget = 0, SubgroupBudget()
    for position, role in enumerate(entries(full_owner(workload).content, f"{ROLES}.*")):
        location = f"{ROLES}[{position}]"
        replicas = count_at(role, "replicas", 0, location=location)
        size = max(count_at(role, "podGroupSize", 1, location=location), 1)
        topology = template_topology(
            workload, template_annotations(role, "template", location), with_workload=False
        )
        name = str(role.get("name", ""))
        if size > 1:
            tree, reader = _pod_sets(name, replicas, size, topology, budget)
        else:
            tree, reader = _pods(name, replicas, role, topology)
            budget.counted(tree)
        subgroups.append(tree)
        readers[name] = reader
        pods += replicas * size

    def leaf(pod: Pod) -> str:
        role = pod.metadata.labels.get(ROLE_LABEL, "")
        return readers[role](pod) if role in readers else role

    return GangTemplate(
        tree=Subgroup(children=tuple(subgroups)) if subgroups else Subgroup(min_members=1),
        subgroup_of=leaf,
        total_pods=pods,
    )


def _pods(
    name: str, replicas: int, role: Mapping[str, Any], topology: TemplateTopology
) -> tuple[Subgroup, Callable[[Pod], str]]:
    """The leaf of a role whose replicas are pods; only those of a stateful role have an index."""
    index = REPLICA_LABEL if role.get("stateful") is True else ""
    tree = leaf_of_template(name, replicas, min(replicas, 1), topology, has_index=bool(index))
    return tree, leaf_reader(name, replicas, topology, index)


def _pod_sets(
    name: str, replicas: int, size: int, topology: TemplateTopology, budget: SubgroupBudget
) -> tuple[Subgroup, Callable[[Pod], str]]:
    """The subgroup of a role whose replicas are PodSets; the last one also gets surplus pods."""
    if replicas > MAX_SUBGROUPS:
        raise InvalidWorkloadError(
            f"role {name} has more than {MAX_SUBGROUPS} replicas of several pods, the maximum"
        )
    sets = tuple(
        budget.counted(leaf_of_template(f"{name}/{index}", size, size, topology))
        for index in range(replicas)
    )
    readers = [
        leaf_reader(f"{name}/{index}", size, topology, POD_INDEX_LABEL) for index in range(replicas)
    ]
    if not sets:
        return Subgroup(name=name), lambda _pod: name
    return (
        Subgroup(name=name, min_subgroups=1, children=sets),
        lambda pod: readers[min(_replica(pod), replicas - 1)](pod),
    )


ROLE_SET = Framework(
    field_paths=tuple(
        f"{ROLES}.*.{field}"
        for field in (
            *("name", "replicas", "podGroupSize", "stateful"),
            "template.metadata.annotations",
        )
    ),
    gang_template=_gang_template,
)
