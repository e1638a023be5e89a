"""Volcano Job: minAvailable pods, of which each task may require a number of its own.

``minAvailable`` of the job is by default, and where it is 0, the sum over its tasks of
``minAvailable``, else ``replicas``. As in Volcano, the minimums of tasks count if their sum is at
most that of the job. A tree has no minimum over minimums: what the job requires beyond is required
of its tasks in order.

Pods of a task with ``dependsOn`` are created once pods of the other tasks run: a minMember that
includes them would never be reached. The first tasks start when there is capacity for these, too.

Source: batch.volcano.sh/v1alpha1; Volcano's gang plug-in and its admission.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured, mapping_at, values_at
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import ExpectedPods, Subgroup, without_minimum
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    lowercase_label_reader,
    number_label_reader,
    pod_of_template,
    template_paths,
)
from kai_py.grouping.roles import Role, role_leaves, roles_of_rule, template_annotations
from kai_py.grouping.rule import RoleRule

TASKS = "spec.tasks"
MIN_AVAILABLE = "spec.minAvailable"
QUEUE = "spec.queue"
TASK_LABEL, INDEX_LABEL = "volcano.sh/task-spec", "volcano.sh/task-index"
MAX_DEPENDENT_TASKS = 200
"""Most tasks of a job with ``dependsOn``; each may depend on each."""
ROLES = RoleRule(each=TASKS, name="name", label=TASK_LABEL, index_label=INDEX_LABEL)


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    job = full_owner(workload)
    tasks = entries(job.content, f"{TASKS}.*")
    places = [f"{TASKS}[{position}]" for position in range(len(tasks))]
    pods = [
        count_at(task, "replicas", 1, location=place)
        for task, place in zip(tasks, places, strict=True)
    ]
    minimums = [
        min(count_at(task, "minAvailable", replicas, location=place), replicas)
        for task, replicas, place in zip(tasks, pods, places, strict=True)
    ]
    total = sum(pods)
    min_available = count_at(job.content, MIN_AVAILABLE, 0) or sum(minimums) or 1
    if tasks and min_available > total:
        raise InvalidWorkloadError(
            f"minMember {min_available} can never be reached: only {total} pods will exist"
        )
    waiting = _waiting(tasks)
    if waiting and len(tasks) > MAX_DEPENDENT_TASKS:
        raise InvalidWorkloadError(
            f"{TASKS} has {len(tasks)} entries, of which some have dependsOn; "
            f"then the maximum is {MAX_DEPENDENT_TASKS}"
        )
    roles: tuple[Role, ...] = ()
    by_task = waiting or any("minAvailable" in task for task in tasks)
    if by_task and sum(minimums) <= min_available:
        roles = _roles(tasks, pods, minimums, min_available)
    elif waiting:
        first = sum(n for task, n in zip(tasks, pods, strict=True) if _name(task) not in waiting)
        min_available = min(min_available, max(first, 1))
    roles = roles or roles_of_rule(ROLES, job, min_available)
    leaves = role_leaves(workload, roles)
    template = GangTemplate(
        tree=Subgroup(children=leaves.subgroups) if roles else Subgroup(min_members=min_available),
        subgroup_of=leaves.reader(lowercase_label_reader(TASK_LABEL)) if roles else lambda _pod: "",
        order_of=number_label_reader(INDEX_LABEL),
        total_pods=total,
        has_roles=True,
        queue=str(job.first_at(QUEUE) or ""),
    )
    return _staged(template, job, tasks, waiting) if roles and waiting else template


def _name(task: Mapping[str, Any]) -> str:
    return str(task.get("name", "")).lower()


def _waiting(tasks: tuple[Mapping[str, Any], ...]) -> Mapping[str, tuple[str, ...]]:
    """By task, the tasks of the job that must run before its pods are created."""
    names = {_name(task) for task in tasks}
    return {
        _name(task): found
        for task in tasks
        if (found := tuple(str(each).lower() for each in values_at(task, "dependsOn.name.*")))
        and names.issuperset(found)
    }


def _staged(
    template: GangTemplate,
    job: Unstructured,
    tasks: tuple[Mapping[str, Any], ...],
    waiting: Mapping[str, tuple[str, ...]],
) -> GangTemplate:
    """The tree of the tasks that start, and those that follow as pods that are expected."""
    task_of = lowercase_label_reader(TASK_LABEL)

    @cache
    def tree_with(task: str) -> Subgroup:
        exist = _needed_by(task, waiting)
        return replace(
            template.tree,
            children=tuple(
                child
                if child.name in exist or child.name not in waiting
                else without_minimum(child)
                for child in template.tree.children
            ),
        )

    expected = [
        ExpectedPods(leaf.name, leaf.min_members, _pod(job, task, position))
        for position, task in enumerate(tasks)
        if _name(task) in waiting
        for child in template.tree.children
        if child.name == _name(task)
        for leaf in child.leaves()
        if leaf.min_members
    ]
    return replace(
        template,
        tree=tree_with(""),
        tree_with=lambda pod: tree_with(task if (task := task_of(pod)) in waiting else ""),
        expected=tuple(expected),
    )


def _needed_by(task: str, waiting: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The task, and all that it waits for, however far."""
    found: set[str] = set()
    left = [task]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += waiting.get(name, ())
    return found


def _pod(job: Unstructured, task: Mapping[str, Any], position: int) -> Pod:
    template = mapping_at(task, "template")
    return pod_of_template(template, job.metadata, f"{TASKS}[{position}].template")


def _roles(
    tasks: tuple[Mapping[str, Any], ...], pods: list[int], minimums: list[int], min_available: int
) -> tuple[Role, ...]:
    """The tasks with their minimums, raised in order until they add up to ``min_available``."""
    missing = min_available - sum(minimums)
    roles: list[Role] = []
    for position, (task, replicas, minimum) in enumerate(zip(tasks, pods, minimums, strict=True)):
        raised = min(missing, replicas - minimum)
        missing -= raised
        name = _name(task)
        annotations = template_annotations(task, "template", f"{TASKS}[{position}]")
        roles.append(Role(name, replicas, minimum + raised, annotations, INDEX_LABEL))
    return tuple(roles)


VOLCANO_JOB = Framework(
    field_paths=(
        MIN_AVAILABLE,
        QUEUE,
        *(f"{TASKS}.*.{field}" for field in ("name", "replicas", "minAvailable", "dependsOn.name")),
        *template_paths(f"{TASKS}.*.template"),
    ),
    gang_template=_gang_template,
)
