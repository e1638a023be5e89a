"""Claims in the words of older versions of resource.k8s.io, which the API server still takes.

Only on the real control plane: the embedded one serves the newest version alone.
"""

import pytest

from tests.cluster.claims.test_device_claims import (
    DRIVER,
    cards,
    device_class,
    exactly,
    given,
    nodes,
    pool,
    running,
)
from tests.cluster.fake_kubelet import FakeKubelet
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import claim, pod, pod_spec, queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

SECOND = {"cel": {"expression": f"device.attributes['{DRIVER}'].index == 1"}}
FLAT = {"name": "card", "deviceClassName": DRIVER, "count": 1, "selectors": [SECOND]}


@pytest.mark.parametrize(
    ("version", "asked"),
    [("v1beta1", FLAT), ("v1beta2", exactly(selectors=[SECOND]))],
    ids=["v1beta1", "v1beta2"],
)
async def test_the_claim_of_an_older_client_gets_its_device(
    real: Cluster, version: str, asked: Document
):
    view, old = View(real.api), claim("old", asked)
    await install_definitions(real.api)
    async with FakeKubelet(real.api, nodes()), scheduling(real):
        await real.submit(queue(), device_class(), *pool("node-0", cards(3)))
        await real.submit(old | {"apiVersion": f"resource.k8s.io/{version}"})
        await real.submit(pod("train", pod_spec(claim="old")))
        await running(view, "train", 1)
        assert await given(view) == {"train": ["card-1"]}
