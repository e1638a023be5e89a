"""Gangs with claims start whole on real nodes, see their devices, complete and give them back."""

from collections import Counter

from tests.node.conftest import GPUS, NAMES
from tests.node.pods import environment
from tests.node.workloads import TELL, pod_spec, request, template
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job


def devices_told(variables):
    """GPUs of the example driver in the environment of a container."""
    return [
        value
        for name, value in variables.items()
        if name.startswith("GPU_DEVICE_") and name.count("_") == 2
    ]


async def test_a_gang_starts_whole_and_completes(cluster, nodes, scheduler, view):
    await cluster.submit(template("gpu", request()))
    size = GPUS * len(NAMES)
    spec = pod_spec(TELL, templates={"gpu": "gpu"})
    await cluster.submit(job("train", size, spec))

    async def completed():
        found = await cluster.api.get(view.path("jobs") + "/train")
        assert found["status"].get("succeeded") == size, found["status"]
        return True

    await eventually(completed, within=90.0)
    pods = await view.pods("train")
    assert Counter(pod["spec"]["nodeName"] for pod in pods) == dict.fromkeys(NAMES, GPUS)
    told = Counter()
    for pod in pods:
        name = pod["metadata"]["name"]
        node = pod["spec"]["nodeName"]
        (device,) = devices_told(await environment(nodes[node], name))
        told[node, device] += 1
    assert sorted(told.values()) == [1] * size

    async def given_back():
        assert [each.cdi_files() for each in nodes.values()] == [[], []]
        assert await view.held() == []
        return True

    await eventually(given_back, within=30.0)
