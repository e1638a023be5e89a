"""RayCluster and RayJob: the head and the minimum of every worker group start together.

    minMember of a worker group = numOfHosts x (minReplicas, or replicas where nothing scales it),
                                  at most maxReplicas

With the in-tree autoscaler minMember is minReplicas even if that is 0: replicas that it requests
above must not hold back the others. A suspended group requires no pods. A RayJob's submitter is
created when the cluster runs: it belongs to the gang, which never waits for it but starts only if
it fits as well. The pod that clears a cluster's state in Redis has the labels of a head and is
created when all others are gone: it is a gang of its own.

Source: ray.io/v1; KubeRay's GetWorkerGroupDesiredReplicas and buildRedisCleanupJob.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kai_py.api.numbers import MAX_COUNT
from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import mapping_at, value_at
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import ExpectedPods, Subgroup, without_minimum
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    WorkloadOwner,
    full_owner,
    pod_of_template,
    template_paths,
)
from kai_py.grouping.roles import Role, role_leaves, template_annotations

GROUP_LABEL = "ray.io/group"
CLUSTER_LABEL = "ray.io/cluster"
NODE_TYPE_LABEL = "ray.io/node-type"
REDIS_CLEANUP = "redis-cleanup"
"""The node type of the pod that clears a deleted cluster's state in Redis."""
HEAD = "headgroup"
SUBMITTER = "submitter"
CLUSTER_NAME = "status.rayClusterName"
JOB_CLUSTER = "spec.rayClusterSpec"
SUBMISSION_MODE = "spec.submissionMode"
SUBMITTER_TEMPLATE = "spec.submitterPodTemplate"
DEFAULT_SUBMITTER: Mapping[str, Any] = {
    "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}]}
}
"""KubeRay's submitter where the job has no template for it."""


def _cluster(workload: WorkloadOwner) -> GangTemplate:
    groups, pods = _groups(mapping_at(full_owner(workload).content, "spec"), "spec")
    leaves = role_leaves(workload, groups)
    return _with_redis_cleanup(
        GangTemplate(
            tree=Subgroup(children=leaves.subgroups),
            subgroup_of=leaves.reader(_group),
            order_of=_rank,
            total_pods=pods,
        )
    )


def _job(workload: WorkloadOwner) -> GangTemplate:
    spec = mapping_at(full_owner(workload).content, JOB_CLUSTER)
    groups, pods = _groups(spec, JOB_CLUSTER) if spec else ([], 0)
    leaves = role_leaves(workload, groups)
    leaf = leaves.reader(_group)
    submitter = Subgroup(name=SUBMITTER, min_members=0)
    current = str(value_at(full_owner(workload).content, CLUSTER_NAME) or "")
    return _with_redis_cleanup(
        GangTemplate(
            tree=Subgroup(children=(*leaves.subgroups, submitter)),
            subgroup_of=lambda pod: leaf(pod) or SUBMITTER,
            order_of=_rank,
            gang_suffix_of=lambda pod: pod.metadata.labels.get(CLUSTER_LABEL, current),
            total_pods=pods,
            expected=_submitter(workload) if groups else (),
        )
    )


def _with_redis_cleanup(template: GangTemplate) -> GangTemplate:
    """``template``; the pod that clears Redis is a gang of its own, which needs no other pod."""
    alone = without_minimum(template.tree)

    def gang_suffix(pod: Pod) -> str:
        suffix = template.gang_suffix_of(pod)
        return f"{suffix}/{REDIS_CLEANUP}".lstrip("/") if _clears_redis(pod) else suffix

    return replace(
        template,
        tree_with=lambda pod: alone if _clears_redis(pod) else template.tree,
        gang_suffix_of=gang_suffix,
    )


def _clears_redis(pod: Pod) -> bool:
    return pod.metadata.labels.get(NODE_TYPE_LABEL) == REDIS_CLEANUP


def _submitter(workload: WorkloadOwner) -> tuple[ExpectedPods, ...]:
    """The pod that submits the job, where KubeRay creates one."""
    ray_job = full_owner(workload)
    if ray_job.first_at(SUBMISSION_MODE) not in (None, "K8sJobMode"):
        return ()
    template = next(iter(entries(ray_job.content, SUBMITTER_TEMPLATE)), DEFAULT_SUBMITTER)
    pod = pod_of_template(template, ray_job.metadata, SUBMITTER_TEMPLATE)
    return (ExpectedPods(SUBMITTER, 1, pod),)


def _groups(spec: Mapping[str, Any], location: str) -> tuple[list[Role], int]:
    """The head and the worker groups of a cluster, and its number of pods.

    Pods of a worker group have no index. Of groups with one name the first has the template.
    """
    autoscaled = spec.get("enableInTreeAutoscaling") is True
    head = template_annotations(spec, "headGroupSpec.template", location)
    groups = {HEAD: Role(HEAD, 1, 1, head)}
    pods = 1
    for position, group in enumerate(entries(spec, "workerGroupSpecs.*")):
        group_location = f"{location}.workerGroupSpecs[{position}]"
        hosts = max(count_at(group, "numOfHosts", 1, location=group_location), 1)
        min_replicas = count_at(group, "minReplicas", 0, location=group_location)
        max_replicas = count_at(group, "maxReplicas", MAX_COUNT, location=group_location)
        replicas = max(count_at(group, "replicas", 0, location=group_location), min_replicas)
        required = min_replicas if autoscaled or min_replicas else replicas
        replicas, required = min(replicas, max_replicas), min(required, max_replicas)
        if group.get("suspend") is True:
            replicas = required = 0
        name = str(group.get("groupName", ""))
        template = template_annotations(group, "template", group_location)
        known = groups.get(name, Role(name, 0, 0, template, has_segments_of_workload=True))
        groups[name] = replace(
            known,
            pods=known.pods + replicas * hosts,
            min_members=known.min_members + required * hosts,
        )
        pods += replicas * hosts
    return list(groups.values()), pods


def _group(pod: Pod) -> str:
    labels = pod.metadata.labels
    return labels.get(GROUP_LABEL) or (HEAD if labels.get(NODE_TYPE_LABEL) == "head" else "")


def _rank(pod: Pod) -> int:
    """The head first."""
    return 0 if _group(pod) == HEAD else 1


def _paths(prefix: str) -> tuple[str, ...]:
    fields = (
        *("groupName", "numOfHosts", "minReplicas", "maxReplicas", "replicas", "suspend"),
        "template.metadata.annotations",
    )
    return (
        f"{prefix}.enableInTreeAutoscaling",
        f"{prefix}.headGroupSpec.template.metadata.annotations",
        *(f"{prefix}.workerGroupSpecs.*.{field}" for field in fields),
    )


RAY_CLUSTER = Framework(field_paths=_paths("spec"), gang_template=_cluster)
RAY_JOB = Framework(
    field_paths=(
        *_paths(JOB_CLUSTER),
        CLUSTER_NAME,
        SUBMISSION_MODE,
        *template_paths(SUBMITTER_TEMPLATE),
    ),
    gang_template=_job,
)
