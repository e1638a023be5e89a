"""Grouping: pods and owners of ten kinds, cold, and one pod's event after that."""

from collections.abc import Iterator
from functools import partial

from benchmarks.row import Benchmark, Measured
from benchmarks.timing import median_seconds, peak_resident_mb
from kai_py.api.records.core import ObjectMeta, OwnerReference, PartialObjectMetadata, Pod
from kai_py.api.records.job import Job, JobSpec
from kai_py.api.records.unstructured import Unstructured, unstructured
from kai_py.grouping.grouper import Grouper
from kai_py.grouping.owner_chain import Absence, GroupKind, OwnerObject
from kai_py.grouping.rule_table import RuleTable, shipped_rules

OWNERS = 5_000
PODS_EACH = 20
QUEUE = {"scheduling.kai.io/queue-name": "team"}
LWS = "leaderworkerset.sigs.k8s.io"
JOBSET = "jobset.sigs.k8s.io"
ROLE = "training.kubeflow.org/replica-type"
GANG = {"replicas": PODS_EACH}
KINDS: tuple[tuple[str, str, dict[str, object], dict[str, str]], ...] = (
    ("batch", "Job", {}, {}),
    ("apps", "Deployment", {}, {}),
    ("apps", "StatefulSet", {}, {}),
    ("kubeflow.org", "Notebook", {}, {}),
    ("kubeflow.org", "TFJob", {"tfReplicaSpecs": {"Worker": GANG}}, {}),
    ("kubeflow.org", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": GANG}}, {ROLE: "worker"}),
    (
        "jobset.x-k8s.io",
        "JobSet",
        {"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": PODS_EACH}}}]},
        {f"{JOBSET}/replicatedjob-name": "w", f"{JOBSET}/job-index": "0"},
    ),
    (
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"size": PODS_EACH}},
        {f"{LWS}/group-index": "0"},
    ),
    (
        "ray.io",
        "RayCluster",
        {"workerGroupSpecs": [{"groupName": "w", "replicas": PODS_EACH}]},
        {"ray.io/group": "w"},
    ),
    ("example.com", "Campaign", {}, {}),
)


class Known:
    """Owners by uid."""

    def __init__(self) -> None:
        self.by_uid: dict[str, OwnerObject] = {}

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        """The owner by its uid."""
        return self.by_uid.get(reference.uid, Absence.NOT_FOUND)

    def namespace(self, name: str) -> PartialObjectMetadata | None:
        """None: no namespace names a queue."""

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        """None: no groups are named."""


def grouping_benchmarks() -> list[Benchmark]:
    """Cold, and one event."""
    return [
        Benchmark(
            part="core",
            name="grouping-cold",
            title="grouping 100,000 pods of 5,000 owners of ten kinds, nothing worked out before",
            run=partial(measure, events=False),
            aim="2 s",
        ),
        Benchmark(
            part="core",
            name="grouping-event",
            title="— one pod's event after that (mean of 100,000)",
            run=partial(measure, events=True),
            aim="0.2 ms",
        ),
    ]


def measure(*, events: bool) -> Measured:
    """Group every pod, either with a new grouper or with one that knows their owners."""
    known = Known()
    pods = [pod for number in range(OWNERS) for pod in _workload(number, known)]
    warm = Grouper()

    def group() -> int:
        grouper = warm if events else Grouper()
        return len({grouper.identify(pod, known).key for pod in pods})

    group()
    seconds, gangs = median_seconds(group, most=5)
    return Measured(
        seconds=seconds / len(pods) if events else seconds,
        outcome=f"{gangs:,} gangs",
        peak_mb=peak_resident_mb(),
    )


def _workload(number: int, known: Known) -> Iterator[Pod]:
    group, kind, spec, labels = KINDS[number % len(KINDS)]
    meta = ObjectMeta(
        name=f"w-{number}", namespace="default", uid=f"owner-{number}", annotations=QUEUE
    )
    known.by_uid[meta.uid] = _owner(GroupKind(group, kind), meta, spec)
    reference = OwnerReference(
        api_version=f"{group}/v1", kind=kind, name=meta.name, uid=meta.uid, controller=True
    )
    for index in range(PODS_EACH):
        name = f"w-{number}-{index}"
        yield Pod(
            metadata=ObjectMeta(
                name=name,
                namespace="default",
                uid=name,
                labels=labels | {f"{LWS}/worker-index": str(index)},
                owner_references=(reference,),
            )
        )


def _owner(kind: GroupKind, meta: ObjectMeta, spec: dict[str, object]) -> OwnerObject:
    if kind.kind == "Job":
        return Job(metadata=meta, spec=JobSpec(parallelism=PODS_EACH, completions=PODS_EACH))
    if not spec:
        return PartialObjectMetadata(metadata=meta)
    kept = unstructured({"spec": spec}, RuleTable(shipped_rules()).paths(kind))
    return Unstructured(kind=kind.kind, metadata=meta, content=kept.content)
