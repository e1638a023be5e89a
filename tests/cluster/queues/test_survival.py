"""Jobs with the defaults of Kubernetes complete, whichever action evicted their pods meanwhile."""

import pytest

from kai_py.api.settings import EvictionConfig
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.fake_kubelet.pods import RUN_SECONDS
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import REAL_FIRST, Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import (
    TEMPLATE,
    claim_template,
    job,
    pod_spec,
    priority_class,
    queue,
)
from tests.support.cluster.scheduling import EAGER, Running, scheduling
from tests.support.cluster.view import View

QUEUE = "scheduling.kai.io/queue-name"
GPUS = 8
"""Pods of each Job: more than the default backoffLimit of 6."""
pytestmark = REAL_FIRST


def work(name: str, team: str = "team-a", *, node: str = "", priority: str = ""):
    """A Job that says nothing about failures; its pods run until they are told to end."""
    spec = pod_spec(template=TEMPLATE)
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    if priority:
        spec["priorityClassName"] = priority
    return job(name, GPUS, spec, annotations={QUEUE: team})


async def complete(view: View, cluster: Cluster, *names: str) -> None:
    """Let the pods of Jobs succeed, and wait for the end of the Jobs."""
    for name in names:
        for pod in await view.bound(name):
            body = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
            await cluster.api.patch(f"{view.path('pods')}/{pod}", body)
    await wait_complete(view, cluster, *names)


async def end_of(view: View, cluster: Cluster, name: str) -> str:
    """How a Job ended: Complete, Failed or nothing yet."""
    found = await cluster.api.get(f"{view.path('jobs')}/{name}")
    conditions = (found.get("status") or {}).get("conditions") or ()
    ends = [c["type"] for c in conditions if c["status"] == "True"]
    return next((end for end in ends if end in ("Complete", "Failed")), "")


async def wait_complete(view: View, cluster: Cluster, *names: str) -> None:
    async def all_ended() -> list[str]:
        ends = [await end_of(view, cluster, name) for name in names]
        return ends if all(ends) else []

    ends = await eventually(all_ended, what=f"the end of Jobs {', '.join(names)}", within=60)
    assert set(ends) == {"Complete"}


@pytest.mark.parametrize(
    "winner",
    [work("high", priority="high"), work("owner", "team-b")],
    ids=["preempt", "reclaim"],
)
async def test_a_job_that_others_evict_completes(
    winner: Document, cluster: Cluster, view: View, scheduler: Running
):
    del scheduler
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=GPUS)):
        teams = [queue(deservedGPUs=0), queue("team-b", deservedGPUs=GPUS)]
        await cluster.submit(*teams, priority_class("high", 1000), claim_template())
        await cluster.submit(work("low"))
        await view.wait_bound("low", GPUS)
        await cluster.submit(winner)
        name = winner["metadata"]["name"]
        await view.wait_bound(name, GPUS, within=30)

        await complete(view, cluster, name)
        await view.wait_bound("low", GPUS, within=30)
        assert await end_of(view, cluster, "low") == ""
        found = await cluster.api.get(f"{view.path('jobs')}/low")
        assert "failed" not in found["status"]
        await complete(view, cluster, "low")


@pytest.mark.usefixtures("definitions")
async def test_a_job_that_is_relocated_completes(cluster: Cluster, view: View):
    # What started a moment ago is not relocated otherwise.
    at_once = EAGER.model_copy(update={"eviction": EvictionConfig(settling_time=0.0)})
    async with (
        cluster.run_nodes(gpu_nodes(2, published_gpus=GPUS)),
        scheduling(cluster, at_once),
    ):
        await cluster.submit(queue(deservedGPUs=2 * GPUS), claim_template())
        await cluster.submit(work("first", node="node-1"))
        await view.wait_bound("first", GPUS)
        await cluster.submit(work("moved"))
        await view.wait_bound("moved", GPUS)
        await complete(view, cluster, "first")
        await cluster.submit(work("needs", node="node-0"))
        await view.wait_bound("needs", GPUS, within=30)
        await view.wait_bound("moved", GPUS, within=30)
        await complete(view, cluster, "moved", "needs")
        nodes = set((await view.bound("moved")).values())
        assert nodes == {"node-1"}


@pytest.mark.usefixtures("scheduler")
async def test_a_job_whose_node_is_about_to_go_completes(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(2, published_gpus=GPUS)):
        await cluster.submit(queue(deservedGPUs=2 * GPUS), claim_template())
        await cluster.submit(work("train"))
        before = await view.wait_bound("train", GPUS)
        (going,) = set(before.values())
        taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        await cluster.api.patch(f"/api/v1/nodes/{going}", {"spec": {"taints": [taint]}})
        await wait_moved(view, before, going)
        found = await cluster.api.get(f"{view.path('jobs')}/train")
        assert "failed" not in found["status"]
        await complete(view, cluster, "train")


@pytest.mark.usefixtures("scheduler")
async def test_a_job_whose_node_is_drained_completes(cluster: Cluster, view: View):
    """The drain alone stays below the backoffLimit; with the rest of the gang it is exceeded."""
    async with cluster.run_nodes(gpu_nodes(3, published_gpus=GPUS // 2)):
        await cluster.submit(queue(deservedGPUs=2 * GPUS), claim_template())
        await cluster.submit(work("train"))
        before = await view.wait_bound("train", GPUS)
        drained = min(before.values())
        await cluster.api.patch(f"/api/v1/nodes/{drained}", {"spec": {"unschedulable": True}})
        for name in (name for name, node in before.items() if node == drained):
            await evict(view, cluster, name)
        await wait_moved(view, before, drained)
        await complete(view, cluster, "train")


async def evict(view: View, cluster: Cluster, name: str) -> None:
    """Evict a pod as ``kubectl drain`` does, unless it is gone already."""
    metadata = {"name": name, "namespace": view.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    try:
        await cluster.api.post(f"{view.path('pods')}/{name}/eviction", eviction)
    except ApiError as error:
        if error.reason != "NotFound":
            raise


async def wait_moved(view: View, before: dict[str, str], gone: str) -> None:
    """Wait until all pods of the Job were made again and are on other nodes."""

    async def moved() -> bool:
        now, job = await view.bound("train"), await view.api.get(f"{view.path('jobs')}/train")
        is_replaced = (
            len(now) == GPUS and not now.keys() & before.keys() and gone not in now.values()
        )
        assert is_replaced, f"pods {now}; Job {job['spec'].get('suspend')}, {job['status']}"
        return True

    await eventually(moved, what=f"all pods made again, none on {gone}", within=30)
