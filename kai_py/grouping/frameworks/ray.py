"""RayCluster and RayJob: the head and the least workers of every group start together.

    floor of a worker group = numOfHosts x (minReplicas, or replicas where nothing scales it)

With the in-tree autoscaler the floor is minReplicas even if that is 0: what it asks for above must
not hold back what is there. A suspended group needs nobody. A RayJob's submitter comes when the
cluster runs: it belongs to the gang, which never waits for it but starts with room for it.

Source: ray.io/v1.
"""

from collections.abc import Mapping
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.document import values_at
from kai_py.grouping.blueprint import Blueprint, Framework, Workload, whole_document
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import Awaited, Subgroup
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
USUAL_SUBMITTER: Mapping[str, Any] = {
    "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}]}
}
"""What KubeRay asks for where the job says nothing."""


def _cluster(workload: Workload) -> Blueprint:
    leaves, pods = _leaves(_content(workload, "spec"), "spec")
    return Blueprint(tree=Subgroup(children=leaves), leaf=_group, rank=_rank, expected_pods=pods)


def _job(workload: Workload) -> Blueprint:
    spec = _content(workload, JOB_CLUSTER)
    leaves, pods = _leaves(spec, JOB_CLUSTER) if spec else ((), 0)
    submitter = Subgroup(name=SUBMITTER, min_members=0)
    current = str(next(values_at(whole_document(workload).content, CLUSTER_NAME), ""))
    return Blueprint(
        tree=Subgroup(children=(*leaves, submitter)),
        leaf=lambda pod: _group(pod) or SUBMITTER,
        rank=_rank,
        part=lambda pod: pod.metadata.labels.get(CLUSTER_LABEL, current),
        expected_pods=pods,
        awaited=_submitter(workload) if leaves else (),
    )


def _submitter(workload: Workload) -> tuple[Awaited, ...]:
    """The pod that submits the job, unless something else does."""
    found = whole_document(workload)
    if found.first_at(SUBMISSION_MODE) not in (None, "K8sJobMode"):
        return ()
    template = next(iter(entries(found.content, SUBMITTER_TEMPLATE)), USUAL_SUBMITTER)
    pod = pod_of_template(template, found.metadata, SUBMITTER_TEMPLATE)
    return (Awaited(SUBMITTER, 1, pod),)


def _content(workload: Workload, path: str) -> Mapping[str, Any]:
    return next(iter(entries(whole_document(workload).content, path)), {})


def _leaves(spec: Mapping[str, Any], where: str) -> tuple[tuple[Subgroup, ...], int]:
    """The leaves of a cluster, and how many pods it wants."""
    scaled = spec.get("enableInTreeAutoscaling") is True
    floors = {HEAD: 1}
    pods = 1
    for position, group in enumerate(entries(spec, "workerGroupSpecs.*")):
        at = f"{where}.workerGroupSpecs[{position}]"
        hosts = max(count_at(group, "numOfHosts", 1, where=at), 1)
        least = count_at(group, "minReplicas", 0, where=at)
        wanted = max(count_at(group, "replicas", 0, where=at), least)
        floor = least if scaled or least else wanted
        if group.get("suspend") is True:
            wanted = floor = 0
        name = str(group.get("groupName", ""))
        floors[name] = floors.get(name, 0) + floor * hosts
        pods += wanted * hosts
    leaves = (Subgroup(name=name, min_members=floor) for name, floor in floors.items())
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


RAY_CLUSTER = Framework(paths=_paths("spec"), blueprint=_cluster)
RAY_JOB = Framework(
    paths=(
        *_paths(JOB_CLUSTER),
        CLUSTER_NAME,
        SUBMISSION_MODE,
        *template_paths(SUBMITTER_TEMPLATE),
    ),
    blueprint=_job,
)
