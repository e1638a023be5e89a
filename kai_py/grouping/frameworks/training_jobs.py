"""PyTorchJob and MPIJob: workers, and a pod that leads them, of which minMember may require some.

    PyTorchJob   minMember = schedulingPolicy.minAvailable, else elasticPolicy.minReplicas, else all
                 replicas of its master and its workers
    MPIJob       minMember = schedulingPolicy.minAvailable, else its launcher and all its workers

With ``launcherCreationPolicy: WaitForWorkersReady`` the launcher is created when the workers run: a
minMember that includes it would never be reached. The workers start when it fits as well, and it
counts once its pod exists.

Topology annotations of a template constrain its pods, ``…/segment-size`` splits the workers into
segments.

Source: kubeflow.org/v1 and v2beta1; KAI's segment annotations.
"""

from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured, mapping_at
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import ExpectedPods, Subgroup
from kai_py.grouping.gang_template import (
    Framework,
    GangTemplate,
    InvalidWorkloadError,
    WorkloadOwner,
    full_owner,
    number_label_reader,
    pod_of_template,
    template_paths,
)
from kai_py.grouping.roles import Role, RoleLeaves, role_leaves, template_annotations

ROLE_LABELS = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
"""Where both are set (MPIJob v1), the second calls the launcher the master of its job."""
INDEX_LABEL = "training.kubeflow.org/replica-index"
MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"
PYTORCH_SPECS = "spec.pytorchReplicaSpecs"
ELASTIC_MIN_REPLICAS = "spec.elasticPolicy.minReplicas"
ELASTIC_MAX_REPLICAS = "spec.elasticPolicy.maxReplicas"
MPI_SPECS = "spec.mpiReplicaSpecs"
LAUNCHER_TEMPLATE = f"{MPI_SPECS}.Launcher.template"
CREATION_POLICY = "spec.launcherCreationPolicy"
MASTER, LAUNCHER, WORKER = "master", "launcher", "worker"


def _pytorch_job(workload: WorkloadOwner) -> GangTemplate:
    job = full_owner(workload)
    masters, workers = (_replicas(job, PYTORCH_SPECS, role) for role in ("Master", "Worker"))
    all_pods = masters + workers
    if not all_pods:
        raise InvalidWorkloadError(f"{PYTORCH_SPECS} has neither a Master nor a Worker")
    min_replicas = count_at(job.content, ELASTIC_MIN_REPLICAS, all_pods)
    max_pods = max(all_pods, count_at(job.content, ELASTIC_MAX_REPLICAS, 0))
    min_members = _min_members(job, min_replicas, max_pods)
    first, rest = min(masters, min_members), max(min_members - masters, 0)
    counts = {"Master": (masters, first), "Worker": (workers, rest)}
    leaves = _leaves(
        workload, PYTORCH_SPECS, {role: each for role, each in counts.items() if each[0]}
    )
    return GangTemplate(
        tree=Subgroup(children=leaves.subgroups),
        subgroup_of=leaves.reader(_role),
        order_of=partial(_rank, MASTER),
        total_pods=all_pods,
    )


def _mpi_job(workload: WorkloadOwner) -> GangTemplate:
    job = full_owner(workload)
    if not entries(job.content, f"{MPI_SPECS}.Launcher"):
        raise InvalidWorkloadError(f"{MPI_SPECS}.Launcher is missing")
    # A launcher may run without workers (mpi-operator, v2beta1).
    launchers, workers = (_replicas(job, MPI_SPECS, role) for role in ("Launcher", "Worker"))
    all_pods = launchers + workers
    min_members = _min_members(job, all_pods, all_pods)
    first, rest = min(launchers, min_members), max(min_members - launchers, 0)
    counts = {"Launcher": (launchers, first), "Worker": (workers, rest)}
    leaves = _leaves(workload, MPI_SPECS, counts)
    template = GangTemplate(
        tree=Subgroup(children=leaves.subgroups),
        subgroup_of=leaves.reader(_role),
        order_of=partial(_rank, LAUNCHER),
        total_pods=all_pods,
    )
    if job.first_at(CREATION_POLICY) != "WaitForWorkersReady":
        return template
    workers_first = _leaves(workload, MPI_SPECS, counts | {"Launcher": (launchers, 0)})
    later = Subgroup(children=workers_first.subgroups)
    return replace(
        template,
        tree=later,
        tree_with=lambda pod: template.tree if _role(pod) == LAUNCHER else later,
        expected=(ExpectedPods(LAUNCHER, launchers, _launcher(job)),),
    )


def _launcher(job: Unstructured) -> Pod:
    """A pod that is created when the workers run."""
    template = mapping_at(job.content, LAUNCHER_TEMPLATE)
    return pod_of_template(template, job.metadata, LAUNCHER_TEMPLATE)


def _replicas(job: Unstructured, specs: str, role: str) -> int:
    roles = entries(job.content, f"{specs}.{role}")
    return count_at(roles[0], "replicas", 1, location=f"{specs}.{role}") if roles else 0


def _min_members(job: Unstructured, default: int, max_pods: int) -> int:
    min_members = count_at(job.content, MIN_AVAILABLE, default)
    if min_members > max_pods:
        raise InvalidWorkloadError(
            f"minMember {min_members} can never be reached: at most {max_pods} pods exist at once"
        )
    return min_members


def _leaves(
    workload: WorkloadOwner, specs: str, counts: Mapping[str, tuple[int, int]]
) -> RoleLeaves:
    """The leaves of roles; ``counts``: by name, the pods and how many of them are required."""
    content = full_owner(workload).content
    return role_leaves(
        workload,
        [
            Role(
                name.lower(),
                pods,
                min_members,
                template_annotations(content, f"{specs}.{name}.template"),
                INDEX_LABEL,
                has_segments_of_workload=name.lower() == WORKER,
            )
            for name, (pods, min_members) in counts.items()
        ],
    )


def _role(pod: Pod) -> str:
    labels = pod.metadata.labels
    return next((labels[key].lower() for key in ROLE_LABELS if key in labels), "")


_index = number_label_reader(INDEX_LABEL)


def _rank(leader: str, pod: Pod) -> int:
    """The pod that leads, then the workers by index."""
    return 0 if _role(pod) == leader else 1 + _index(pod)


def _field_paths(specs: str, *fields: str) -> tuple[str, ...]:
    of_roles = ("replicas", "template.metadata.annotations")
    return (MIN_AVAILABLE, *fields, *(f"{specs}.*.{field}" for field in of_roles))


PYTORCH_JOB = Framework(
    field_paths=_field_paths(PYTORCH_SPECS, ELASTIC_MIN_REPLICAS, ELASTIC_MAX_REPLICAS),
    gang_template=_pytorch_job,
)
MPI_JOB = Framework(
    field_paths=_field_paths(MPI_SPECS, CREATION_POLICY, *template_paths(LAUNCHER_TEMPLATE)),
    gang_template=_mpi_job,
)
