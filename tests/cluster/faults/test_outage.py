"""The API server goes away and comes back; `kai-py run` goes on by itself and tells the truth.

Only on a real control plane, one of this test's own: its kube-apiserver is killed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from tests.cluster.controlplane import ControlPlane, control_plane
from tests.cluster.fake_kubelet import FakeKubelet, gpu_nodes
from tests.cluster.faults.test_lease_faults import two
from tests.support.cluster.account import scheduler_account
from tests.support.cluster.api import Api
from tests.support.cluster.audit import bound_without_devices, wait_without_findings
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.process import KaiPy, kai_py, started
from tests.support.cluster.scheduling import install_definitions
from tests.support.cluster.view import View
from tests.support.patience import time_limit

RENEW_SECONDS = 40
PATIENT = {
    "cyclePeriod": "20ms",
    "leaderElection": {"duration": "60s", "renewDeadline": f"{RENEW_SECONDS}s", "retry": "500ms"},
}
GANGS, SIZE, NODES = 10, 4, 5
LONGEST_BACKOFF = 45.0
"""A watch tries again after 36 s at the latest, if the server was away for that long."""


@asynccontextmanager
async def own_cluster(directory: Path) -> AsyncIterator[tuple[ControlPlane, Cluster]]:
    with control_plane(directory / "plane") as plane:
        async with Api(plane.kubeconfig) as api:
            yield (
                plane,
                Cluster(
                    name="real",
                    kubeconfig=plane.kubeconfig,
                    scheduler_kubeconfig=await scheduler_account(api),
                    url=plane.url,
                    api=api,
                    run_nodes=lambda nodes: FakeKubelet(api, nodes),
                ),
            )


@pytest.mark.slow
@pytest.mark.timeout(time_limit(600))
@pytest.mark.parametrize(
    "seconds",
    [2, *(pytest.param(each, marks=pytest.mark.nightly) for each in (0, 10, 30, 60, 120))],
)
async def test_ten_gangs_that_wait_outlive_a_restart(tmp_path: Path, seconds: int):
    """The server is killed in the midst of the first allocations; two replicas contend after it.

    One that could not renew the lease for too long has ended and is started again, as in a cluster.
    """
    async with own_cluster(tmp_path) as (plane, cluster):
        view, api = View(cluster.api), cluster.api
        await install_definitions(api)
        await cluster.submit(queue(maxGPUs=NODES * 8), claim_template())
        async with (
            cluster.run_nodes(gpu_nodes(NODES, published_gpus=8)),
            two(cluster, tmp_path, PATIENT) as replicas,
        ):
            await eventually(replicas.leader, within=60, what="a leader")
            await cluster.submit(*(job(f"gang-{number}", SIZE) for number in range(GANGS)))
            await some_claims_held(view, more_than=SIZE)
            with plane.without_apiserver():
                await asyncio.sleep(seconds)
            # The control plane starts again as well; a watch may wait for 36 s after an outage.
            await view.wait_bound("gang", GANGS * SIZE, within=LONGEST_BACKOFF + 60)
            assert await bound_without_devices(api) == []
            assert len(set(await view.held())) == GANGS * SIZE
            await wait_without_findings(api, within=60)
            await eventually(replicas.leader, within=60, what="a leader again")
            if seconds < RENEW_SECONDS / 2:
                assert len(replicas.all) == 2


async def test_an_api_server_that_restarts_costs_time_and_nothing_else(tmp_path: Path):
    async with own_cluster(tmp_path) as (plane, cluster):
        api = cluster.api
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
    bound = {"verb": "create", "kind": "Pod/binding", "code": "201"}
    held = {"queue": "team-a", "resource": "gpu", "view": "allocated"}

    async def counted() -> bool:
        assert await scheduler.metric("kai_py_pod_bindings_total", outcome="bound") == 8
        assert await scheduler.metric("kai_py_api_calls_total", **bound) == 8
        assert await scheduler.metric("kai_py_gang_transactions_total", outcome="bound") == 1
        assert await scheduler.metric("kai_py_cycle_seconds_count", stage="plan") >= 1
        assert await scheduler.metric("kai_py_queue_resources", **held) == 8
        return True

    # A binding is seen in the API before its answer is counted.
    await eventually(counted, what="the work in the metrics")


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
