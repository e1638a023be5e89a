"""kai-py beside kube-scheduler on the same nodes: each counts what the other has placed.

Only on the real control plane: the embedded one has no second scheduler.
"""

import pytest

from tests.cluster.fake_kubelet import FakeKubelet, FakeNode
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import TEMPLATE, claim_template, job, pod, pod_spec, queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

NODES, GPUS, CPUS = 3, 4, 8
THEIRS = "default-scheduler"


def small_nodes() -> list[FakeNode]:
    allocatable = {"cpu": str(CPUS)}
    return [
        FakeNode(name=f"n{i}", allocatable=allocatable, published_gpus=GPUS) for i in range(NODES)
    ]


def cpu_pod(name: str, scheduler: str, cpus: int) -> Document:
    spec = pod_spec(scheduler=scheduler)
    spec["containers"][0]["resources"] = {"requests": {"cpu": str(cpus)}}
    return pod(name, spec)


def gpu_pod(name: str, scheduler: str) -> Document:
    return pod(name, pod_spec(template=TEMPLATE, scheduler=scheduler))


async def all_run(view: View, kubelet: FakeKubelet) -> None:
    """No kubelet turns away what either scheduler has placed."""

    async def running() -> bool:
        phases = {
            p["metadata"]["name"]: p["status"]["phase"]
            for p in await view.pods()
            if p["spec"].get("nodeName")
        }
        assert set(phases.values()) == {"Running"}, (phases, kubelet.waiting)
        return True

    await eventually(running, what="pods that their kubelets accept")


@pytest.mark.usefixtures("kube_scheduler")
async def test_devices_and_cpus_of_either_count_for_the_other(real: Cluster):
    view = View(real.api)
    await install_definitions(real.api)
    await real.submit(queue(), claim_template())
    async with FakeKubelet(real.api, small_nodes()) as kubelet, scheduling(real):
        await real.submit(*(gpu_pod(f"theirs-{i}", THEIRS) for i in range(4)))
        await view.wait_bound("theirs", 4)
        await real.submit(job("ours", 8))
        await view.wait_bound("ours", 8)
        assert len(await view.held()) == len(set(await view.held())) == NODES * GPUS
        # Full: what comes now waits, whoever it belongs to, and starts when the other side leaves.
        # One at a time: the API lets two schedulers that decide in the same moment clash.
        await real.submit(gpu_pod("next", THEIRS))
        await view.wait_pending("next", 1, reason="Unschedulable")
        await real.api.delete(f"{view.path('jobs')}/ours", {"propagationPolicy": "Background"})
        await view.wait_bound("next", 1)
        await real.submit(job("more", 8))
        await view.wait_pending("more", 8, reason="Unschedulable")
        await real.api.delete(f"{view.path('pods')}/theirs-0")
        await view.wait_bound("more", 8)
        assert len(await view.held()) == len(set(await view.held()))
        await all_run(view, kubelet)


@pytest.mark.usefixtures("kube_scheduler")
async def test_cpus_fill_up_and_not_over(real: Cluster):
    view = View(real.api)
    await install_definitions(real.api)
    await real.submit(queue())
    async with FakeKubelet(real.api, small_nodes()) as kubelet, scheduling(real):
        for turn in range(4):
            await real.submit(*(cpu_pod(f"theirs-{turn}-{i}", THEIRS, 1) for i in range(3)))
            await view.wait_bound(f"theirs-{turn}", 3)
            await real.submit(*(cpu_pod(f"ours-{turn}-{i}", "kai-scheduler", 1) for i in range(3)))
            await view.wait_bound(f"ours-{turn}", 3)
        await real.submit(cpu_pod("ours-last", "kai-scheduler", 1))
        await real.submit(cpu_pod("theirs-last", THEIRS, 1))
        message = await view.wait_pending("ours-last", 1, reason="Unschedulable")
        assert "cpu" in message.lower()
        await view.wait_pending("theirs-last", 1, reason="Unschedulable")
        await all_run(view, kubelet)
