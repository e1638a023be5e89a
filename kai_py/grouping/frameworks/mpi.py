"""MPIJob: a launcher and workers, where the launcher may be created later.

With ``launcherCreationPolicy: WaitForWorkersReady`` the launcher is created when the workers run: a
minMember that includes it would never be reached. The workers start when it fits as well, and it
counts once its pod exists.

Source: kubeflow.org/v1 and v2beta1.
"""

from kai_py.api.records.core import Pod
from kai_py.api.records.unstructured import Unstructured
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
"""Where both are set (v1), the second calls the launcher the master of its job."""
REPLICA_SPECS = "spec.mpiReplicaSpecs"
LAUNCHER_TEMPLATE = f"{REPLICA_SPECS}.Launcher.template"
MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"
CREATION_POLICY = "spec.launcherCreationPolicy"
LAUNCHER = "launcher"
WORKER = "worker"

INDEX_LABEL = "training.kubeflow.org/replica-index"
_index = number_label_reader(INDEX_LABEL)


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    mpi_job = full_owner(workload)
    launchers, workers = (_replicas(mpi_job, role) for role in ("Launcher", "Worker"))
    all_pods = launchers + workers
    min_members = count_at(mpi_job.content, MIN_AVAILABLE, all_pods)
    if min_members > all_pods:
        raise InvalidWorkloadError(
            f"minMember {min_members} can never be reached: at most {all_pods} pods exist at once"
        )
    first, rest = min(launchers, min_members), max(min_members - launchers, 0)
    roles = _roles(workload, (launchers, workers), (first, rest))
    whole = Subgroup(children=roles.subgroups)
    later = Subgroup(children=_roles(workload, (launchers, workers), (0, rest)).subgroups)
    launcher_later = mpi_job.first_at(CREATION_POLICY) == "WaitForWorkersReady"
    return GangTemplate(
        tree=later if launcher_later else whole,
        tree_with=(lambda pod: whole if _role(pod) == LAUNCHER else later)
        if launcher_later
        else None,
        subgroup_of=roles.reader(_role),
        order_of=_rank,
        total_pods=all_pods,
        expected=_launchers(mpi_job, launchers) if launcher_later else (),
    )


def _launchers(found: Unstructured, count: int) -> tuple[ExpectedPods, ...]:
    """The pods that are created when the workers run."""
    template = next(iter(entries(found.content, LAUNCHER_TEMPLATE)), {})
    pod = pod_of_template(template, found.metadata, LAUNCHER_TEMPLATE)
    return (ExpectedPods(LAUNCHER, count, pod),)


def _roles(
    workload: WorkloadOwner, pods: tuple[int, int], min_members: tuple[int, int]
) -> RoleLeaves:
    """The leaves of launchers and workers."""
    (launchers, workers), (first, rest) = pods, min_members
    content = full_owner(workload).content
    templates = [
        template_annotations(content, f"{REPLICA_SPECS}.{role}.template")
        for role in ("Launcher", "Worker")
    ]
    return role_leaves(
        workload,
        (
            Role(LAUNCHER, launchers, first, templates[0], INDEX_LABEL),
            Role(WORKER, workers, rest, templates[1], INDEX_LABEL, has_segments_of_workload=True),
        ),
    )


def _replicas(found: Unstructured, role: str) -> int:
    """The replicas of a role; a launcher may run without workers (mpi-operator, v2beta1)."""
    roles = entries(found.content, f"{REPLICA_SPECS}.{role}")
    if not roles and role == "Worker":
        return 0
    if not roles:
        raise InvalidWorkloadError(f"{REPLICA_SPECS}.{role} is missing")
    return count_at(roles[0], "replicas", 1, location=f"{REPLICA_SPECS}.{role}")


def _role(pod: Pod) -> str:
    labels = pod.metadata.labels
    return next((labels[key].lower() for key in ROLE_LABELS if key in labels), "")


def _rank(pod: Pod) -> int:
    """The launcher, then the workers by index."""
    return 0 if _role(pod) == LAUNCHER else 1 + _index(pod)


MPI_JOB = Framework(
    field_paths=(
        MIN_AVAILABLE,
        CREATION_POLICY,
        f"{REPLICA_SPECS}.*.replicas",
        f"{REPLICA_SPECS}.*.template.metadata.annotations",
        *template_paths(LAUNCHER_TEMPLATE),
    ),
    gang_template=_gang_template,
)
