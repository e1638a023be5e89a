"""MPIJob: a launcher and workers, of which the launcher may come later.

With ``launcherCreationPolicy: WaitForWorkersReady`` the launcher is made when the workers run: a
floor with it in it would never be reached. It counts once its pod exists.

Source: kubeflow.org/v1 and v2beta1.
"""

from kai_py.api.records.core import Pod
from kai_py.api.records.document import Document
from kai_py.grouping.blueprint import (
    Blueprint,
    Framework,
    Unusable,
    Workload,
    number_label,
    whole_document,
)
from kai_py.grouping.counts import count_at, entries
from kai_py.grouping.gang import Subgroup

ROLE_LABELS = ("training.kubeflow.org/job-role", "training.kubeflow.org/replica-type")
SPECS = "spec.mpiReplicaSpecs"
MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"
CREATION = "spec.launcherCreationPolicy"
LAUNCHER = "launcher"
WORKER = "worker"

_index = number_label("training.kubeflow.org/replica-index")


def _blueprint(workload: Workload) -> Blueprint:
    found = whole_document(workload)
    launchers, workers = (_replicas(found, role) for role in ("Launcher", "Worker"))
    everyone = launchers + workers
    floor = count_at(found.content, MIN_AVAILABLE, everyone)
    if floor > everyone:
        raise Unusable(f"a gang of {floor} can never start: at most {everyone} pods exist at once")
    whole = _tree(min(launchers, floor), max(floor - launchers, 0))
    without = _tree(0, max(floor - launchers, 0))
    later = found.first_at(CREATION) == "WaitForWorkersReady"
    return Blueprint(
        tree=without if later else whole,
        grown=(lambda pod: whole if _role(pod) == LAUNCHER else without) if later else None,
        leaf=_role,
        rank=_rank,
        expected_pods=everyone,
    )


def _replicas(found: Document, role: str) -> int:
    roles = entries(found.content, f"{SPECS}.{role}")
    if not roles:
        raise Unusable(f"{SPECS}.{role} is missing")
    return count_at(roles[0], "replicas", 1, where=f"{SPECS}.{role}")


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


MPI_JOB = Framework(paths=(MIN_AVAILABLE, CREATION, f"{SPECS}.*.replicas"), blueprint=_blueprint)
