"""Settings of commit; times in seconds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kai_py.api.autoscaling import AutoscalingConfig
from kai_py.api.records.core import ObjectMeta
from kai_py.commit.claims.binding_conditions import ReadinessPolicy
from kai_py.commit.gpus.reservations import GpuDelivery
from kai_py.commit.retry import RetryPolicy
from kai_py.config import DoubleAllocationPolicy


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """Limits, timeouts and policies of commit, and the scheduler's names.

    ``scheduler_name`` also reports events; pods may name it or one of ``scheduler_aliases``.
    ``concurrency``: bindings and claim writes under way at once; 16 is where an API server on two
    cores is busiest, more only queues there. ``mirror_timeout``: how long the mirror may take to
    show a write. ``write_kai_statuses``, ``write_grove_statuses``: whether to write the statuses of
    KAI's and Grove's objects; ``node_pool``: the node pool in KAI's conditions, by
    ``pool_label`` that of queues whose status is written. ``autoscaling``:
    how gangs request nodes. ``claim_grace``: how long a claim may stay allocated to pods that are
    not going to be bound. ``repair_interval``: time between two looks for bound pods without their
    devices. ``failed_device_backoff``: how long a device that its driver could not
    make ready is not allocated. ``double_allocation``: policy for a device that another scheduler
    allocates too. ``queue_status_interval``: least time between two writes of a queue's status.
    ``gpus``: how shared GPUs reach containers, None where they do not; ``gpu_interval``: time
    between two looks for reservation pods that are not needed. ``max_grace``: the longest grace
    period of an evicted pod.
    ``retry`` is for a single call, ``backoff`` for a gang, pod or queue as a whole,
    ``settle_pause`` for reads that are repeated until one of them succeeds.
    """

    scheduler_name: str = "kai-scheduler"
    scheduler_aliases: tuple[str, ...] = ()
    concurrency: int = 16
    status_concurrency: int = 4
    events_per_second: float = 50.0
    events_burst: int = 200
    message_interval: float = 10.0
    queue_status_interval: float = 5.0
    write_kai_statuses: bool = True
    write_grove_statuses: bool = False
    node_pool: str = ""
    pool_label: str = ""
    autoscaling: AutoscalingConfig = field(default_factory=AutoscalingConfig)
    mirror_timeout: float = 10.0
    claim_grace: float = 90.0
    repair_interval: float = 10.0
    failed_device_backoff: float = 60.0
    double_allocation: DoubleAllocationPolicy = DoubleAllocationPolicy.GIVE_WAY_BEFORE_START
    gpus: GpuDelivery | None = None
    gpu_interval: float = 1.0
    max_grace: float = 1800.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    backoff: RetryPolicy = field(default_factory=lambda: RetryPolicy(base=0.5, maximum=60.0))
    settle_pause: RetryPolicy = field(default_factory=lambda: RetryPolicy(base=1.0, maximum=30.0))
    readiness: ReadinessPolicy = field(default_factory=ReadinessPolicy)

    def reports_on(self, queue: ObjectMeta) -> bool:
        """Whether this pool writes the status of a queue: those that name no pool, each writes."""
        return queue.labels.get(self.pool_label, self.node_pool) == self.node_pool

    @property
    def scheduler_names(self) -> frozenset[str]:
        """All names under which pods are ours."""
        return frozenset((self.scheduler_name, *self.scheduler_aliases))

    def with_jitter(self, uniform: Callable[[float, float], float]) -> "CommitSettings":
        """These settings with waits drawn by ``uniform``, a number between two others."""
        return replace(
            self,
            retry=replace(self.retry, uniform=uniform),
            backoff=replace(self.backoff, uniform=uniform),
            settle_pause=replace(self.settle_pause, uniform=uniform),
        )
