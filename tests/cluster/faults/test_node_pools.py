"""Node pools as processes: each pod and device is one pool's; a pod moves and is not lost.

With two pools in the suite, with ten at night.
"""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.faults.test_leader_election import LEASE, LONG, bindings, elected, leads
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.process import kai_py
from tests.support.cluster.scheduling import install_definitions
from tests.support.cluster.view import View
from tests.support.patience import time_limit

LABEL = "kai.scheduler/node-pool"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def in_pool(name: str, pool: str, pods: int = 2) -> Document:
    made = job(name, pods)
    made["spec"]["template"]["metadata"]["labels"] = {LABEL: pool}
    return made


async def devices(real: Cluster) -> list[tuple[str, str]]:
    """Pool and name of each device that a claim has, in order."""
    claims = await real.api.items(CLAIMS)
    allocations = [each["status"].get("allocation") for each in claims if "status" in each]
    results = [r for found in allocations if found for r in found["devices"]["results"]]
    return sorted((each["pool"], each["device"]) for each in results)


@pytest.mark.parametrize(
    "count",
    [2, pytest.param(10, marks=[pytest.mark.nightly, pytest.mark.timeout(time_limit(300))])],
)
async def test_each_pool_has_its_process_leader_pods_and_devices(
    real: Cluster, tmp_path: Path, count: int
):
    pools = [f"pool-{number}" for number in range(count)]
    nodes = [
        node
        for pool in pools
        for node in gpu_nodes(1, prefix=pool, published_gpus=3, labels={LABEL: pool})
    ]
    await install_definitions(real.api)
    await real.submit(queue(), claim_template())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(real.run_nodes(nodes))
        starting = [
            kai_py(real, tmp_path, "--node-pool", pool, name=pool, configuration=elected(LONG))
            for pool in pools
        ]
        processes = [await stack.enter_async_context(each) for each in starting]
        for each in processes:
            await leads(each)
        holders = {(await real.api.get(f"{LEASE}-{p}"))["spec"]["holderIdentity"] for p in pools}
        assert len(holders) == count
        await real.submit(*(in_pool(f"train-{pool}", pool) for pool in pools))
        view = View(real.api)
        for pool in pools:
            bound = await view.wait_bound(f"train-{pool}", 2, within=60)
            assert set(bound.values()) == {f"{pool}-0"}
        # A pod that waits in the first pool, which has one GPU left, moves to the last.
        await real.submit(in_pool("mover", pools[0], 1), in_pool("stayer", pools[0], 1))
        waiting = [pod for pod in await until_one_waits(view) if not pod["spec"].get("nodeName")]
        [pod] = waiting
        path = f"{view.path('pods')}/{pod['metadata']['name']}"
        await real.api.patch(path, {"metadata": {"labels": {LABEL: pools[-1]}}})
        name = pod["metadata"]["name"].rsplit("-", 1)[0]
        assert set((await view.wait_bound(name, 1, within=60)).values()) == {f"{pools[-1]}-0"}
        by_pod = bindings(*processes)
        assert len(by_pod) == 2 * count + 2
        assert set(by_pod.values()) == {1}
        held = await devices(real)
        assert len(held) == len(set(held)) == 2 * count + 2


async def until_one_waits(view: View) -> list[Document]:
    """The pods of both Jobs, once the first has its node."""

    async def settled() -> list[Document]:
        found = [*await view.pods("mover"), *await view.pods("stayer")]
        on_nodes = [pod for pod in found if pod["spec"].get("nodeName")]
        return found if len(found) == 2 and len(on_nodes) == 1 else []

    return await eventually(settled, within=40, what="one pod that waits")
