"""The real Karpenter adds all nodes of a gang at once, and none for one that its queue holds.

Its kwok provider makes Node objects; the test plays their kubelets. Karpenter has no setting for
the address of its probes, so this test runs at night only, on a control plane of its own.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.cluster.controlplane import control_plane
from tests.cluster.controlplane.processes import running
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.karpenter.binary import karpenter, sources
from tests.support.cluster.account import scheduler_account
from tests.support.cluster.api import Api, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import job, pod_spec, queue
from tests.support.cluster.scheduling import install, install_definitions, scheduling
from tests.support.cluster.view import View
from tests.support.patience import patience

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
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Played",
    "message": "",
    "lastHeartbeatTime": None,
    "lastTransitionTime": None,
}


@asynccontextmanager
async def with_karpenter(directory: Path) -> AsyncIterator[Cluster]:
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
                "HEALTH_PROBE_PORT=18081",
                "METRICS_PORT=18080",
                "DISABLE_LEADER_ELECTION=true",
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
    """Nodes are ready as soon as they exist."""
    while True:
        for node in await api.items("/api/v1/nodes"):
            conditions = node["status"].get("conditions") or ()
            if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
                path = f"/api/v1/nodes/{node['metadata']['name']}/status"
                await api.patch(path, {"status": {"conditions": [READY]}})
        await asyncio.sleep(0.5)


def work(name: str, pods: int) -> Document:
    """A Job; one of its pods fills more than half of a node."""
    spec = pod_spec()
    resources = {"requests": {"cpu": "5"}}
    spec["containers"] = [{"name": "main", "image": "none", "resources": resources}]
    return job(name, pods, spec)


@pytest.mark.nightly
@pytest.mark.timeout(patience(300))
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
