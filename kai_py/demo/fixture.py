"""The demo's cluster and scheduler.

The scheduler is the one that ``kai-py run`` runs, over HTTP on loopback, with its lease; only the
kubelets are simulated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from kai_py.api.crd import crds
from kai_py.api.eviction import EvictionConfig
from kai_py.config import Configuration, LeaderElectionConfig
from kai_py.demo.script import GPUS_PER_NODE, Script
from kai_py.demo.workloads import PLUGIN_NODES, setup_manifests
from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.embedded.kubelet import PodTiming
from kai_py.embedded.nodes import h100_node, h100_slices, nvidia_device_classes
from kai_py.observe.metrics import Metrics
from kai_py.plan.plan import Plan
from kai_py.scheduler import Scheduler
from kai_py.watch.client import connect
from kai_py.watch.credentials import Anonymous

RACKS = 2
PLUGIN_NODE = "plugin-0"
MAX_START_SECONDS = 1.0
MIN_START_SECONDS = 0.3
"""Least seconds until a bound pod runs; with less a client would not see it start."""


LEASE_SECONDS = 30 * 24 * 3600.0
"""The cluster is in this process and ends with it: a lease that is lost because the machine is busy
or asleep would only take the cluster from its user. Another scheduler still sees who leads."""

CONFIGURATION = Configuration(
    # The demo's workloads end within a minute: with patience, none of them would be evicted.
    eviction=EvictionConfig(patience=0.0, settling_time=0.0, evictions_per_day=0),
    leader_election=LeaderElectionConfig(
        duration=LEASE_SECONDS, renew_deadline=LEASE_SECONDS - 3600.0
    ),
)


@asynccontextmanager
async def demo_cluster(script: Script, *, speed: float) -> AsyncIterator[EmbeddedCluster]:
    """A cluster with everything but Jobs; pods start and stop ``speed`` times faster."""
    timing = PodTiming(
        start=max(MAX_START_SECONDS / speed, MIN_START_SECONDS), stop=min(1.0, 1.0 / speed)
    )
    async with EmbeddedCluster(timing=timing) as cluster:
        cluster.create_all(crds().values())
        cluster.create_all(nvidia_device_classes())
        for index in range(script.nodes):
            name = f"h100-{index}"
            rack = f"rack-{index * RACKS // script.nodes}"
            cluster.create(h100_node(name, rack=rack, gpus=GPUS_PER_NODE))
            cluster.create_all(h100_slices(name, gpus=GPUS_PER_NODE))
        last_rack = f"rack-{RACKS - 1}"
        cluster.create(
            h100_node(PLUGIN_NODE, rack=last_rack, device_plugin=True, labels=PLUGIN_NODES)
        )
        cluster.create_all(setup_manifests(script.queues, script.priorities, script.workloads))
        yield cluster


@asynccontextmanager
async def running_scheduler(
    cluster: EmbeddedCluster, on_plan: Callable[[Plan], None]
) -> AsyncIterator[Scheduler]:
    """A scheduler on the cluster; its failure ends the block."""
    metrics = Metrics(CollectorRegistry())
    async with (
        connect(Anonymous(cluster.url), on_call=metrics.count_call) as client,
        asyncio.TaskGroup() as group,
    ):
        scheduler = Scheduler(
            client, CONFIGURATION, metrics, identity="kai-py-demo", on_plan=on_plan
        )
        running = group.create_task(scheduler.run())
        try:
            yield scheduler
        finally:
            scheduler.stop()
            await asyncio.wait((running,))
