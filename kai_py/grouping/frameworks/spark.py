"""spark-submit without an operator: a driver pod without an owner, executors owned by the driver.

Both have the application's label. The driver starts first and requests executors later, so the
gang's minMember is 1.

SparkApplication: the driver starts first and requests its executors, which start together.

    minMember of the executors = dynamicAllocation's minExecutors, else its initialExecutors,
                                 else executor.instances; at most Spark's limit of pending pods

One of the two subgroups is enough: the driver alone in cluster mode, the executors alone in client
mode.

Source: sparkoperator.k8s.io/v1beta2; Spark's spark.kubernetes.allocation.maxPendingPods.
"""

from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.counts import count_at, entries, parse_count
from kai_py.grouping.gang import GangSpec, Subgroup
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    WorkloadOwner,
    full_owner,
    label_reader,
)
from kai_py.grouping.group_sources import GroupSource, PodContext
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.grouping.pod_group_annotation import pod_owner
from kai_py.grouping.roles import Role, role_leaves

APPLICATION_LABEL = "spark-app-selector"
ROLE_LABEL = "spark-role"
DRIVER = "driver"


def _marker(chain: OwnerChain) -> str:
    name = chain.pod.metadata.labels.get(APPLICATION_LABEL, "")
    if not name or (chain.owners and chain.owners[-1].kind.kind != "Pod"):
        return ""
    is_unknown = chain.unknown is not None and chain.unknown.kind != "Pod"
    return "" if is_unknown else f'label {APPLICATION_LABEL} "{name}"'


def _gang(context: PodContext) -> GangSpec:
    meta = context.chain.pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Spark/{meta.labels[APPLICATION_LABEL]}",
        owner=pod_owner(context.chain),
        queue=context.queue.name,
        tree=Subgroup(min_members=1),
        order=0 if meta.labels.get(ROLE_LABEL) == DRIVER else 1,
        workload_class="train",
    )


SPARK = GroupSource(marker=_marker, gang_spec=_gang)


EXECUTOR = "executor"
DYNAMIC_ALLOCATION = "spec.dynamicAllocation"
DRIVER_MARKS = "spec.driver.annotations"
EXECUTOR_MARKS = "spec.executor.annotations"
INSTANCES = "spec.executor.instances"
SPARK_CONF = "spec.sparkConf"
MAX_PENDING_PODS = "spark.kubernetes.allocation.maxPendingPods"

_role = label_reader(ROLE_LABEL)


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    found = full_owner(workload)
    min_executors = _min_executors(found)
    annotations = [(path, _mapping(found, path)) for path in (DRIVER_MARKS, EXECUTOR_MARKS)]
    leaves = role_leaves(
        workload,
        (
            Role(DRIVER, 1, 1, annotations[0]),
            Role(
                EXECUTOR,
                min_executors,
                min_executors,
                annotations[1],
                has_segments_of_workload=True,
            ),
        ),
    )
    return GangTemplate(
        tree=Subgroup(min_subgroups=1, children=leaves.subgroups),
        subgroup_of=leaves.reader(_leaf),
        order_of=_rank,
    )


def _min_executors(found: Unstructured) -> int:
    min_members = count_at(found.content, INSTANCES, 1)
    dynamic = _mapping(found, DYNAMIC_ALLOCATION)
    if dynamic and dynamic.get("enabled") is not False:
        initial = count_at(dynamic, "initialExecutors", min_members, location=DYNAMIC_ALLOCATION)
        min_members = count_at(dynamic, "minExecutors", initial, location=DYNAMIC_ALLOCATION)
    max_pending = _mapping(found, SPARK_CONF).get(MAX_PENDING_PODS)
    return (
        min_members
        if max_pending is None
        else min(min_members, parse_count(max_pending, f"{SPARK_CONF}[{MAX_PENDING_PODS}]"))
    )


def _mapping(found: Unstructured, path: str) -> dict[str, Any]:
    return dict(next(iter(entries(found.content, path)), {}))


def _leaf(pod: Pod) -> str:
    """Any pod that is no executor counts with the driver, for example one that submits."""
    return EXECUTOR if _role(pod) == EXECUTOR else DRIVER


def _rank(pod: Pod) -> int:
    return 0 if _leaf(pod) == DRIVER else 1


SPARK_APPLICATION = Framework(
    field_paths=(INSTANCES, DYNAMIC_ALLOCATION, SPARK_CONF, DRIVER_MARKS, EXECUTOR_MARKS),
    gang_template=_gang_template,
)
