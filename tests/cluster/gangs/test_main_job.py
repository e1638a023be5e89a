"""The main job: a queue, a Job of 8 pods with a claim each; all start, on 8 devices, or none."""

import re
import subprocess
from collections import Counter

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet, gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, pod, queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View, devices_of, scheduled_condition

PROTECTION = "resource.kubernetes.io/delete-protection"


@pytest.mark.usefixtures("scheduler")
async def test_eight_pods_run_on_eight_devices_of_the_fewest_nodes(cluster: Cluster, view: View):
    async with FakeKubelet(cluster.api, gpu_nodes(4, published_gpus=4)) as kubelet:
        await cluster.submit(queue(), claim_template(), job("train", 8))
        bound = await view.wait_bound("train", 8)

        async def all_run() -> bool:
            return all(p["status"]["phase"] == "Running" for p in await view.pods("train"))

        await eventually(all_run, what="pods that their kubelet accepts")
        assert kubelet.waiting == {}
    assert sorted(Counter(bound.values()).values()) == [4, 4]
    assert len(set(await view.held())) == 8
    pods = {p["metadata"]["uid"]: p for p in await view.pods("train")}
    for claim in await view.claims():
        (consumer,) = claim["status"]["reservedFor"]
        user = pods.pop(consumer["uid"])
        assert (consumer["resource"], consumer["name"]) == ("pods", user["metadata"]["name"])
        assert claim["metadata"]["finalizers"] == [PROTECTION]
        ((driver, pool, _),) = devices_of(claim)
        assert (driver, pool) == ("gpu.nvidia.com", user["spec"]["nodeName"])
        assert claim["status"]["allocation"]["devices"]["results"][0]["request"] == "gpu"
        (term,) = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
        assert [field["values"] for field in term["matchFields"]] == [[pool]]
        assert scheduled_condition(user)["status"] == "True"
    assert pods == {}


@pytest.mark.usefixtures("scheduler")
async def test_with_seven_free_gpus_none_starts_and_freeing_one_starts_all(
    cluster: Cluster, view: View
):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(queue(), claim_template(), pod("holder"))
        await view.wait_bound("holder", 1)
        await cluster.submit(job("train", 8))
        message = await view.wait_pending("train", 8, reason="Unschedulable")
        assert await view.bound("train") == {}
        assert len(await view.held()) == 1
        assert message.startswith("8 pods must start together but only 7 can be scheduled: ")
        assert is_one_sentence(message)

        async def told() -> bool:
            name = (await view.pods("train"))[0]["metadata"]["name"]
            on_pod = await view.events(kind="Pod", name=name, reason="FailedScheduling")
            on_job = await view.events(kind="Job", name="train", reason="FailedScheduling")
            return message in on_pod and message in on_job

        await eventually(told, what="events on pod and job")
        await cluster.api.delete(f"{view.path('pods')}/holder")
        await view.wait_bound("train", 8)
        assert len(set(await view.held())) == 8


def is_one_sentence(text: str) -> bool:
    return text.endswith(".") and not re.search(r"[.!?]\s", text) and "\n" not in text


@pytest.mark.usefixtures("scheduler")
async def test_deleting_the_job_frees_every_device(cluster: Cluster, view: View):
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=8)):
        await cluster.submit(queue(), claim_template(), job("first", 8))
        await view.wait_bound("first", 8)
        await cluster.api.delete(f"{view.path('jobs')}/first", {"propagationPolicy": "Background"})
        await cluster.submit(job("second", 8))
        await view.wait_bound("second", 8)

        async def only_the_second_holds() -> bool:
            names = {c["metadata"]["name"].split("-")[0] for c in await view.claims()}
            return names == {"second"}

        await eventually(only_the_second_holds, what="claims of the first job gone")


@pytest.mark.usefixtures("scheduler")
async def test_finished_pods_give_their_devices_to_the_next_job(cluster: Cluster, view: View):
    brief = {"kai-py.test/run-seconds": "0.3"}
    async with cluster.run_nodes(gpu_nodes(1, published_gpus=4)):
        await cluster.submit(queue(), claim_template())
        for name in ("first", "second", "third"):
            await cluster.submit(job(name, 4, pod_annotations=brief))

        async def complete() -> bool:
            jobs = await cluster.api.items(view.path("jobs"))
            return all(j.get("status", {}).get("succeeded") == 4 for j in jobs)

        await eventually(complete, within=30, what="three jobs complete, one after the other")


async def test_a_pending_pod_is_described_in_one_sentence(
    real: Cluster, real_control_plane: ControlPlane
):
    """Only the real cluster has kubectl's describe: it reads core/v1 events by field selector."""
    view = View(real.api)
    await install_definitions(real.api)
    async with real.run_nodes(gpu_nodes(1, published_gpus=4)), scheduling(real):
        await real.submit(queue(), claim_template(), job("train", 8))
        message = await view.wait_pending("train", 8, reason="Unschedulable")
        name = (await view.pods("train"))[0]["metadata"]["name"]

        async def described() -> bool:
            text = describe(real_control_plane, name)
            assert re.search(r"PodScheduled\s+False", text), text
            return bool(re.search(rf"Warning\s+FailedScheduling.*{re.escape(message)}", text))

        await eventually(described, what="the sentence among the events")


def describe(plane: ControlPlane, pod_name: str) -> str:
    command = [plane.kubectl, "--kubeconfig", plane.kubeconfig, "describe", "pod", pod_name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
