"""Pods behind our scheduling gate: no nodes are asked for before their queue has capacity."""

import pytest

from kai_py.api.queue import ADMISSION_GATE
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import IN_TEAM_A, job, pod_spec, queue
from tests.support.cluster.view import View, scheduled_condition

QUEUES = "/apis/scheduling.kai.io/v1alpha1/queues"


@pytest.mark.usefixtures("scheduler")
async def test_a_gang_is_let_in_when_its_queue_has_capacity(cluster: Cluster, view: View):
    gated = pod_spec(gpus=1, schedulingGates=[{"name": ADMISSION_GATE}])
    await cluster.submit(
        queue(maxGPUs=1, deservedGPUs=1), job("train", 2, gated, annotations=IN_TEAM_A)
    )

    async def told() -> bool:
        notes = await view.events(kind="Job", name="train", reason="FailedScheduling")
        return any("quota has reached the allowable limit" in note for note in notes)

    await eventually(told)
    assert {scheduled_condition(p)["reason"] for p in await view.pods("train")} == {
        "SchedulingGated"
    }
    await cluster.api.patch(f"{QUEUES}/team-a", {"spec": {"maxGPUs": 2}})
    await view.wait_pending("train", 2, reason="Unschedulable")
    async with cluster.run_nodes(gpu_nodes(1, plugin_gpus=2)):
        await view.wait_bound("train", 2)
