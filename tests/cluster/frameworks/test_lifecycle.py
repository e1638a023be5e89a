"""Gangs whose pods the frameworks' own controllers make, from their samples, through their life."""

import pytest

from tests.cluster.frameworks.conftest import RunController
from tests.cluster.frameworks.controllers import INFERENCE_SERVICES, KSERVE, submit_with
from tests.cluster.frameworks.modules import documents
from tests.cluster.frameworks.workloads import (
    LIMITS,
    NIGHTLY,
    WORKLOADS,
    Workload,
    inference_service,
    kserve_configuration,
    nodes,
    replaced,
    rival,
)
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

INFERENCE_SERVICE_PATH = "/apis/serving.kserve.io/v1beta1/namespaces/default/inferenceservices"
JSON_PATCH = "application/json-patch+json"
LONG = 40.0
"""Seconds for controllers that wait before they make a pod again."""


def named(workload: Workload) -> str:
    return f"{workload.controller.name}: {workload.collection.rpartition('/')[2]}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [*WORKLOADS, *(pytest.param(each, marks=pytest.mark.nightly) for each in NIGHTLY)],
    ids=named,
)
async def test_a_workload_of_a_real_controller(
    real: Cluster, run_controller: RunController, workload: Workload
):
    await install_definitions(real.api)
    await real.submit(LIMITS)
    if workload.below is not None:
        await run_controller(workload.below)
    await run_controller(workload.controller)
    view, document = View(real.api), workload.document()
    path = workload.path(document["metadata"]["name"])
    name = workload.pods_named or document["metadata"]["name"]
    small = nodes(1, f"{workload.gang - workload.pod}m", prefix="small")
    roomy = nodes(1, f"{workload.pod * workload.with_more}m", prefix="roomy")
    await real.submit(queue(deservedGPUs=64, maxGPUs=64))
    async with scheduling(real), real.run_nodes(small):
        await submit_with(real, workload.needs(), document)
        await view.wait_pending(name, workload.pods, reason="Unschedulable", within=LONG)
        async with real.run_nodes(roomy):
            await view.wait_bound(name, workload.pods, within=LONG)

            if not workload.is_protected:
                await lose_a_pod(view, name)
                await view.wait_bound(name, workload.pods, within=LONG)

            await real.api.patch(path, [workload.more], content_type=JSON_PATCH)
            await view.wait_bound(name, workload.with_more, within=LONG)

            await real.api.patch(path, [workload.none], content_type=JSON_PATCH)
            await eventually(lambda: gone(view, name), within=LONG, what="no pods")
            await real.api.patch(path, [workload.again], content_type=JSON_PATCH)
            await view.wait_bound(name, workload.in_the_end, within=LONG)

            await real.submit(*rival(f"{workload.pod * workload.with_more}m"))
            if workload.is_protected:
                message = await view.wait_pending("rival", 1, reason="Unschedulable", within=LONG)
                assert "protected by" in message
                assert len(await view.bound(name)) == workload.in_the_end
                return
            await view.wait_bound("rival", 1, within=LONG)
            await view.wait_bound(name, 0, within=LONG)  # no gang keeps a part of its pods
            await real.api.delete("/api/v1/namespaces/default/pods/rival")
            await view.wait_bound(name, workload.in_the_end, within=LONG)


@pytest.mark.nightly
async def test_replicas_of_an_inference_service_start_one_by_one(
    real: Cluster, run_controller: RunController
):
    await install_definitions(real.api)
    await real.submit(queue(), LIMITS, *kserve_configuration())
    await run_controller(INFERENCE_SERVICES)
    await real.submit(*documents(KSERVE.module, "config/runtimes/kserve-sklearnserver.yaml"))
    view, document = View(real.api), inference_service(2)
    name = f"{document['metadata']['name']}-predictor"
    path = f"{INFERENCE_SERVICE_PATH}/{document['metadata']['name']}"
    async with scheduling(real), real.run_nodes(nodes(1, "1", prefix="a")):
        await real.submit(document)
        await view.wait_bound(name, 1, within=LONG)
        await view.wait_pending(name, 1, reason="Unschedulable", within=LONG)
        async with real.run_nodes(nodes(1, "2", prefix="b")):
            await view.wait_bound(name, 2, within=LONG)
            await lose_a_pod(view, name)
            await view.wait_bound(name, 2, within=LONG)
            more = replaced("/spec/predictor/minReplicas", 3)
            await real.api.patch(path, [more], content_type=JSON_PATCH)
            await view.wait_bound(name, 3, within=LONG)
            await real.api.delete(path)
            await eventually(lambda: gone(view, name), within=LONG, what="no pods")


async def gone(view: View, name: str) -> bool:
    return not await view.pods(name)


async def lose_a_pod(view: View, name: str) -> None:
    """Delete the last pod, and wait until it has gone."""
    lost = (await view.pods(name))[-1]["metadata"]
    await view.api.delete(f"/api/v1/namespaces/default/pods/{lost['name']}")

    async def replaced() -> bool:
        return lost["uid"] not in {pod["metadata"]["uid"] for pod in await view.pods(name)}

    await eventually(replaced, what=f"{lost['name']} gone")
