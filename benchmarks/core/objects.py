"""Objects of a cluster as the peer's benchmarks have them, made fast: equal parts are shared.

Nodes have 8 GPUs, 20,000 cores, 20 GB and capacity for 110 pods; a pod asks for one core and 1 GB
beside its GPUs. Jobs come one minute after another.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from msgspec.structs import replace

from kai_py.api.gpu_share import GPU_FRACTION, GPU_GROUP
from kai_py.api.queue import read_queue
from kai_py.api.records.core import (
    Affinity,
    Condition,
    Container,
    LabelSelector,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kai_py.api.records.job import Job, JobSpec
from kai_py.api.records.node import Node, NodeStatus
from kai_py.watch.kinds import WatchedQueue

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
NOW = EPOCH.timestamp() + 40 * 86_400
NAMESPACE = "default"
QUEUE_KEY = "scheduling.kai.io/queue-name"
NODE_GPUS = 8
RACK, BLOCK = "rack", "block"
REQUIRED_KEY = "kai.scheduler/topology-required-placement"
APART = {"apart": "true"}
HALF = {GPU_FRACTION: "0.5"}
READY = NodeStatus(
    allocatable={"cpu": "20000", "memory": "20G", "pods": "110", "nvidia.com/gpu": str(NODE_GPUS)},
    conditions=(Condition(type="Ready", status="True"),),
)


def nodes(count: int, *, racks: int = 0, block: int = 0) -> list[Node]:
    """``count`` alike nodes; dealt to ``racks``, or in blocks of ``block``, if there are any."""
    return [
        Node(
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-{name}",
                labels={"kubernetes.io/hostname": name}
                | ({RACK: f"rack-{i % racks}"} if racks else {})
                | ({BLOCK: f"block-{i // block}"} if block else {}),
            ),
            status=READY,
        )
        for i, name in enumerate(map(node_name, range(count)))
    ]


def node_name(i: int) -> str:
    """The name of node number ``i``."""
    return f"node-{i:05d}"


def queue(
    name: str, deserved: float = 0.0, *, parent: str = "", weight: float = 1.0, **spec: object
) -> WatchedQueue:
    """A Queue without a limit."""
    document = {"deservedGPUs": deserved, "weight": weight, **spec}
    if parent:
        document["parent"] = parent
    record = read_queue({"metadata": {"name": name}, "spec": document})
    return WatchedQueue(
        ObjectMeta(name=name, uid=f"queue-{name}", creation_timestamp=EPOCH), record
    )


def departments(gpus: float) -> list[WatchedQueue]:
    """Four queues in two departments; each deserves its part of the cluster and may borrow."""
    return grouped_queues(queues=4, departments=2, gpus=gpus)


def grouped_queues(*, queues: int, departments: int, gpus: float) -> list[WatchedQueue]:
    """``queues`` dealt to ``departments``, everything divided equally."""
    per_department = queues // departments
    parents = [queue(f"dept-{d}", gpus / departments) for d in range(departments)]
    leaves = [
        queue(f"queue-{q}", gpus / queues, parent=f"dept-{q // per_department}")
        for q in range(queues)
    ]
    return [*parents, *leaves]


@dataclass(frozen=True, kw_only=True)
class Work:
    """A workload: ``pods`` alike pods that start together; ``on``: their nodes if they run.

    ``within``: the topology level, a node label, of which one domain must hold them all. ``half``:
    the GPU of which each pod has a half, its number in the cluster, in place of ``gpus``.
    """

    name: str
    queue: str
    pods: int = 1
    gpus: int = 1
    cpu: int = 1
    number: int = 0
    priority: int | None = None
    on: tuple[int, ...] = ()
    one_per_rack: bool = False
    within: str = ""
    half: int | None = None

    @property
    def created(self) -> datetime:
        """A minute after the one before."""
        return EPOCH + timedelta(minutes=self.number)

    def objects(self) -> Iterable[Job | Pod]:
        """Its Job, if it has several pods, and its pods."""
        owners: tuple[OwnerReference, ...] = ()
        if self.pods > 1:
            job = self._job()
            reference = OwnerReference(
                api_version="batch/v1",
                kind="Job",
                name=self.name,
                uid=job.metadata.uid,
                controller=True,
            )
            owners = (reference,)
            yield job
        for i in range(self.pods):
            yield self._pod(f"{self.name}-{i}", self.on[i] if self.on else None, owners)

    def _job(self) -> Job:
        meta = ObjectMeta(
            name=self.name,
            namespace=NAMESPACE,
            uid=f"job-{self.name}",
            creation_timestamp=self.created,
            annotations={QUEUE_KEY: self.queue}
            | ({REQUIRED_KEY: self.within} if self.within else {}),
        )
        return Job(metadata=meta, spec=JobSpec(parallelism=self.pods, completions=self.pods))

    def _pod(self, name: str, node: int | None, owners: tuple[OwnerReference, ...]) -> Pod:
        spec = pod_spec(0 if self.half is not None else self.gpus, self.cpu)
        labels = dict(APART) if self.one_per_rack else {}
        if self.half is not None and node is not None:
            labels[GPU_GROUP] = f"gpu-{self.half}"
        if node is not None:
            spec = replace(spec, node_name=node_name(node))
        if self.priority is not None:
            spec = replace(spec, priority=self.priority)
        if self.one_per_rack:
            spec = replace(spec, affinity=ONE_PER_RACK)
        return Pod(
            metadata=ObjectMeta(
                name=name,
                namespace=NAMESPACE,
                uid=f"pod-{name}",
                creation_timestamp=self.created,
                annotations=_marks(self.queue) | ({} if self.half is None else HALF),
                labels=labels,
                owner_references=owners,
            ),
            spec=spec,
            status=PENDING if node is None else _running(self.created),
        )


PENDING = PodStatus(phase="Pending")
ONE_PER_RACK = Affinity(
    pod_anti_affinity=PodAffinity(
        required=(
            PodAffinityTerm(label_selector=LabelSelector(match_labels=APART), topology_key=RACK),
        )
    )
)


@cache
def pod_spec(gpus: int, cpu: int = 1, scheduler: str = "kai-scheduler") -> PodSpec:
    """One container that asks for GPUs, cores and 1 GB."""
    requests: dict[str, str | int | float] = {"cpu": str(cpu), "memory": "1G"}
    if gpus:
        requests["nvidia.com/gpu"] = str(gpus)
    resources = ResourceRequirements(requests=requests)
    return PodSpec(
        scheduler_name=scheduler, containers=(Container(name="main", resources=resources),)
    )


@cache
def _marks(queue_name: str) -> dict[str, str]:
    return {QUEUE_KEY: queue_name}


@cache
def _running(since: datetime) -> PodStatus:
    scheduled = Condition(type="PodScheduled", status="True", last_transition_time=since)
    return PodStatus(phase="Running", conditions=(scheduled,))
