"""A driver fails to prepare, a kubelet refuses pods: devices come back, other gangs start."""

from tests.node.conftest import GPUS, NAMES
from tests.node.pods import running
from tests.node.workloads import PARTS, SERVE, TELL, parts, pod_spec, request, template
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job


def offers(node):
    return parts({"name": "d0"}, {"name": "d1"}, pool=node)


async def test_a_prepare_that_fails_is_repeated(cluster, nodes, scheduler, view):
    drivers = {
        name: each.start_parts_driver(resources=offers(name)) for name, each in nodes.items()
    }
    drivers["node-a"].refuse("no such luck")
    await cluster.submit(template("part", request(PARTS)))
    await cluster.submit(job("train", 4, pod_spec(SERVE, templates={"part": "part"})))
    await view.wait_bound("train", 4)
    await eventually(lambda: refused(drivers["node-a"]), within=30.0)
    await running(view, "train", 2)
    assert len(await view.bound("train")) == 4, "gangs stay whole where only preparing fails"
    drivers["node-a"].comply()
    await running(view, "train", 4, within=120.0)


async def test_pods_whose_prepare_fails_leave_their_devices(cluster, nodes, scheduler, view):
    driver = nodes["node-a"].start_parts_driver(resources=offers("node-a"))
    driver.refuse("no such luck")
    await cluster.submit(template("part", request(PARTS)))
    await cluster.submit(job("broken", 2, pod_spec(SERVE, templates={"part": "part"})))
    await eventually(lambda: refused(driver), within=30.0)
    await cluster.submit(job("next", 2, pod_spec(TELL, templates={"part": "part"})))
    await view.wait_pending("next", 2, reason="Unschedulable")
    await cluster.api.delete(view.path("jobs") + "/broken", {"propagationPolicy": "Background"})
    driver.comply()
    await running(view, "next", 2, phase="Succeeded")


async def refused(driver):
    return driver.calls("refuse")


async def test_a_gang_that_the_kubelet_refuses(cluster, nodes, scheduler, view):
    await cluster.submit(template("gpu", request()))
    size = GPUS * len(NAMES)
    windows = pod_spec(TELL, templates={"gpu": "gpu"}, os={"name": "windows"})
    refused = job("refused", size, windows)
    refused["spec"]["backoffLimit"] = 0
    await cluster.submit(refused)

    async def failed():
        status = (await cluster.api.get(view.path("jobs") + "/refused"))["status"]
        reasons = {pod["status"].get("reason") for pod in await view.pods("refused")}
        assert status.get("failed") == size, status
        return reasons

    assert await eventually(failed, within=60.0) == {"PodOSNotSupported"}
    await cluster.submit(job("next", size, pod_spec(TELL, templates={"gpu": "gpu"})))
    await running(view, "next", size, phase="Succeeded", within=90.0)
    assert [node.cdi_files() for node in nodes.values()] == [[], []]
