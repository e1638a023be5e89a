"""A gang whose pods cannot start gives its devices to the next, and says why."""

import pytest

from kai_py.config import LeaderElectionConfig
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.fake_kubelet.pods import ABSENT, IMAGE
from tests.support.cluster.clusters import REAL_FIRST, Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.scheduling import EAGER, scheduling
from tests.support.cluster.view import View

ELECTED = EAGER.model_copy(
    update={"leader_election": LeaderElectionConfig(namespace="kube-system")}
)


@REAL_FIRST
@pytest.mark.usefixtures("definitions")
async def test_a_gang_without_its_image_is_evicted_and_said_why(cluster: Cluster, view: View):
    impatient = queue(readyTimeout="2s", readyAttempts=1)
    stuck = job("stuck", 2, pod_annotations={IMAGE: ABSENT})
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=2)):
        async with scheduling(cluster, ELECTED):
            await cluster.submit(impatient, claim_template(), stuck)
            await view.wait_bound("stuck", 2)

            async def shown() -> bool:
                notes = await view.events(kind="Job", name="stuck", reason="GangNotReady")
                assert any("the image of container" in note for note in notes), notes
                return True

            await eventually(shown, within=15)
            await cluster.submit(job("next", 1))
            await view.wait_bound("next", 1, within=30)
            # The Job controller backs off for 20 s after two failed pods.
            message = await view.wait_pending("stuck", 2, reason="NotReady", within=45)
            assert "it was started once and was not ready within 2 s" in message
            assert "ImagePullBackOff" in message
        # The next leader knows it: the gang does not start where it has capacity again.
        await cluster.api.delete(f"{view.path('jobs')}/next", propagationPolicy="Background")
        async with scheduling(cluster, ELECTED, identity="second"):
            await cluster.submit(job("other", 2))
            await view.wait_bound("other", 2, within=30)
            message = await view.wait_pending("stuck", 2, reason="NotReady")
            assert "it was started once" in message
