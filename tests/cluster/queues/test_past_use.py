"""Past use that Prometheus knows lowers a queue's claim, as its status shows."""

import time

from kai_py.api.settings import PrometheusUsage, UsageWindow
from kai_py.config import FairShareConfig
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import IN_TEAM_A, claim_template, pod, queue
from tests.support.cluster.scheduling import EAGER, install_definitions, scheduling
from tests.support.prometheus import prometheus

IN_TEAM_B = dict.fromkeys(IN_TEAM_A, "team-b")


async def test_a_queue_that_used_the_cluster_lately_gets_less_of_the_remainder(
    cluster: Cluster, tmp_path
):
    await install_definitions(cluster.api)
    await cluster.submit(
        queue("team-a", deservedGPUs=0), queue("team-b", deservedGPUs=0), claim_template()
    )
    held = {"team-a": lambda _ago: 8.0, "team-b": lambda _ago: 0.0}
    until = int(time.time()) // 60 * 60

    async def shares() -> dict[str, float]:
        path = "/apis/scheduling.kai.io/v1alpha1/queues"
        found = {
            each["metadata"]["name"]: float(each.get("status", {}).get("fairShare", {})["gpus"])
            for each in await cluster.api.items(path)
            if each.get("status", {}).get("fairShare")
        }
        assert found.get("team-a", 8) < found.get("team-b", 0), found
        return found

    with prometheus(tmp_path, held, hours=2, until=until) as url:
        measured = PrometheusUsage(url=url, window=UsageWindow(size=3600.0))
        settings = EAGER.model_copy(update={"fair_share": FairShareConfig(prometheus=measured)})
        nodes = gpu_nodes(1, published_gpus=8)
        async with cluster.run_nodes(nodes), scheduling(cluster, settings):
            for team, annotations in (("a", IN_TEAM_A), ("b", IN_TEAM_B)):
                pods = (pod(f"{team}-{i}", annotations=annotations) for i in range(8))
                await cluster.submit(*pods)
            await eventually(shares, what="a larger share of the queue that has rested")
