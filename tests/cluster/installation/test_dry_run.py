"""`kai-py run --dry-run` shows what it would do and touches nothing, not even a lease."""

import json
from pathlib import Path

import pytest

from tests.cluster.claims.test_local_volumes import CLAIMS, CLASS, pods_with_claims, volume
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.queues.test_suspended_jobs import ASKS
from tests.support.cluster.api import Document
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
from tests.support.cluster.process import KaiPy, kai_py
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View


def plans(scheduler: KaiPy) -> list[Document]:
    """Plans printed so far, in JSON."""
    return [json.loads(line) for line in scheduler.log.splitlines() if line.startswith("{")]


@REAL_FIRST
@pytest.mark.usefixtures("definitions")
async def test_plans_are_printed_and_nothing_is_written(
    cluster: Cluster, view: View, tmp_path: Path
):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(queue(), claim_template(), job("train", 8), job("late", 2))
        async with kai_py(cluster, tmp_path, "--dry-run", "--json", configuration={}) as scheduler:

            async def planned() -> bool:
                said = plans(scheduler)
                return bool(said) and len(said[-1].get("placements", ())) == 1

            await eventually(planned, within=30, what="a plan that places a gang")
            last = plans(scheduler)[-1]
            (gang,) = last["placements"]
            assert {placed["node"] for placed in gang["pods"]} == {"node-0"}
            assert sum(len(placed["allocate"]) for placed in gang["pods"]) == len(gang["pods"])
            (waiting,) = last["unplaced"]
            assert {gang["owner"]["name"], waiting["owner"]["name"]} == {"train", "late"}
            assert scheduler.proxy.writes == []
            scheduler.terminate()
            assert await scheduler.wait_ended() == 0, scheduler.log
        assert await view.held() == []
        assert await view.bound() == {}


@REAL_FIRST
@pytest.mark.usefixtures("definitions")
async def test_plans_are_readable(cluster: Cluster, tmp_path: Path):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(queue(), claim_template(), job("train", 8))
        async with kai_py(cluster, tmp_path, "--dry-run", configuration={}) as scheduler:

            async def said() -> bool:
                return scheduler.log.count("node-0") >= 8

            await eventually(said, within=30, what="eight placements in words")
            assert "train" in scheduler.log
            assert scheduler.proxy.writes == []


@REAL_FIRST
@pytest.mark.usefixtures("definitions")
async def test_jobs_are_neither_suspended_nor_resumed(cluster: Cluster, view: View, tmp_path: Path):
    def work(name: str, size: int, priority: str) -> Document:
        spec = pod_spec(template=TEMPLATE, priorityClassName=priority)
        return job(name, size, spec, annotations=ASKS)

    async def are_suspended() -> dict[str, bool]:
        found = await cluster.api.items(view.path("jobs"))
        return {each["metadata"]["name"]: bool(each["spec"].get("suspend")) for each in found}

    async def delete(name: str) -> None:
        options = {"propagationPolicy": "Background"}
        await cluster.api.request("DELETE", f"{view.path('jobs')}/{name}", options)

    async with cluster.run_nodes(gpu_nodes(2, published_gpus=4)):
        classes = [priority_class(n, v) for n, v in (("low", 10), ("mid", 20), ("high", 30))]
        await cluster.submit(queue(), claim_template(), *classes)
        async with scheduling(cluster):
            await cluster.submit(work("low", 4, "low"), work("mid", 4, "mid"))
            await view.wait_bound("", 8)
            await cluster.submit(work("high", 1, "high"))
            await view.wait_bound("high", 1)
        assert await are_suspended() == {"high": False, "low": True, "mid": False}
        async with kai_py(cluster, tmp_path, "--dry-run", "--json", configuration={}) as scheduler:

            async def suspended() -> bool:
                left = plans(scheduler)[-1].get("evictions", ())
                gone = {each["owner"]["name"] for each in left if each.get("suspend")}
                return gone == {"mid"}

            async def resumed() -> bool:
                placed = plans(scheduler)[-1].get("placements", ())
                return {each["owner"]["name"] for each in placed if each.get("resume")} == {"low"}

            await cluster.submit(work("urgent", 7, "high"))
            await eventually(suspended, within=30, what="a plan that suspends a Job")
            await delete("urgent")
            await delete("high")
            await eventually(resumed, within=30, what="a plan that resumes a Job")
            assert scheduler.proxy.writes == []
        assert await are_suspended() == {"low": True, "mid": False}


async def test_volumes_are_not_bound_to_claims(real: Cluster, tmp_path: Path):
    await install_definitions(real.api)
    async with real.run_nodes(gpu_nodes(1)):
        await real.submit(queue(), CLASS, volume("disk", "node-0"), *pods_with_claims(1))
        async with kai_py(real, tmp_path, "--dry-run", "--json", configuration={}) as scheduler:

            async def planned() -> bool:
                ((placed,),) = [each["pods"] for each in plans(scheduler)[-1]["placements"]]
                return [name for _, name in placed["volumes"]] == ["disk"]

            await eventually(planned, within=30, what="a plan that binds a volume to a claim")
            assert scheduler.proxy.writes == []
        (held,) = await real.api.items(CLAIMS)
        assert "volumeName" not in held["spec"]
        assert "claimRef" not in (await real.api.get("/api/v1/persistentvolumes/disk"))["spec"]
