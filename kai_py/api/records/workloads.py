"""What controllers read of the workloads that Kubernetes itself runs, to check the types of fields.

The scheduler reads less of them: of Jobs what says how many pods start, of the others metadata.
"""

from kai_py.api.records.core import LabelSelector, ObjectMeta
from kai_py.api.records.job import PodTemplate
from kai_py.api.records.record import Record
from kai_py.api.records.storage import PersistentVolumeClaim

REPLICATED = ("Deployment", "ReplicaSet", "StatefulSet")


class WorkloadCondition(Record, frozen=True):
    """A condition of a workload."""

    type: str = ""
    status: str = ""
    reason: str = ""


class WorkloadSpec(Record, frozen=True):
    """The fields that workloads have in common, and the claims of a StatefulSet."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()
    volume_claim_templates: tuple[PersistentVolumeClaim, ...] = ()


class WorkloadStatus(Record, frozen=True):
    """What controllers write."""

    replicas: int = 0
    ready_replicas: int = 0
    observed_generation: int = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class Workload(Record, frozen=True):
    """A Job, Deployment, ReplicaSet or StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
