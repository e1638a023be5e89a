"""MPIJob: a launcher and workers, where the launcher may be created later.

With ``launcherCreationPolicy: WaitForWorkersReady`` the launcher is created when the workers run: a
minMember that includes it would never be reached. It counts once its pod exists.

Source: kubeflow.org/v1 and v2beta1.
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
    number_label_reader,
)

ROLE_LABELS = ("training.kubeflow.org/job-role", "training.kubeflow.org/replica-type")
REPLICA_SPECS = "spec.mpiReplicaSpecs"
MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"
CREATION_POLICY = "spec.launcherCreationPolicy"
LAUNCHER = "launcher"
WORKER = "worker"

_index = number_label_reader("training.kubeflow.org/replica-index")


def _gang_template(workload: WorkloadOwner) -> GangTemplate:
    mpi_job = full_owner(workload)
    launchers, workers = (_replicas(mpi_job, role) for role in ("Launcher", "Worker"))
    all_pods = launchers + workers
    min_members = count_at(mpi_job.content, MIN_AVAILABLE, all_pods)
    if min_members > all_pods:
        raise InvalidWorkloadError(
            f"minMember {min_members} can never be reached: at most {all_pods} pods exist at once"
        )
    whole = _tree(min(launchers, min_members), max(min_members - launchers, 0))
    without_launcher = _tree(0, max(min_members - launchers, 0))
    launcher_later = mpi_job.first_at(CREATION_POLICY) == "WaitForWorkersReady"
    return GangTemplate(
        tree=without_launcher if launcher_later else whole,
        tree_with=(lambda pod: whole if _role(pod) == LAUNCHER else without_launcher)
        if launcher_later
        else None,
        subgroup_of=_role,
        order_of=_rank,
        total_pods=all_pods,
    )


def _replicas(found: Unstructured, role: str) -> int:
    roles = entries(found.content, f"{REPLICA_SPECS}.{role}")
    if not roles:
        raise InvalidWorkloadError(f"{REPLICA_SPECS}.{role} is missing")
    return count_at(roles[0], "replicas", 1, location=f"{REPLICA_SPECS}.{role}")


def _tree(launchers: int, workers: int) -> Subgroup:
    return Subgroup(
        children=(
            Subgroup(name=LAUNCHER, min_members=launchers),
            Subgroup(name=WORKER, min_members=workers),
        )
    )


def _role(pod: Pod) -> str:
    labels = pod.metadata.labels
    return next((labels[key].lower() for key in ROLE_LABELS if key in labels), "")


def _rank(pod: Pod) -> int:
    """The launcher, then the workers by index."""
    return 0 if _role(pod) == LAUNCHER else 1 + _index(pod)


MPI_JOB = Framework(
    field_paths=(MIN_AVAILABLE, CREATION_POLICY, f"{REPLICA_SPECS}.*.replicas"),
    gang_template=_gang_template,
)
