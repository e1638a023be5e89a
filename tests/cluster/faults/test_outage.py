"""The API server goes away and comes back; `kai-py run` goes on by itself and tells the truth.

Only on a real control plane, one of this test's own: its kube-apiserver is killed.
"""

from contextlib import suppress
from pathlib import Path

import aiohttp

from tests.cluster.controlplane import control_plane
from tests.cluster.fake_kubelet import FakeKubelet, gpu_nodes
from tests.support.cluster.account import scheduler_account
from tests.support.cluster.api import Api
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.process import KaiPy, kai_py, started
from tests.support.cluster.scheduling import install_definitions
from tests.support.cluster.view import View

PATIENT = {
    "cyclePeriod": "20ms",
    "leaderElection": {"duration": "60s", "renewDeadline": "40s", "retry": "500ms"},
}
LONGEST_BACKOFF = 45.0
"""A watch tries again after 36 s at the latest, if the server was away for that long."""


async def test_an_api_server_that_restarts_costs_time_and_nothing_else(tmp_path: Path):
    with control_plane(tmp_path / "plane") as plane:
        async with Api(plane.kubeconfig) as api:
            cluster = Cluster(
                name="real",
                kubeconfig=plane.kubeconfig,
                scheduler_kubeconfig=await scheduler_account(api),
                url=plane.url,
                api=api,
                run_nodes=lambda nodes: FakeKubelet(api, nodes),
            )
            view = View(api)
            await install_definitions(api)
            await cluster.submit(queue(maxGPUs=24), claim_template())
            async with (
                cluster.run_nodes(gpu_nodes(3, published_gpus=8)),
                kai_py(cluster, tmp_path, configuration=PATIENT, direct=True) as scheduler,
            ):
                await started(scheduler)
                await cluster.submit(job("before", 8))
                await view.wait_bound("before", 8)
                await shows_its_work(scheduler)
                await cluster.submit(job("meanwhile", 8))
                await some_claims_held(view, more_than=8)
                with plane.without_apiserver():
                    await says_unreachable(scheduler)
                    assert (await scheduler.get("/healthz"))[0] == 200
                await eventually(scheduler.ready, within=LONGEST_BACKOFF, what="readiness again")
                await view.wait_bound("meanwhile", 8, within=30)
                await cluster.submit(job("after", 8))
                await view.wait_bound("after", 8, within=30)
                held = await view.held()
                assert len(held) == len(set(held)) == 24
                assert len(await view.bound("before")) == 8
                assert await scheduler.metric("kai_py_leader") == 1
                assert await scheduler.metric("kai_py_cycle_failures_total") == 0
                scheduler.terminate()
                assert await scheduler.wait_ended() == 0, scheduler.log


async def shows_its_work(scheduler: KaiPy) -> None:
    assert await scheduler.get("/healthz") == (200, "ok\n")
    assert await scheduler.metric("kai_py_pod_bindings_total", outcome="bound") == 8
    bound = {"verb": "create", "kind": "Pod/binding", "code": "201"}
    assert await scheduler.metric("kai_py_api_calls_total", **bound) == 8
    assert await scheduler.metric("kai_py_gang_transactions_total", outcome="bound") == 1
    assert await scheduler.metric("kai_py_cycle_seconds_count", stage="plan") >= 1
    held = {"queue": "team-a", "resource": "gpu", "view": "allocated"}

    async def counted() -> bool:
        return await scheduler.metric("kai_py_queue_resources", **held) == 8

    await eventually(counted, what="eight GPUs of the queue in the metrics")


async def some_claims_held(view: View, *, more_than: int) -> None:
    async def held() -> bool:
        return len(await view.held()) > more_than

    with suppress(aiohttp.ClientError):
        await eventually(held, what="a transaction under way")


async def says_unreachable(scheduler: KaiPy) -> None:
    async def said() -> bool:
        code, text = await scheduler.get("/readyz")
        return code == 503 and "Pod: unreachable for" in text

    await eventually(said, within=20, what="a scheduler that says it cannot reach the API server")
