"""Suggestions for a cluster that is served: simulated in another process, kept for a while."""

import pytest

from kai_py.api.crd import crds
from kai_py.cli.connection import cluster_client
from kai_py.config import Configuration
from kai_py.embedded.cluster import EmbeddedCluster
from kai_py.embedded.nodes import h100_node, h100_slices, nvidia_device_classes
from kai_py.simulate import advisor
from kai_py.simulate.advisor import Advisor
from tests.simulate.clusters import job, queue, template

pytestmark = pytest.mark.cluster


async def test_an_answer_comes_from_another_process_and_is_kept(tmp_path, monkeypatch):
    async with EmbeddedCluster() as cluster:
        cluster.create_all([*crds().values(), *nvidia_device_classes(), template()])
        cluster.create(h100_node("node-0", gpus=4))
        cluster.create_all([*h100_slices("node-0", gpus=4), queue("team", 4, 4)])
        cluster.create(job("six", 6, "team"))
        kubeconfig = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        async with cluster_client(str(kubeconfig), "") as client:
            asked = Advisor(client, Configuration())
            try:
                found = await asked.suggestions("default/Job/six")
                assert found[0].text == "let it start with 4 of its 6 pods (min-available)"
                monkeypatch.setattr(advisor, "read_objects", None)
                assert await asked.suggestions("default/Job/six") is found
            finally:
                asked.close()
