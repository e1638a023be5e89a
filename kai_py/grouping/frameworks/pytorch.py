"""PyTorchJob: a master and workers, of which minMember may require only some.

    minMember = schedulingPolicy.minAvailable, else elasticPolicy.minReplicas, else all replicas

The annotation ``…/segment-size`` on the worker template splits the workers into segments of that
size, each in one topology domain of its own if the template requests it. Segments beyond minMember
are elastic.

Source: kubeflow.org/v1; KAI's segment annotations.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.annotations import (
    SEGMENT_PREFERRED_KEY,
    SEGMENT_REQUIRED_KEY,
    SEGMENT_SIZE_KEY,
    TOPOLOGY_KEY,
)
from kai_py.grouping.counts import count_at, entries, parse_count
from kai_py.grouping.gang import Subgroup, TopologyConstraint
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    label_reader,
    number_label_reader,
)
from kai_py.grouping.segments import segment_count, segment_subgroups

ROLE_LABEL = "training.kubeflow.org/replica-type"
INDEX_LABEL = "training.kubeflow.org/replica-index"
REPLICA_SPECS = "spec.pytorchReplicaSpecs"
MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"
ELASTIC_MIN_REPLICAS = "spec.elasticPolicy.minReplicas"
ELASTIC_MAX_REPLICAS = "spec.elasticPolicy.maxReplicas"
WORKER_ANNOTATIONS = f"{REPLICA_SPECS}.Worker.template.metadata.annotations"
SIZE_KEYS = (SEGMENT_SIZE_KEY, "kai.scheduler/segment-size")
REQUIRED_KEYS = (SEGMENT_REQUIRED_KEY, "kai.scheduler/segment-topology-required-placement")
PREFERRED_KEYS = (SEGMENT_PREFERRED_KEY, "kai.scheduler/segment-topology-preferred-placement")
"""Our key takes precedence over KAI's."""
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
    annotations = next(iter(entries(pytorch_job.content, WORKER_ANNOTATIONS)), {})
    size_key = next((key for key in SIZE_KEYS if key in annotations), SEGMENT_SIZE_KEY)
    location = f"{WORKER_ANNOTATIONS}: {size_key}"
    segment = parse_count(annotations.get(size_key, 0), location)
    leaves = [Subgroup(name=MASTER, min_members=min(masters, min_members))] if masters else []
    min_workers = max(min_members - masters, 0)
    if segment:
        count = segment_count(workers, segment, location)
        segments = segment_subgroups(
            WORKER, count, segment, min_workers, _constraint(annotations, pytorch_job)
        )
        leaves.append(Subgroup(name=WORKER, children=segments))
    elif workers:
        leaves.append(Subgroup(name=WORKER, min_members=min_workers))
    return GangTemplate(
        tree=Subgroup(children=tuple(leaves)),
        subgroup_of=_segment_of(segment) if segment else label_reader(ROLE_LABEL),
        order_of=_rank,
        total_pods=all_pods,
    )


def _replicas(found: Unstructured, role: str) -> int:
    roles = entries(found.content, f"{REPLICA_SPECS}.{role}")
    return count_at(roles[0], "replicas", 1, location=f"{REPLICA_SPECS}.{role}") if roles else 0


def _constraint(annotations: Mapping[str, Any], found: Unstructured) -> TopologyConstraint | None:
    required, preferred = (
        _first_value(annotations, REQUIRED_KEYS),
        _first_value(annotations, PREFERRED_KEYS),
    )
    if not required and not preferred:
        return None
    topology = annotations.get(TOPOLOGY_KEY) or found.metadata.annotations.get(TOPOLOGY_KEY, "")
    return TopologyConstraint(str(topology), required, preferred)


def _first_value(annotations: Mapping[str, Any], keys: Sequence[str]) -> str:
    return next((str(annotations[key]) for key in keys if annotations.get(key)), "")


def _segment_of(size: int) -> Callable[[Pod], str]:
    role, index = label_reader(ROLE_LABEL), number_label_reader(INDEX_LABEL)
    return lambda pod: f"{WORKER}-{index(pod) // size}" if role(pod) == WORKER else role(pod)


_role, _index = label_reader(ROLE_LABEL), number_label_reader(INDEX_LABEL)


def _rank(pod: Pod) -> int:
    """The master, then the workers by index."""
    return 0 if _role(pod) == MASTER else 1 + _index(pod)


PYTORCH_JOB = Framework(
    field_paths=(
        MIN_AVAILABLE,
        ELASTIC_MIN_REPLICAS,
        ELASTIC_MAX_REPLICAS,
        f"{REPLICA_SPECS}.*.replicas",
        WORKER_ANNOTATIONS,
    ),
    gang_template=_gang_template,
)
