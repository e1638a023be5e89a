"""Gangs of frameworks: the test makes the pods that the framework's controller would make."""

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.frameworks import FRAMEWORKS, Framework, owned, owner, served
from tests.support.cluster.manifests import claim_template, queue
from tests.support.cluster.view import View

pytestmark = pytest.mark.usefixtures("scheduler")


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.kind)
async def test_a_framework_starts_whole_or_waits_whole(
    cluster: Cluster, view: View, framework: Framework
):
    async with served(cluster, framework), cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), claim_template())
        first = await cluster.api.create(owner(framework, "first"))
        await cluster.submit(*owned(framework, first))
        await view.wait_bound("first", 3)
        second = await cluster.api.create(owner(framework, "second"))
        await cluster.submit(*owned(framework, second))
        await view.wait_pending("second", 3, reason="Unschedulable")


async def test_half_a_gang_waits_for_the_rest(cluster: Cluster, view: View):
    framework = FRAMEWORKS[0]
    async with served(cluster, framework), cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), claim_template())
        made = owned(framework, await cluster.api.create(owner(framework, "half")))
        await cluster.submit(*made[:2])
        await view.wait_incomplete("half", 2, note="minMember is 3; existing pods: 2.")
        await cluster.submit(made[2])
        await view.wait_bound("half", 3)
