"""`kai-py run --dry-run` shows what it would do and touches nothing, not even a lease."""

import json
from pathlib import Path

import pytest

from tests.cluster.api import Document
from tests.cluster.clusters import Cluster
from tests.cluster.eventually import eventually
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.manifests import claim_template, job, queue
from tests.cluster.process import KaiPy, kai_py
from tests.cluster.view import View

pytestmark = pytest.mark.usefixtures("definitions")


def plans(scheduler: KaiPy) -> list[Document]:
    """Plans printed so far, in JSON."""
    return [json.loads(line) for line in scheduler.log.splitlines() if line.startswith("{")]


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


async def test_plans_are_readable(cluster: Cluster, tmp_path: Path):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(queue(), claim_template(), job("train", 8))
        async with kai_py(cluster, tmp_path, "--dry-run", configuration={}) as scheduler:

            async def said() -> bool:
                return scheduler.log.count("node-0") >= 8

            await eventually(said, within=30, what="eight placements in words")
            assert "train" in scheduler.log
            assert scheduler.proxy.writes == []
