"""A gang whose pods cannot start gives its devices to the next, and says why."""

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.fake_kubelet.pods import ABSENT, IMAGE
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.scheduling import scheduling
from tests.support.cluster.view import View


@pytest.mark.usefixtures("definitions")
async def test_a_gang_without_its_image_is_evicted_and_said_why(cluster: Cluster, view: View):
    impatient = queue(readyTimeout="2s", readyAttempts=1)
    async with scheduling(cluster), cluster.run_nodes(gpu_nodes(1, published_gpus=2)):
        await cluster.submit(
            impatient, claim_template(), job("stuck", 2, pod_annotations={IMAGE: ABSENT})
        )
        await view.wait_bound("stuck", 2)

        async def shown() -> bool:
            notes = await view.events(kind="Job", name="stuck", reason="GangNotReady")
            assert any("the image of container" in note for note in notes), notes
            return True

        await eventually(shown, within=15)
        await cluster.submit(job("next", 2))
        await view.wait_bound("next", 2, within=30)
        message = await view.wait_pending("stuck", 2, reason="NotReady")
        assert "it was started once and was not ready within 2 s" in message
        assert "ImagePullBackOff" in message
