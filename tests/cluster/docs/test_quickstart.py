"""docs/quickstart.md, done literally on the real control plane."""

import copy

import yaml

from tests.cluster.fake_kubelet import gpu_nodes
from tests.docs.pages import DOCS, manifests
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

QUEUE = "/apis/scheduling.kai.io/v1alpha1/queues/quickstart"


async def test_the_quickstart_does_what_it_says(real: Cluster) -> None:
    (text,) = manifests(DOCS / "quickstart.md")
    queue, job = yaml.safe_load_all(text)
    view = View(real.api)
    await install_definitions(real.api)
    async with real.run_nodes(gpu_nodes(1, plugin_gpus=8)), scheduling(real):
        await real.submit(queue, job)
        await view.wait_bound("hello-gang", 2)
        larger = copy.deepcopy(job)
        larger["metadata"]["name"] = "larger"
        larger["spec"] |= {"parallelism": 6, "completions": 6}
        await real.submit(larger)
        said = await view.wait_pending("larger", 6, reason="QueueMax")
        assert "quickstart" in said
        assert "4" in said
        await real.api.patch(QUEUE, {"spec": {"maxGPUs": 8}})
        await view.wait_bound("larger", 6)
