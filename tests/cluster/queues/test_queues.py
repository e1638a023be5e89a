"""Queues bound what their workloads get, wherever the queue is named."""

import re
from typing import Any

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import (
    QUEUE_KEY,
    TEMPLATE,
    claim_template,
    job,
    pod,
    pod_spec,
    queue,
)
from tests.support.cluster.view import View, condition

pytestmark = pytest.mark.usefixtures("scheduler")


async def test_max_gpus_is_kept_and_named(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(2, published_gpus=8)):
        await cluster.submit(queue(maxGPUs=10), claim_template(), job("first", 8))
        await view.wait_bound("first", 8)
        await cluster.submit(job("second", 4))
        message = await view.wait_pending("second", 4, reason="QueueMax")
        assert "team-a" in message
        assert "10" in message
        await cluster.submit(job("third", 2))
        await view.wait_bound("third", 2)
        assert await view.bound("second") == {}


async def test_the_max_of_a_queue_above_is_kept_and_named(cluster: Cluster, view: View):
    research = {"parent": "research", "maxGPUs": 8}
    async with cluster.run_nodes(gpu_nodes(2, published_gpus=8)):
        await cluster.submit(
            queue("research", deservedGPUs=8, maxGPUs=8),
            queue("team-a", **research),
            queue("team-b", **research),
            claim_template(),
            job("first", 6),
        )
        await view.wait_bound("first", 6)
        await cluster.submit(job("second", 4, annotations={QUEUE_KEY: "team-b"}))
        message = await view.wait_pending("second", 4, reason="QueueMax")
        assert "research" in message
        await cluster.submit(job("third", 2, annotations={QUEUE_KEY: "team-b"}))
        await view.wait_bound("third", 2)


async def test_raising_max_gpus_starts_what_waits(cluster: Cluster, view: View):
    queues = "/apis/scheduling.kai.io/v1alpha1/queues"
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(queue(deservedGPUs=4, maxGPUs=4), claim_template(), job("train", 8))
        await view.wait_pending("train", 8, reason="QueueMax")
        await cluster.api.patch(f"{queues}/team-a", {"spec": {"maxGPUs": 8}})
        await view.wait_bound("train", 8)


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a table that kubectl printed, by column; an empty cell is an empty string."""
    header, *lines = table.splitlines()
    names = list(re.finditer(r"\S+(?: \S+)*", header))
    ends = [name.start() for name in names[1:]] + [None]
    return [
        {
            name.group(): line[name.start() : end].strip()
            for name, end in zip(names, ends, strict=True)
        }
        for line in lines
    ]


async def test_kubectl_get_queues_shows_what_queues_have(cluster: Cluster, view: View, kubectl):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(
            queue("research", deservedGPUs=6, maxGPUs=12),
            queue("team-a", deservedGPUs=4, maxGPUs=10, parent="research"),
            queue("lost", parent="gone"),
            claim_template(),
            job("runs", 5),
        )
        await view.wait_bound("runs", 5)
        await cluster.submit(job("waits", 4))

        async def shown() -> bool:
            table = await kubectl("get", "queues.scheduling.kai.io", "-o", "wide")
            rows = {row["NAME"]: row for row in rows_of(table)}
            below, above, lost = rows["team-a"], rows["research"], rows["lost"]
            assert (below["PARENT"], below["DESERVED"], below["MAX"]) == ("research", "4", "10")
            for row in (above, below):
                assert (row["ALLOCATED"], row["REQUESTED"]) == ("5", "9"), table
                assert (row["FAIR SHARE"], row["PENDING"], row["READY"]) == ("8", "1", "True"), (
                    table
                )
            assert (lost["ALLOCATED"], lost["READY"]) == ("0", "False"), table
            return True

        await eventually(shown, what="statuses of queues")

        async def reasons() -> bool:
            stored = await cluster.api.get("/apis/scheduling.kai.io/v1alpha1/queues/team-a")
            waiting = [{"reason": "Devices", "gangs": 1, "pods": 4}]
            assert stored["status"]["pending"] == waiting
            return True

        await eventually(reasons, what="why gangs wait")
        stored = await cluster.api.get("/apis/scheduling.kai.io/v1alpha1/queues/team-a")
        assert condition(stored, "OverDeserved")["status"] == "True"
        described = await kubectl("describe", "queue.scheduling.kai.io", "lost")
        assert "parent 'gone' does not exist" in described
        assert "MissingParent" in described


def on_pod() -> Document:
    return pod("main")


def on_job() -> Document:
    return job("main", 1)


def on_template() -> Document:
    return job("main", 1, annotations={}, pod_annotations={QUEUE_KEY: "team-a"})


def as_label() -> Document:
    return pod("main", annotations={}, labels={QUEUE_KEY: "team-a"})


@pytest.mark.parametrize("build", [on_pod, on_job, on_template, as_label])
async def test_a_workload_names_its_queue(cluster: Cluster, view: View, build: Any):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=2)):
        await cluster.submit(queue(), claim_template(), build())
        await view.wait_bound("main", 1)


async def test_a_namespace_names_the_queue_of_what_names_none(cluster: Cluster):
    view = View(cluster.api, "named")
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=2)):
        await cluster.create_namespace("named")
        await cluster.submit(queue(), claim_template(namespace="named"))
        await cluster.submit(pod("main", namespace="named", annotations={}))
        message = await view.wait_pending("main", 1, reason="QueueNotFound")
        assert QUEUE_KEY in message
        annotated = {"metadata": {"annotations": {QUEUE_KEY: "team-a"}}}
        await cluster.api.patch("/api/v1/namespaces/named", annotated)
        await view.wait_bound("main", 1)


async def test_a_nearer_name_wins(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=2)):
        await cluster.submit(queue("open"), queue("closed", deservedGPUs=0, maxGPUs=0))
        template = pod_spec(template=TEMPLATE)
        closed = {QUEUE_KEY: "closed"}
        await cluster.submit(
            claim_template(),
            job("outer", 1, template, annotations={QUEUE_KEY: "open"}, pod_annotations=closed),
        )
        message = await view.wait_pending("outer", 1, reason="QueueMax")
        assert "closed" in message
