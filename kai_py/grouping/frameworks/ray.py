"""RayCluster and RayJob: the head and the minimum of every worker group start together.

    minMember of a worker group = numOfHosts x (minReplicas, or replicas where nothing scales it)

With the in-tree autoscaler minMember is minReplicas even if that is 0: replicas that it requests
above must not hold back the others. A suspended group requires no pods. A RayJob's submitter is
created when the cluster runs: it belongs to the gang, which never waits for it but starts only if
it fits as well.

Source: ray.io/v1.
"""

from collections.abc import Mapping
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import values_at
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import ExpectedPods, Subgroup
from kai_py.grouping.gang_template import Framework, GangTemplate, WorkloadOwner, full_owner
from kai_py.grouping.pod_template import pod_of_template, template_paths

GROUP_LABEL = "ray.io/group"
CLUSTER_LABEL = "ray.io/cluster"
NODE_TYPE_LABEL = "ray.io/node-type"
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
    leaves, pods = _leaves(_content(workload, "spec"), "spec")
    return GangTemplate(
        tree=Subgroup(children=leaves), subgroup_of=_group, order_of=_rank, total_pods=pods
    )


def _job(workload: WorkloadOwner) -> GangTemplate:
    spec = _content(workload, JOB_CLUSTER)
    leaves, pods = _leaves(spec, JOB_CLUSTER) if spec else ((), 0)
    submitter = Subgroup(name=SUBMITTER, min_members=0)
    current = str(next(values_at(full_owner(workload).content, CLUSTER_NAME), ""))
    return GangTemplate(
        tree=Subgroup(children=(*leaves, submitter)),
        subgroup_of=lambda pod: _group(pod) or SUBMITTER,
        order_of=_rank,
        gang_suffix_of=lambda pod: pod.metadata.labels.get(CLUSTER_LABEL, current),
        total_pods=pods,
        expected=_submitter(workload) if leaves else (),
    )


def _submitter(workload: WorkloadOwner) -> tuple[ExpectedPods, ...]:
    """The pod that submits the job, where KubeRay creates one."""
    ray_job = full_owner(workload)
    if ray_job.first_at(SUBMISSION_MODE) not in (None, "K8sJobMode"):
        return ()
    template = next(iter(entries(ray_job.content, SUBMITTER_TEMPLATE)), DEFAULT_SUBMITTER)
    pod = pod_of_template(template, ray_job.metadata, SUBMITTER_TEMPLATE)
    return (ExpectedPods(SUBMITTER, 1, pod),)


def _content(workload: WorkloadOwner, path: str) -> Mapping[str, Any]:
    return next(iter(entries(full_owner(workload).content, path)), {})


def _leaves(spec: Mapping[str, Any], location: str) -> tuple[tuple[Subgroup, ...], int]:
    """The leaves of a cluster, and its number of pods."""
    autoscaled = spec.get("enableInTreeAutoscaling") is True
    min_members = {HEAD: 1}
    pods = 1
    for position, group in enumerate(entries(spec, "workerGroupSpecs.*")):
        group_location = f"{location}.workerGroupSpecs[{position}]"
        hosts = max(count_at(group, "numOfHosts", 1, location=group_location), 1)
        min_replicas = count_at(group, "minReplicas", 0, location=group_location)
        replicas = max(count_at(group, "replicas", 0, location=group_location), min_replicas)
        required = min_replicas if autoscaled or min_replicas else replicas
        if group.get("suspend") is True:
            replicas = required = 0
        name = str(group.get("groupName", ""))
        min_members[name] = min_members.get(name, 0) + required * hosts
        pods += replicas * hosts
    leaves = (Subgroup(name=name, min_members=required) for name, required in min_members.items())
    return tuple(leaves), pods


def _group(pod: Pod) -> str:
    labels = pod.metadata.labels
    return labels.get(GROUP_LABEL) or (HEAD if labels.get(NODE_TYPE_LABEL) == "head" else "")


def _rank(pod: Pod) -> int:
    """The head first."""
    return 0 if _group(pod) == HEAD else 1


def _paths(prefix: str) -> tuple[str, ...]:
    fields = ("groupName", "numOfHosts", "minReplicas", "replicas", "suspend")
    return (
        f"{prefix}.enableInTreeAutoscaling",
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
