"""What the parts of the executor share: the client, the views of the cluster, the settings."""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.commit.api_access import ApiAccess
from kai_py.commit.assume_cache import AssumeCache
from kai_py.commit.call_limit import CallLimit
from kai_py.commit.claims.device_holders import DeviceHolders
from kai_py.commit.claims.recovery import ClaimingGroups
from kai_py.commit.gpus.groups import SharedGpuGroups
from kai_py.commit.settings import CommitSettings
from kai_py.observe.failures import Failures
from kai_py.observe.metrics import Metrics
from kai_py.watch.client import Client
from kai_py.watch.freshness import Freshness
from kai_py.watch.kinds import PODS, RESOURCE_CLAIMS
from kai_py.watch.mirror import Mirror


@dataclass(frozen=True)
class ExecutorDependencies:
    """Inputs of an executor.

    ``wake`` requests a cycle in that many seconds; ``identity`` names this process in events;
    ``failures`` contains exceptions about single objects.
    """

    client: Client
    mirror: Mirror
    freshness: Freshness
    assume_cache: AssumeCache
    claiming_groups: ClaimingGroups
    holders: DeviceHolders
    gpu_groups: SharedGpuGroups
    metrics: Metrics
    settings: CommitSettings
    identity: str
    wake: Callable[[float], None]
    failures: Failures

    @property
    def is_fresh(self) -> bool:
        """Whether no view is silent or behind, so that what it lacks is really gone."""
        return not self.freshness.silent() and not self.freshness.behind()

    def access(self, concurrency: int) -> ApiAccess:
        """Access to the API server with at most ``concurrency`` calls about one namespace."""
        return ApiAccess(
            client=self.client,
            pods=PODS.at(),
            claims=self.mirror.served(RESOURCE_CLAIMS) or RESOURCE_CLAIMS.at(),
            limiter=CallLimit(concurrency),
            retry=self.settings.retry,
            settle_pause=self.settings.settle_pause,
        )

    def count_repair(self, outcome: str) -> None:
        """Count the end of a repair in the metrics."""
        self.metrics.repairs.labels(outcome).inc()
