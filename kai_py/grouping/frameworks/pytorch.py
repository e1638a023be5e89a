"""PyTorchJob: a master and workers, of which minMember may require only some.

    minMember = schedulingPolicy.minAvailable, else elasticPolicy.minReplicas, else all replicas

Topology annotations of a template constrain its pods, ``…/segment-size`` splits them into segments.

Source: kubeflow.org/v1; KAI's segment annotations.
"""

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import Subgroup
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    lowercase_label_reader,
    number_label_reader,
)
from kai_py.grouping.roles import Role, role_leaves, template_annotations

ROLE_LABEL = "training.kubeflow.org/replica-type"
INDEX_LABEL = "training.kubeflow.org/replica-index"
REPLICA_SPECS = "spec.pytorchReplicaSpecs"
MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"
ELASTIC_MIN_REPLICAS = "spec.elasticPolicy.minReplicas"
ELASTIC_MAX_REPLICAS = "spec.elasticPolicy.maxReplicas"
MASTER = "master"
WORKER = "worker"


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    pytorch_job = full_owner(workload)
    masters, workers = (_replicas(pytorch_job, role) for role in ("Master", "Worker"))
    all_pods = masters + workers
    if not all_pods:
        raise InvalidWorkloadError(f"{REPLICA_SPECS} has neither a Master nor a Worker")
    min_replicas = count_at(pytorch_job.content, ELASTIC_MIN_REPLICAS, all_pods)
    min_members = count_at(pytorch_job.content, MIN_AVAILABLE, min_replicas)
    max_pods = max(all_pods, count_at(pytorch_job.content, ELASTIC_MAX_REPLICAS, 0))
    if min_members > max_pods:
        raise InvalidWorkloadError(
            f"minMember {min_members} can never be reached: at most {max_pods} pods exist at once"
        )
    first, rest = min(masters, min_members), max(min_members - masters, 0)
    templates = [
        template_annotations(pytorch_job.content, f"{REPLICA_SPECS}.{role}.template")
        for role in ("Master", "Worker")
    ]
    roles = (
        Role(MASTER, masters, first, templates[0], INDEX_LABEL),
        Role(WORKER, workers, rest, templates[1], INDEX_LABEL, has_segments_of_workload=True),
    )
    leaves = role_leaves(workload, [role for role in roles if role.pods])
    return GangTemplate(
        tree=Subgroup(children=leaves.subgroups),
        subgroup_of=leaves.reader(_role),
        order_of=_rank,
        total_pods=all_pods,
    )


def _replicas(found: Unstructured, role: str) -> int:
    roles = entries(found.content, f"{REPLICA_SPECS}.{role}")
    return count_at(roles[0], "replicas", 1, location=f"{REPLICA_SPECS}.{role}") if roles else 0


_role, _index = lowercase_label_reader(ROLE_LABEL), number_label_reader(INDEX_LABEL)


def _rank(pod: Pod) -> int:
    """The master, then the workers by index."""
    return 0 if _role(pod) == MASTER else 1 + _index(pod)


PYTORCH_JOB = Framework(
    field_paths=(
        MIN_AVAILABLE,
        ELASTIC_MIN_REPLICAS,
        ELASTIC_MAX_REPLICAS,
        f"{REPLICA_SPECS}.*.replicas",
        f"{REPLICA_SPECS}.*.template.metadata.annotations",
    ),
    gang_template=_gang_template,
)
