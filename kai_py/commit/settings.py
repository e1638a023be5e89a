"""Settings of commit; times in seconds."""

from collections.abc import Callable

from msgspec import Struct, field, structs

from kai_py.api.autoscaling import AutoscalingConfig
from kai_py.api.records.core import ObjectMeta
from kai_py.commit.claims.binding_conditions import ReadinessPolicy
from kai_py.commit.gpu_reservations import GpuDelivery
from kai_py.commit.retry import RetryPolicy
from kai_py.config import DoubleAllocationPolicy

FAILED_DEVICE_SECONDS = 60.0


class CommitSettings(Struct, frozen=True):
    """Limits, timeouts (in seconds) and policies of commit, and the scheduler's names."""

    scheduler_name: str = "kai-scheduler"
    """Pods name it; it also reports events."""
    scheduler_aliases: tuple[str, ...] = ()
    """Other names that pods may name."""
    concurrency: int = 16
    """Bindings and claim writes of one namespace under way at once; 16 keep an API server on two
    cores busy, more only queue there. For several namespaces see ``CallLimit``."""
    status_concurrency: int = 4
    events_per_second: float = 50.0
    events_burst: int = 200
    message_interval: float = 10.0
    queue_status_interval: float = 5.0
    """Least time between two writes of a queue's status."""
    write_kai_statuses: bool = True
    """Whether to write the statuses of KAI's objects."""
    write_grove_statuses: bool = False
    """Whether to write the statuses of Grove's objects."""
    node_pool: str = ""
    """The node pool in KAI's conditions."""
    pool_label: str = ""
    """The label that names the pool of a queue; statuses of other pools are not written."""
    autoscaling: AutoscalingConfig = field(default_factory=AutoscalingConfig)
    """How gangs request nodes."""
    mirror_timeout: float = 10.0
    """How long the mirror may take to show a write."""
    claim_grace: float = 90.0
    """How long a claim may stay allocated to pods that are not going to be bound."""
    repair_interval: float = 10.0
    """Time between two looks for bound pods without their devices."""
    failed_device_backoff: float = FAILED_DEVICE_SECONDS
    """How long a device that its driver could not make ready is not allocated."""
    double_allocation: DoubleAllocationPolicy = DoubleAllocationPolicy.GIVE_WAY_BEFORE_START
    """Policy for a device that another scheduler allocates too."""
    gpus: GpuDelivery | None = None
    """How shared GPUs reach containers, None where they do not."""
    gpu_interval: float = 1.0
    """Time between two looks for reservation pods that are not needed."""
    max_grace: float = 1800.0
    """The longest grace period of an evicted pod."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """Retries of a single call."""
    backoff: RetryPolicy = field(default_factory=lambda: RetryPolicy(base=0.5, maximum=60.0))
    """Backoff of a gang, pod or queue as a whole."""
    settle_pause: RetryPolicy = field(default_factory=lambda: RetryPolicy(base=1.0, maximum=30.0))
    """Pauses between reads that are repeated until one of them succeeds."""
    readiness: ReadinessPolicy = field(default_factory=ReadinessPolicy)

    def reports_on(self, queue: ObjectMeta) -> bool:
        """Whether this pool writes the status of a queue; all pools do if the queue names none."""
        return queue.labels.get(self.pool_label, self.node_pool) == self.node_pool

    @property
    def scheduler_names(self) -> frozenset[str]:
        """All names under which pods are ours."""
        return frozenset((self.scheduler_name, *self.scheduler_aliases))

    def with_jitter(self, uniform: Callable[[float, float], float]) -> "CommitSettings":
        """These settings with waits drawn by ``uniform``, a number between two others."""
        return structs.replace(
            self,
            retry=structs.replace(self.retry, uniform=uniform),
            backoff=structs.replace(self.backoff, uniform=uniform),
            settle_pause=structs.replace(self.settle_pause, uniform=uniform),
        )
