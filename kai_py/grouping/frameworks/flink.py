"""Flink: a JobManager, and the TaskManagers that it requests or that the operator creates.

FlinkDeployment with a job:

    TaskManagers = taskManager.replicas if set, else ceil(parallelism / slots of a TaskManager)

The JobManager starts once there is capacity for them. All of them start together, except where
Flink runs with fewer (adaptive or reactive scheduler, autoscaler): there one is enough. A session
cluster starts with the JobManager, its TaskManagers are elastic.

A native cluster without the operator is recognised by its labels and is such a session cluster: a
Deployment owns its JobManager and, directly, the TaskManagers.

Source: flink.apache.org/v1beta1; org.apache.flink.kubernetes.utils.Constants; ``type`` is
``flink-native-kubernetes`` there and ``flink-standalone-kubernetes`` in the operator.
"""

from collections.abc import Mapping
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured, mapping_at, value_at
from kai_py.grouping.counts import count_at, parse_count, parse_memory_size
from kai_py.grouping.gang import ExpectedPods, GangSpec, Subgroup, pod_owner
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    WorkloadOwner,
    full_owner,
    pod_of_template,
)
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import GroupKind, OwnerChain

FLINK_DEPLOYMENT_KIND = GroupKind("flink.apache.org", "FlinkDeployment")
TYPE_LABEL, NATIVE = "type", "flink-native-kubernetes"
CLUSTER_LABEL, COMPONENT_LABEL = "app", "component"
JOB_MANAGER, TASK_MANAGER = "jobmanager", "taskmanager"
CONFIGURATION = "spec.flinkConfiguration"
JOB, PARALLELISM = "spec.job", "spec.job.parallelism"
REPLICAS = "spec.taskManager.replicas"
RESOURCE = "spec.taskManager.resource"
TEMPLATES = ("spec.taskManager.podTemplate.spec", "spec.podTemplate.spec")
PLACEMENT_FIELDS = ("nodeSelector", "affinity", "tolerations")
SLOTS = "taskmanager.numberOfTaskSlots"
DEFAULT_PARALLELISM = "parallelism.default"
FLEXIBLE = {
    "jobmanager.scheduler": "adaptive",
    "scheduler-mode": "reactive",
    "job.autoscaler.enabled": "true",
    "kubernetes.operator.job.autoscaler.enabled": "true",
}
"""Settings with which a job runs on fewer slots than its parallelism."""


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    found = full_owner(workload)
    managers = _task_managers(found)
    whole, first = _tree(managers), _tree(0)
    return GangTemplate(
        tree=first,
        tree_with=lambda pod: whole if _component(pod) == TASK_MANAGER else first,
        subgroup_of=_component,
        order_of=_rank,
        expected=(ExpectedPods(TASK_MANAGER, managers, _task_manager(found)),) if managers else (),
    )


def _tree(task_managers: int) -> Subgroup:
    return Subgroup(
        children=(
            Subgroup(name=JOB_MANAGER, min_members=1),
            Subgroup(name=TASK_MANAGER, min_members=task_managers),
        )
    )


def _task_managers(found: Unstructured) -> int:
    """The TaskManagers without which the job does not run; 0 for a session cluster."""
    settings = mapping_at(found.content, CONFIGURATION)
    if found.first_at(JOB) is None:
        return 0
    if any(str(_setting(settings, key)).lower() == value for key, value in FLEXIBLE.items()):
        return 1
    slots = _setting(settings, SLOTS)
    per_manager = 1 if slots is None else parse_count(slots, f"{CONFIGURATION}[{SLOTS}]", least=1)
    return count_at(found.content, REPLICAS, -(-_parallelism(found, settings) // per_manager))


def _parallelism(found: Unstructured, settings: Mapping[str, Any]) -> int:
    """The parallelism of the job, else the default in its settings."""
    written = count_at(found.content, PARALLELISM, 0)
    default = _setting(settings, DEFAULT_PARALLELISM)
    if written or default is None:
        return max(written, 1)
    return parse_count(default, f"{CONFIGURATION}[{DEFAULT_PARALLELISM}]", least=1)


def _setting(settings: Mapping[str, Any], key: str) -> object:
    """A setting, written with dots or nested."""
    return settings.get(key, value_at(settings, key))


def _task_manager(found: Unstructured) -> Pod:
    """A TaskManager as far as the FlinkDeployment decides where it fits."""
    resource = mapping_at(found.content, RESOURCE)
    text, location = resource.get("memory") or "1g", f"{RESOURCE}.memory"
    memory = parse_memory_size(text, location, default_unit="b")
    requests = {"cpu": str(resource.get("cpu") or 1), "memory": str(memory)}
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": requests}}]}
    for template in reversed(TEMPLATES):
        written = mapping_at(found.content, template)
        spec |= {name: written[name] for name in PLACEMENT_FIELDS if name in written}
    return pod_of_template({"spec": spec}, found.metadata, "spec.taskManager")


def _component(pod: Pod) -> str:
    is_worker = pod.metadata.labels.get(COMPONENT_LABEL) == TASK_MANAGER
    return TASK_MANAGER if is_worker else JOB_MANAGER


def _rank(pod: Pod) -> int:
    """The JobManager first."""
    return 1 if _component(pod) == TASK_MANAGER else 0


def _marker(chain: OwnerChain) -> str:
    labels = chain.pod.metadata.labels
    name = labels.get(CLUSTER_LABEL, "")
    if labels.get(TYPE_LABEL) != NATIVE or not name or chain.unknown is not None:
        return ""
    if any(link.kind == FLINK_DEPLOYMENT_KIND for link in chain.owners):
        return ""
    return f'label {CLUSTER_LABEL} "{name}" of {NATIVE}'


def _gang(context: PodContext) -> GangSpec:
    pod = context.chain.pod
    meta = pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Flink/{meta.labels[CLUSTER_LABEL]}",
        owner=pod_owner(context.chain.pod.metadata),
        queue=context.queue.name,
        tree=_tree(0),
        subgroup=_component(pod),
        order=_rank(pod),
    )


FLINK = GroupSource(marker=_marker, gang_spec=_gang)
FLINK_DEPLOYMENT = Framework(
    field_paths=(
        CONFIGURATION,
        PARALLELISM,
        REPLICAS,
        f"{RESOURCE}.cpu",
        f"{RESOURCE}.memory",
        *(f"{template}.{field}" for template in TEMPLATES for field in PLACEMENT_FIELDS),
    ),
    gang_template=_gang_template,
)
