"""What tenants edit on running work while no scheduler runs gives them nothing, after it either.

The process that starts after the edit knows only what the API server has: the record on each pod.
"""

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import (
    QUEUE_KEY,
    TEMPLATE,
    claim_template,
    job,
    pod_spec,
    queue,
)
from tests.support.cluster.manifests import priority_class as high_class
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

JOB = "/apis/batch/v1/namespaces/default/jobs/first"
PATIENCE = 30.0
PREEMPTIBILITY = "scheduling.kai.io/preemptibility"


async def edit_all(cluster: Cluster, **annotations: str) -> None:
    """Edit the Job and every pod of it, as a tenant may."""
    body = {"metadata": {"annotations": annotations}}
    await cluster.api.patch(JOB, body)
    pods = "/api/v1/namespaces/default/pods"
    for found in await cluster.api.items(pods):
        if found["metadata"]["name"].startswith("first"):
            await cluster.api.patch(f"{pods}/{found['metadata']['name']}", body)


async def test_a_running_job_that_names_another_queue_stays_charged_to_its_own(
    cluster: Cluster,
) -> None:
    await install_definitions(cluster.api)
    view = View(cluster.api)
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(
            queue("team-a", deservedGPUs=4, maxGPUs=4),
            queue("team-b", deservedGPUs=4, maxGPUs=4),
            claim_template(),
            job("first", 4),
        )
        async with scheduling(cluster):
            await view.wait_bound("first", 4, within=PATIENCE)
        await edit_all(cluster, **{QUEUE_KEY: "team-b"})
        async with scheduling(cluster):
            await cluster.submit(job("second", 4))
            message = await view.wait_pending("second", 4, reason="QueueMax")
            assert "team-a" in message
            await cluster.submit(job("third", 4, annotations={QUEUE_KEY: "team-b"}))
            await view.wait_bound("third", 4, within=PATIENCE)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_running_job_that_turns_non_preemptible_is_preempted_nevertheless(
    cluster: Cluster, restart: bool
) -> None:
    await install_definitions(cluster.api)
    view, high = View(cluster.api), pod_spec(template=TEMPLATE, priorityClassName="high")
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), high_class("high", 1000), claim_template(), job("first", 4))
        async with scheduling(cluster):
            await view.wait_bound("first", 4, within=PATIENCE)
            if not restart:
                await edit_all(cluster, **{PREEMPTIBILITY: "non-preemptible"})
                await cluster.submit(job("urgent", 4, high))
                await view.wait_bound("urgent", 4, within=PATIENCE)
                return
        await edit_all(cluster, **{PREEMPTIBILITY: "non-preemptible"})
        async with scheduling(cluster):
            await cluster.submit(job("urgent", 4, high))
            await view.wait_bound("urgent", 4, within=PATIENCE)
