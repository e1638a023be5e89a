"""What must outlive the scheduler's process is kept in the cluster and read again."""

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import (
    IN_TEAM_A,
    TEMPLATE,
    claim_template,
    pod,
    pod_spec,
    priority_class,
    queue,
)
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View


def prioritised(name: str, priority: str):
    spec = pod_spec(template=TEMPLATE, priorityClassName=priority)
    return pod(name, spec, annotations=IN_TEAM_A)


async def test_the_limit_of_evictions_counts_those_before_a_restart(cluster: Cluster, view: View):
    await install_definitions(cluster.api)
    await cluster.submit(
        queue(maxEvictionsPerHour=1),
        priority_class("low", 10),
        priority_class("high", 1000),
        claim_template(),
    )

    async def told() -> list[int]:
        path = "/apis/scheduling.kai.io/v1alpha1/queues/team-a"
        status = (await cluster.api.get(path)).get("status", {})
        return [each["pods"] for each in status.get("evictions", [])]

    async with cluster.run_nodes(gpu_nodes(1, published_gpus=2)):
        async with scheduling(cluster, identity="before"):
            await cluster.submit(prioritised("low-0", "low"), prioritised("low-1", "low"))
            await view.wait_bound("low", 2)
            await cluster.submit(prioritised("high-0", "high"))
            await view.wait_bound("high-0", 1)
            assert await eventually(told, what="the eviction in the status of the queue") == [1]
        async with scheduling(cluster, identity="after"):
            await cluster.submit(prioritised("high-1", "high"))
            await view.wait_pending("high-1", 1, reason="Unschedulable")
            assert len(await view.bound("low")) == 1
            assert await told() == [1]
