"""A Job that asks for it is suspended when others take its capacity, and resumed once it fits."""

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import (
    IN_TEAM_A,
    TEMPLATE,
    claim_template,
    job,
    pod,
    pod_spec,
    priority_class,
    queue,
)
from tests.support.cluster.scheduling import Running
from tests.support.cluster.view import View

SUSPENDED_BY = "scheduling.kai.io/suspended-by"
ASKS = {**IN_TEAM_A, "scheduling.kai.io/on-eviction": "suspend"}


async def test_a_job_is_suspended_and_resumed(cluster: Cluster, view: View, scheduler: Running):
    del scheduler
    low = job("low", 4, pod_spec(template=TEMPLATE, priorityClassName="low"), annotations=ASKS)
    low["spec"]["backoffLimit"] = 0
    high = pod("high", pod_spec(template=TEMPLATE, priorityClassName="high"))

    async def stored() -> Document:
        return await cluster.api.get(f"{view.path('jobs')}/low")

    async def is_suspended() -> bool:
        found = await stored()
        by = found["metadata"]["annotations"].get(SUSPENDED_BY)
        return bool(found["spec"].get("suspend")) and by == "kai-scheduler"

    async def has_no_pods() -> bool:
        return await view.pods("low") == []

    async def told() -> list[str]:
        return await view.events(kind="Job", name="low", reason="Preempted")

    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(
            queue(), priority_class("low", 10), priority_class("high", 1000), claim_template()
        )
        await cluster.submit(low)
        await view.wait_bound("low", 4)
        await cluster.submit(high)
        await view.wait_bound("high", 1)
        await eventually(is_suspended, what="a suspended Job that says for which gang")
        await eventually(has_no_pods, what="a Job without pods")
        await eventually(told, what="an event that names the gang that took the capacity")
        await cluster.api.delete(f"{view.path('pods')}/high")
        await view.wait_bound("low", 4, within=30)
        resumed = await stored()
        assert not resumed["spec"].get("suspend")
        assert SUSPENDED_BY not in resumed["metadata"]["annotations"]
        assert "failed" not in resumed.get("status", {}), "no pod of it counts as failed"
