"""Dask: a scheduler, and workers that come and go.

DaskCluster: the scheduler and one worker start together; further workers, and those of other
DaskWorkerGroups, are elastic. Pods of its Deployments, or in older versions its pods, have the
labels of their part.

KubeCluster without the operator creates pods without an owner: the scheduler, unless it runs
elsewhere, and once that runs the workers. They are one gang of minMember 1, the scheduler first.

Source: kubernetes.dask.org/v1; dask_kubernetes/operator/controller and dask_kubernetes/classic.
"""

from kai_py.api.records.core import Pod
from kai_py.grouping.counts import count_at
from kai_py.grouping.gang import GangSpec, Subgroup, pod_owner
from kai_py.grouping.gang_template import Framework, GangTemplate, WorkloadOwner, full_owner
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain

CLUSTER_LABEL = "dask.org/cluster-name"
COMPONENT_LABEL = "dask.org/component"
SCHEDULER, WORKER = "scheduler", "worker"
WORKERS = "spec.worker.replicas"


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    workers = count_at(full_owner(workload).content, WORKERS, 1)
    return GangTemplate(
        tree=Subgroup(
            children=(
                Subgroup(name=SCHEDULER, min_members=1),
                Subgroup(name=WORKER, min_members=min(workers, 1)),
            )
        ),
        subgroup_of=lambda pod: SCHEDULER if _is_scheduler(pod) else WORKER,
        order_of=_rank,
    )


def _is_scheduler(pod: Pod) -> bool:
    return pod.metadata.labels.get(COMPONENT_LABEL) == SCHEDULER


def _rank(pod: Pod) -> int:
    """The scheduler first."""
    return 0 if _is_scheduler(pod) else 1


def _marker(chain: OwnerChain) -> str:
    meta = chain.pod.metadata
    name = meta.labels.get(CLUSTER_LABEL, "")
    return f'label {CLUSTER_LABEL} "{name}"' if name and not meta.owner_references else ""


def _gang(context: PodContext) -> GangSpec:
    pod = context.chain.pod
    meta = pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Dask/{meta.labels[CLUSTER_LABEL]}",
        owner=pod_owner(context.chain.pod.metadata),
        queue=context.queue.name,
        tree=Subgroup(min_members=1),
        order=_rank(pod),
    )


DASK_CLUSTER = Framework(field_paths=(WORKERS,), gang_template=_gang_template)
DASK = GroupSource(marker=_marker, gang_spec=_gang)
