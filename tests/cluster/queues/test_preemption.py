"""Priority takes capacity inside a queue: victims are told why, what was freed is kept."""

import asyncio

import pytest

from kai_py.api.autoscaling import PROTECTING_ANNOTATIONS
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.fake_kubelet.pods import HELD, STOP_SECONDS
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import (
    IN_TEAM_A,
    MIN_AVAILABLE_KEY,
    PREEMPTIBILITY_KEY,
    TEMPLATE,
    claim_template,
    job,
    pod,
    pod_spec,
    priority_class,
    queue,
)
from tests.support.cluster.scheduling import Running
from tests.support.cluster.view import View, condition

pytestmark = pytest.mark.usefixtures("scheduler")

STAYING = {STOP_SECONDS: HELD}
LOW = priority_class("low", 10)
HIGH = priority_class("high", 1000)
BEING_DISRUPTED = [{"type": "DisruptionTarget"}]
IGNORE_DISRUPTIONS = {"rules": [{"action": "Ignore", "onPodConditions": BEING_DISRUPTED}]}


def prioritised(name: str, size: int, priority: str, **extra: Document) -> Document:
    """A Job for which being preempted is no failure, as Kubernetes advises."""
    made = job(name, size, pod_spec(template=TEMPLATE, priorityClassName=priority), **extra)
    made["spec"]["podFailurePolicy"] = IGNORE_DISRUPTIONS
    return made


async def start_low_job(cluster: Cluster, view: View, **extra: Document) -> None:
    await cluster.submit(
        queue(), LOW, HIGH, claim_template(), prioritised("low", 8, "low", **extra)
    )
    await view.wait_bound("low", 8)


async def test_a_higher_priority_job_takes_the_capacity_of_a_lower_one(
    cluster: Cluster, view: View
):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await start_low_job(cluster, view, pod_annotations=STAYING)
        victims = {p["metadata"]["uid"] for p in await view.pods("low")}
        await cluster.submit(prioritised("high", 8, "high"))

        async def all_leave() -> list[Document]:
            leaving = [p for p in await view.pods("low") if p["metadata"]["uid"] in victims]
            targets = [condition(p, "DisruptionTarget") for p in leaving]
            assert {t.get("reason") for t in targets} == {"PreemptionByScheduler"}
            return leaving if all("deletionTimestamp" in p["metadata"] for p in leaving) else []

        leaving = await eventually(all_leave, what="eight pods that leave and say why")
        assert len(leaving) == 8
        for victim in leaving:
            target = condition(victim, "DisruptionTarget")
            assert target["status"] == "True"
            assert "default/high" in target["message"]
            assert "priority 1000 > 10" in target["message"]

        async def nominated() -> bool:
            nodes = {p["status"].get("nominatedNodeName") for p in await view.pods("high")}
            return nodes == {"node-0"}

        await eventually(nominated, what="eight pods that name the node they wait for")
        await view.wait_pending("high", 8, reason="Nominated")

        async def protected() -> bool:
            meta = (await cluster.api.get("/api/v1/nodes/node-0"))["metadata"]
            return set(PROTECTING_ANNOTATIONS) <= meta.get("annotations", {}).keys()

        await eventually(protected, what="a node that autoscalers must not remove now")
        # Another gang that comes now, small enough for what leaves first, gets nothing of it.
        await cluster.submit(pod("late"))
        for victim in leaving:
            path = f"{view.path('pods')}/{victim['metadata']['name']}"
            await cluster.api.patch(path, {"metadata": {"annotations": {STOP_SECONDS: "0"}}})
        await view.wait_bound("high", 8)
        assert await view.bound("late") == {}
        assert len(set(await view.held())) == 8
        await view.wait_pending("late", 1, reason="Unschedulable")
        name = leaving[0]["metadata"]["name"]

        async def noted() -> bool:
            notes = await view.events(kind="Pod", name=name, reason="Preempted")
            return notes == [condition(leaving[0], "DisruptionTarget")["message"]]

        await eventually(noted, what="one event that says what the condition does")
        assert await view.events(kind="Job", name="low", reason="Preempted") != []


async def test_no_more_than_needed_leaves(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(queue(), LOW, HIGH, claim_template())
        for index in range(4):
            await cluster.submit(prioritised(f"low-{index}", 2, "low"))
        await view.wait_bound("low", 8)
        await cluster.submit(prioritised("high", 3, "high"))
        await view.wait_bound("high", 3)
        bound = await view.wait_bound("low", 4)  # the second pod of a pair may still be leaving
        assert len({name.rsplit("-", 1)[0] for name in bound}) == 2


async def test_the_core_of_a_semi_preemptible_job_stays(cluster: Cluster, view: View):
    marks = {PREEMPTIBILITY_KEY: "semi-preemptible", MIN_AVAILABLE_KEY: "5"}
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await start_low_job(cluster, view, annotations={**IN_TEAM_A, **marks})
        first = {pod["metadata"]["uid"] for pod in await view.pods("low")}
        await cluster.submit(prioritised("high", 3, "high"))
        await view.wait_bound("high", 3)
        await cluster.submit(prioritised("higher", 1, "high"))
        await view.wait_pending("higher", 1, reason="Unschedulable")
        await view.wait_bound("low", 5)
        core = await view.bound("low")
        assert {
            pod["metadata"]["uid"]
            for pod in await view.pods("low")
            if pod["metadata"]["name"] in core
        } <= first, "those that ran run on"


async def test_equal_priority_waits(cluster: Cluster, view: View, scheduler: Running):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await start_low_job(cluster, view)
        await cluster.submit(prioritised("second", 2, "low"))
        await view.wait_pending("second", 2, reason="Unschedulable")
        assert len(await view.bound("low")) == 8


async def test_a_disruption_budget_is_respected(cluster: Cluster, view: View):
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "low"},
        "spec": {"minAvailable": 8, "selector": {"matchLabels": {"job-name": "low"}}},
    }
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await start_low_job(cluster, view)
        await cluster.submit(budget)

        async def counted() -> bool:
            path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/low"
            return (await cluster.api.get(path)).get("status", {}).get("currentHealthy") == 8

        await eventually(counted, what="the budget's own count")
        await cluster.submit(prioritised("high", 8, "high"))

        message = await view.wait_pending("high", 8, reason="Unschedulable")
        assert "insufficient allocatable devices" in message
        await asyncio.sleep(1.0)
        assert len(await view.bound("low")) == 8, "no pod that the budget protects is chosen"
        await cluster.api.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/low")
        await view.wait_bound("high", 8, within=30)


async def test_capacity_is_reclaimed_for_a_queue_below_its_fair_share(cluster: Cluster, view: View):
    in_team_b = dict.fromkeys(IN_TEAM_A, "team-b")
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(
            queue("team-a", deservedGPUs=4), queue("team-b", deservedGPUs=4), claim_template()
        )
        for index in range(4):
            await cluster.submit(job(f"greedy-{index}", 2))
        await view.wait_bound("greedy", 8)
        await cluster.submit(job("due", 4, annotations=in_team_b))
        await view.wait_bound("due", 4)
        assert len(await view.bound("greedy")) == 4
        await asyncio.sleep(0.5)
        assert len(await view.bound("due")) == 4, "what was reclaimed stays"
