"""Manifests as articles print them, as a user would use them: lint --fix, kubectl apply, running.

Only on the real control plane: it alone has kubectl apply's validation and drops unknown fields.
"""

import asyncio
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet, FakeNode, gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import QUEUE_KEY, pod, pod_spec
from tests.support.cluster.process import kai_py
from tests.support.cluster.scheduling import install_definitions
from tests.support.cluster.view import View, devices_of
from tests.support.repository import ARTICLES, KAI_PY, needs

WRITTEN = sorted(ARTICLES.glob("0[1-6]*.yaml"))
QUEUE = "inference-team-a"
DRIVER = "gpu.nvidia.com"
NAMESPACES = ("default", "team-a", "team-research", "ml-workloads")


def slice_of(node: str, part: str, **content: Any) -> Document:
    """One of the two slices of a node's pool."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{part}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **content},
    }


def partitions(node: str, count: int) -> list[Document]:
    """The counters of one GPU for `count` MIG partitions of 10 GB."""
    drawn = {"counterSet": "gpu-0", "counters": {"memory": {"value": "10Gi"}}}
    devices = [
        {
            "name": f"gpu-0-mig-{index}",
            "attributes": {"type": {"string": "mig"}, "profile": {"string": "1g.10gb"}},
            "capacity": {"memory": {"value": "9728Mi"}},
            "consumesCounters": [drawn],
        }
        for index in range(count)
    ]
    counters = {"name": "gpu-0", "counters": {"memory": {"value": f"{10 * count}Gi"}}}
    return [
        slice_of(node, "counters", sharedCounters=[counters]),
        slice_of(node, "partitions", devices=devices),
    ]


def shared_gpus(node: str) -> list[Document]:
    """Two GPUs that are given away by their memory."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}}
    memory = {"value": "80Gi", "requestPolicy": policy}
    return [
        slice_of(
            node,
            f"shared-{index}",
            devices=[
                {
                    "name": f"gpu-{index}",
                    "allowMultipleAllocations": True,
                    "attributes": {"type": {"string": "shared"}},
                    "capacity": {"memory": memory},
                }
            ],
        )
        for index in range(2)
    ]


MIG_CLASS: Document = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "mig.nvidia.com"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": f"device.driver == '{DRIVER}' && "
                    f"device.attributes['{DRIVER}'].type == 'mig'"
                }
            }
        ]
    },
}


async def apply(plane: ControlPlane, article: Path) -> None:
    """`kai-py lint --fix FILE | kubectl apply -f -`."""
    fixed = await asyncio.to_thread(run, [*KAI_PY, "lint", "--fix", str(article)])
    kubectl = [str(plane.kubectl), "--kubeconfig", str(plane.kubeconfig)]
    await asyncio.to_thread(run, [*kubectl, "apply", "-f", "-"], fixed)


def run(command: list[str], given: str = "") -> str:
    ended = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr  # 1: lint has found something
    assert "error" not in ended.stderr.lower(), ended.stderr
    return ended.stdout


async def prepare(cluster: Cluster) -> None:
    """Namespaces that name the queue, the class of MIG partitions, devices beyond whole GPUs."""
    await install_definitions(cluster.api)
    for name in NAMESPACES[1:]:
        await cluster.create_namespace(name)
    for name in NAMESPACES:
        mark = {"metadata": {"annotations": {QUEUE_KEY: QUEUE}}}
        await cluster.api.patch(f"/api/v1/namespaces/{name}", mark)
    await cluster.submit(MIG_CLASS, *partitions("mig", 2), *shared_gpus("shared"))


@needs(ARTICLES)
async def test_corrected_articles_run(
    real: Cluster, real_control_plane: ControlPlane, tmp_path: Path
):
    await prepare(real)
    nodes = [*gpu_nodes(2, published_gpus=8), FakeNode(name="mig"), FakeNode(name="shared")]
    for article in WRITTEN:
        await apply(real_control_plane, article)
    async with FakeKubelet(real.api, nodes) as kubelet, kai_py(real, tmp_path):
        await View(real.api, "team-a").wait_bound("llama-training-run", 8, within=30)
        await View(real.api, "default").wait_bound("vllm-inference", 1)
        await View(real.api, "team-research").wait_bound("training-worker", 1)
        inference = View(real.api, "ml-workloads")
        await inference.wait_bound("model-training-job", 4)
        for name in ("mig-inference-claim", "fractional-inference-claim"):
            user = pod(f"user-of-{name}", pod_spec(claim=name), namespace="ml-workloads")
            user["metadata"]["annotations"] = {}
            await real.submit(user)
        await inference.wait_bound("user-of", 2)

        async def all_run() -> bool:
            pods = [pod for name in NAMESPACES for pod in await View(real.api, name).pods()]
            assert Counter(pod["status"]["phase"] for pod in pods) == {"Running": 16}
            return True

        await eventually(all_run, what="pods that their kubelets accept")
        assert kubelet.waiting == {}
    claims = {claim["metadata"]["name"]: claim for claim in await inference.claims()}
    ((_, pool, device),) = devices_of(claims["mig-inference-claim"])
    assert (pool, device[:9]) == ("mig", "gpu-0-mig")
    ((_, pool, _),) = devices_of(claims["fractional-inference-claim"])
    assert pool == "shared"
    (share,) = claims["fractional-inference-claim"]["status"]["allocation"]["devices"]["results"]
    assert share["consumedCapacity"] == {"memory": "10Gi"}
    assert share["shareID"]
    whole = [
        (result["pool"], result["device"])
        for name in NAMESPACES
        for claim in await View(real.api, name).claims()
        for result in claim["status"]["allocation"]["devices"]["results"]
        if "shareID" not in result
    ]
    assert len(whole) == len(set(whole))
