"""Of two `kai-py run` either answers; what is known of the past outlives the one that leads."""

import re
from pathlib import Path

import aiohttp

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.clusters import REAL_FIRST, Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.process import KaiPy, kai_py, started
from tests.support.cluster.scheduling import install_definitions
from tests.support.cluster.view import View

SERVED = re.compile(r"are served on port (\d+)")
TIMES = {
    "cyclePeriod": "20ms",
    "leaderElection": {"duration": "60s", "renewDeadline": "40s", "retry": "300ms"},
}


async def get(scheduler: KaiPy, path: str):
    """Status, headers and JSON; no JSON of a failure."""
    port = SERVED.search(scheduler.log)
    if port is None:
        return 503, {}, None
    url = f"http://127.0.0.1:{port[1]}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        found = await answer.json() if answer.status == 200 else None
        return answer.status, dict(answer.headers), found


@REAL_FIRST
async def test_a_standby_answers_for_the_leader_and_inherits_its_history(
    cluster: Cluster, tmp_path: Path
):
    await install_definitions(cluster.api)
    await cluster.submit(queue(), claim_template())
    async with (
        cluster.run_nodes(gpu_nodes(1, published_gpus=8)),
        kai_py(cluster, tmp_path, name="first", configuration=TIMES) as first,
    ):
        await started(first)
        await cluster.submit(job("train", 8))
        await View(cluster.api).wait_bound("train", 8)

        async def leads(scheduler: KaiPy) -> bool:
            status, _, replica = await get(scheduler, "/v1/replica")
            return status == 200 and replica["leads"]

        await eventually(lambda: leads(first), what="a leader")
        async with kai_py(cluster, tmp_path, name="second", configuration=TIMES) as second:
            await started(second)

            async def answers() -> bool:
                return (await get(second, "/v1/state"))[0] == 200

            await eventually(answers, what="an answer of the standby")
            _, _, standby = await get(second, "/v1/replica")
            assert not standby["leads"]
            status, headers, state = await get(second, "/v1/state")
            assert (status, state["allocated"]) == (200, 8.0)
            assert headers["X-Kai-Replica"] == standby["leader"] != standby["name"]
            assert headers["X-Kai-Leads"] == "true"
            assert float(headers["X-Kai-Data-Age"]) < 60.0
            _, _, before = await get(second, "/v1/history")
            first.terminate()
            assert await first.wait_ended() == 0, first.log
            await eventually(lambda: leads(second), what="the next leader")

            async def remembers() -> bool:
                _, _, samples = await get(second, "/v1/history")
                return samples[0]["time"] == before[0]["time"]

            await eventually(remembers, what="the history of the first leader")
