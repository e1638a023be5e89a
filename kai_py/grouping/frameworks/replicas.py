"""Deployments and StatefulSets with KAI's annotation for minMember: their pods are one gang.

Without it, each pod is a gang of its own, or one pod starts the gang (StatefulSets with KAI's
queue label).

    StatefulSet  ``kai.scheduler/min-member``; needs ``podManagementPolicy: Parallel``, as with
                 OrderedReady no pod is created before the one before it is ready
    Deployment   ``kai.scheduler/batch-min-member``; the pods of all its revisions, so that a
                 roll-out does not wait for the revision it replaces

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins/statefulset and plugins/deployment.
"""

from kai_py.grouping.counts import annotated_count, count_at
from kai_py.grouping.frameworks.job import BATCH_MIN_MEMBER_KEY
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    number_label_reader,
)

MIN_MEMBER_KEY = "kai.scheduler/min-member"
POLICY = "spec.podManagementPolicy"
REPLICAS = "spec.replicas"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"


def _stateful_set(workload: WorkloadOwner) -> GangTemplate:
    found = full_owner(workload)
    min_members = annotated_count(found.metadata, MIN_MEMBER_KEY, least=1) or 1
    replicas = count_at(found.content, REPLICAS, 1)
    policy = found.first_at(POLICY) or "OrderedReady"
    if min_members > 1 and policy != "Parallel":
        raise InvalidWorkloadError(
            f"{MIN_MEMBER_KEY} {min_members} needs {POLICY} Parallel: with {policy}, each pod is "
            "created once the one before it is ready"
        )
    if min_members > max(replicas, 1):
        raise InvalidWorkloadError(
            f"minMember {min_members} can never be reached: {REPLICAS} is {replicas}"
        )
    return GangTemplate(
        tree=Subgroup(min_members=min_members),
        order_of=number_label_reader(POD_INDEX_LABEL),
        total_pods=replicas,
    )


def _deployment(workload: WorkloadOwner) -> GangTemplate:
    annotated = annotated_count(workload.link.found.metadata, BATCH_MIN_MEMBER_KEY, least=1)
    return GangTemplate(tree=Subgroup(min_members=annotated or 1))


STATEFUL_SET = Framework(field_paths=(POLICY, REPLICAS), gang_template=_stateful_set)
DEPLOYMENT = Framework(field_paths=(), gang_template=_deployment)
