"""Of two `kai-py run` one leads; whichever way it ends, the other goes on and nothing binds twice.

Only on the real control plane, as processes: what is shown is that the end of one is enough.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.process import KaiPy, kai_py, started
from tests.support.cluster.scheduling import install_definitions
from tests.support.cluster.view import View

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kai-py"
SHORT = {"duration": "10s", "renewDeadline": "8s", "retry": "300ms"}
"""Soon over, and still renewed in time by a process that waits for its turn on a busy machine."""
LONG = {"duration": "60s", "renewDeadline": "40s", "retry": "300ms"}
THIEF = "other-replica"


def elected(times: Document) -> dict[str, Any]:
    return {"cyclePeriod": "20ms", "leaderElection": times}


async def leads(scheduler: KaiPy) -> None:
    async def leading() -> bool:
        return await scheduler.metric("kai_py_leader") == 1

    await eventually(leading, within=20, what="a leader")


def written(scheduler: KaiPy) -> list[str]:
    """What it has written besides the lease."""
    return [write.kind for write in scheduler.proxy.writes if write.kind != "leases"]


def bindings(*schedulers: KaiPy) -> Counter[str]:
    """How often each pod was bound, by whomever."""
    return Counter(
        write.path
        for scheduler in schedulers
        for write in scheduler.proxy.writes
        if write.kind == "pods/binding"
    )


async def test_a_killed_leader_is_replaced(real: Cluster, tmp_path: Path):
    view = View(real.api)
    await install_definitions(real.api)
    await real.submit(queue(), claim_template())
    times = elected(SHORT)
    async with (
        real.run_nodes(gpu_nodes(2, published_gpus=8)),
        kai_py(real, tmp_path, name="first", configuration=times) as first,
    ):
        await leads(first)
        async with kai_py(real, tmp_path, name="second", configuration=times) as second:
            await started(second)
            await real.submit(job("train", 8))
            await view.wait_bound("train", 8)
            assert written(second) == []
            assert await second.metric("kai_py_leader") == 0
            first.kill()
            await real.submit(job("next", 8))
            await view.wait_bound("next", 8, within=30)
            assert set(bindings(first, second).values()) == {1}
            assert len(bindings(second)) == 8


async def test_a_leader_that_is_stopped_gives_the_lease_back(real: Cluster, tmp_path: Path):
    view = View(real.api)
    await install_definitions(real.api)
    await real.submit(queue(), claim_template())
    times = elected(LONG)
    async with (
        real.run_nodes(gpu_nodes(1, published_gpus=8)),
        kai_py(real, tmp_path, name="first", configuration=times) as first,
    ):
        await leads(first)
        async with kai_py(real, tmp_path, name="second", configuration=times) as second:
            await started(second)
            first.terminate()
            assert await first.wait_ended() == 0, first.log
            await leads(second)  # long before the lease would have run out
            holder = (await real.api.get(LEASE))["spec"]["holderIdentity"]
            assert f"_{second.process.pid}_" in holder
            await real.submit(job("train", 8))
            await view.wait_bound("train", 8)
            second.terminate()
            assert await second.wait_ended() == 0, second.log
    assert (await real.api.get(LEASE))["spec"]["holderIdentity"] == ""


async def test_a_stolen_lease_stops_the_writer(real: Cluster, tmp_path: Path):
    view = View(real.api)
    await install_definitions(real.api)
    await real.submit(queue(), claim_template())
    async with (
        real.run_nodes(gpu_nodes(1, published_gpus=8)),
        kai_py(real, tmp_path, configuration=elected(LONG)) as robbed,
    ):
        await leads(robbed)
        await real.api.patch(LEASE, {"spec": {"holderIdentity": THIEF}})
        assert await robbed.wait_ended() == 1, robbed.log
        assert "leadership is lost" in robbed.log
        told = len(robbed.proxy.writes)
        await real.submit(job("train", 8))
        assert await view.bound("train") == {}
        assert len(robbed.proxy.writes) == told
        lease = await real.api.get(LEASE)
        assert lease["spec"]["holderIdentity"] == THIEF, "what is not ours is not given back"
