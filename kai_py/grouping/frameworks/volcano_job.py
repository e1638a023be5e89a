"""Volcano Job: minAvailable pods, of which each task may require a number of its own.

``minAvailable`` of the job is by default the sum over its tasks of ``minAvailable``, else
``replicas``. As in Volcano, the minimums of tasks count if their sum is at most that of the job. A
tree has no minimum over minimums: what the job requires beyond is required of its tasks in order.

Source: batch.volcano.sh/v1alpha1; Volcano's gang plug-in and its admission.
"""

from collections.abc import Mapping
from typing import Any

from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    label_reader,
    number_label_reader,
)
from kai_py.grouping.roles import Role, role_leaves, roles_of_rule, template_annotations
from kai_py.grouping.rule import RoleRule

TASKS = "spec.tasks"
MIN_AVAILABLE = "spec.minAvailable"
QUEUE = "spec.queue"
TASK_LABEL, INDEX_LABEL = "volcano.sh/task-spec", "volcano.sh/task-index"
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
    min_available = count_at(job.content, MIN_AVAILABLE, sum(minimums) or 1)
    if tasks and min_available > total:
        raise InvalidWorkloadError(
            f"minMember {min_available} can never be reached: only {total} pods will exist"
        )
    roles: tuple[Role, ...] = ()
    if any("minAvailable" in task for task in tasks) and sum(minimums) <= min_available:
        roles = _roles(tasks, pods, minimums, min_available)
    roles = roles or roles_of_rule(ROLES, job, min_available)
    leaves = role_leaves(workload, roles)
    return GangTemplate(
        tree=Subgroup(children=leaves.subgroups) if roles else Subgroup(min_members=min_available),
        subgroup_of=leaves.reader(label_reader(TASK_LABEL)) if roles else lambda _pod: "",
        order_of=number_label_reader(INDEX_LABEL),
        total_pods=total,
        has_roles=True,
        queue=str(job.first_at(QUEUE) or ""),
    )


def _roles(
    tasks: tuple[Mapping[str, Any], ...], pods: list[int], minimums: list[int], min_available: int
) -> tuple[Role, ...]:
    """The tasks with their minimums, raised in order until they add up to ``min_available``."""
    missing = min_available - sum(minimums)
    roles: list[Role] = []
    for position, (task, replicas, minimum) in enumerate(zip(tasks, pods, minimums, strict=True)):
        raised = min(missing, replicas - minimum)
        missing -= raised
        name = str(task.get("name", "")).lower()
        annotations = template_annotations(task, "template", f"{TASKS}[{position}]")
        roles.append(Role(name, replicas, minimum + raised, annotations, INDEX_LABEL))
    return tuple(roles)


VOLCANO_JOB = Framework(
    field_paths=(
        MIN_AVAILABLE,
        QUEUE,
        *(
            f"{TASKS}.*.{field}"
            for field in ("name", "replicas", "minAvailable", "template.metadata.annotations")
        ),
    ),
    gang_template=_gang_template,
)
