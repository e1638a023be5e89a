"""The real Karpenter adds all nodes of a gang at once, and none for one that its queue holds.

Its kwok provider makes Node objects; the test plays their kubelets and drivers. Karpenter has no
setting for the address of its probes, so these tests run at night only, on control planes of their
own. Pods with claims are left out by Karpenter 1.8 unless ``IGNORE_DRA_REQUESTS`` is false; then it
counts what they request beside devices. 1.15 knows devices, but its kwok provider has none.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.cluster.controlplane import control_plane
from tests.cluster.controlplane.ports import unlikely_port
from tests.cluster.controlplane.processes import running
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.fake_kubelet.nodes import FakeNode, gpu_class_document, slice_document
from tests.cluster.karpenter.binary import karpenter, sources
from tests.support.cluster.account import scheduler_account
from tests.support.cluster.api import Api, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import TEMPLATE, claim_template, job, pod_spec, queue
from tests.support.cluster.scheduling import install, install_definitions, scheduling
from tests.support.cluster.view import View
from tests.support.patience import time_limit

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
QUIET_SECONDS = 15.0
"""Longer than Karpenter collects pods before it adds nodes, which is ten seconds at most."""
NODE_CLASS = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
}
NODE_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "requirements": [
                    {
                        "key": "node.kubernetes.io/instance-type",
                        "operator": "In",
                        "values": ["c-8x-amd64-linux"],
                    }
                ],
                "nodeClassRef": {
                    "group": "karpenter.kwok.sh",
                    "kind": "KWOKNodeClass",
                    "name": "default",
                },
                "expireAfter": "Never",
            }
        },
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    },
}
GROUP = {
    "name": "c8x",
    "allocatable": {"cpu": 8, "memory": "16Gi"},
    "devices": [{"driver": "gpu.nvidia.com", "count": 1, "attributes": {"type": "gpu"}}],
}
"""What the NodePool makes, with what the driver will publish there."""
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Played",
    "message": "",
    "lastHeartbeatTime": None,
    "lastTransitionTime": None,
}


@asynccontextmanager
async def with_karpenter(directory: Path, *options: str) -> AsyncIterator[Cluster]:
    with control_plane(directory / "plane") as plane:
        async with Api(plane.kubeconfig) as api:
            account = await scheduler_account(api)
            await install_definitions(api)
            for path in sorted(sources().glob("**/apis/crds/*.yaml")):
                for each in yaml.safe_load_all(path.read_text()):
                    await install(api, each)
            kubelets = asyncio.create_task(play_kubelets(api))
            settings = (
                f"KUBECONFIG={plane.kubeconfig}",
                f"HEALTH_PROBE_PORT={unlikely_port()}",
                f"METRICS_PORT={unlikely_port()}",
                "DISABLE_LEADER_ELECTION=true",
                *options,
            )
            with running(["/usr/bin/env", *settings, karpenter()], directory / "karpenter.log"):
                await api.create(NODE_CLASS)
                await api.create(NODE_POOL)
                yield Cluster(
                    name="real",
                    kubeconfig=plane.kubeconfig,
                    scheduler_kubeconfig=account,
                    url=plane.url,
                    api=api,
                    run_nodes=lambda nodes: FakeKubelet(api, nodes),
                )
            kubelets.cancel()


async def play_kubelets(api: Api) -> None:
    """Nodes are ready as soon as they exist, and then their driver publishes a GPU."""
    while True:
        for node in await api.items("/api/v1/nodes"):
            name, conditions = node["metadata"]["name"], node["status"].get("conditions") or ()
            if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
                path = f"/api/v1/nodes/{name}/status"
                await api.patch(path, {"status": {"conditions": [READY]}})
                gpu = FakeNode(name=name, published_gpus=1)
                await api.create(slice_document(gpu, node["metadata"]["uid"]))
        await asyncio.sleep(0.5)


def work(name: str, pods: int, *, template: str = "") -> Document:
    """A Job; one of its pods fills more than half of a node."""
    spec = pod_spec(template=template)
    spec["containers"][0]["resources"] |= {"requests": {"cpu": "5"}}
    return job(name, pods, spec)


async def events_of(cluster: Cluster, reason: str) -> set[str]:
    """What events with a reason say."""
    events = await cluster.api.items("/api/v1/namespaces/default/events")
    return {each["message"] for each in events if each["reason"] == reason}


@pytest.mark.nightly
@pytest.mark.timeout(time_limit(300))
async def test_a_gang_gets_all_its_nodes_in_one_go_or_none(tmp_path: Path):
    async with with_karpenter(tmp_path) as cluster, scheduling(cluster):
        view = View(cluster.api)
        await cluster.submit(queue(resources={"cpu": {"max": "50"}}), work("train", 8))
        bound = await view.wait_bound("train", 8, within=40.0)
        assert len(set(bound.values())) == 8
        claims = await cluster.api.items(CLAIMS)
        assert len(claims) == 8
        times = {each["metadata"]["creationTimestamp"] for each in claims}
        assert len(times) <= 2  # one batch, maybe over the turn of a second
        await cluster.submit(work("over", 8))
        await view.wait_pending("over", 8, reason="QueueMax")
        await asyncio.sleep(QUIET_SECONDS)
        assert len(await cluster.api.items(CLAIMS)) == 8


@pytest.mark.nightly
@pytest.mark.timeout(time_limit(300))
async def test_a_gang_of_claims_gets_its_nodes_if_karpenter_may_count_without_devices(
    tmp_path: Path,
):
    groups = tmp_path / "groups.yaml"
    groups.write_text(yaml.safe_dump({"autoscaling": {"nodeGroups": [GROUP]}}))
    async with with_karpenter(tmp_path, "IGNORE_DRA_REQUESTS=false") as cluster:
        await cluster.submit(queue(), gpu_class_document(), claim_template())
        await cluster.submit(work("train", 4, template=TEMPLATE))
        view = View(cluster.api)
        assert (await what_if(cluster, groups, "c8x=3"))["pending"], "a node of the group too few"
        assert [each["gang"] for each in (await what_if(cluster, groups, "c8x=4"))["starts"]] == [
            "default/Job/train"
        ]
        async with scheduling(cluster):
            bound = await view.wait_bound("train", 4, within=40.0)
            assert len(set(bound.values())) == 4
            assert len(await cluster.api.items(CLAIMS)) == 4
            assert len(await view.held()) == 4


@pytest.mark.nightly
@pytest.mark.timeout(time_limit(300))
async def test_karpenter_leaves_out_a_gang_of_claims_as_it_is_installed(tmp_path: Path):
    async with with_karpenter(tmp_path) as cluster, scheduling(cluster):
        await cluster.submit(queue(), gpu_class_document(), claim_template())
        await cluster.submit(work("train", 4, template=TEMPLATE))
        await View(cluster.api).wait_pending("train", 4, reason="Unschedulable")

        async def said() -> bool:
            found = await events_of(cluster, "FailedScheduling")
            return any("not yet supported by Karpenter" in each for each in found)

        await eventually(said, within=40.0, what="Karpenter says that it leaves the pods out")
        assert await cluster.api.items(CLAIMS) == []


async def what_if(cluster: Cluster, groups: Path, nodes: str) -> Document:
    """The answer of ``kai-py what-if`` for so many nodes of a group that has none."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("kai-py"),
        *("what-if", "--config", str(groups), "--add-nodes", nodes, "--json"),
        f"--kubeconfig={cluster.kubeconfig}",
        stdout=asyncio.subprocess.PIPE,
    )
    answer, _ = await process.communicate()
    return dict(json.loads(answer))
