"""Fake nodes behave as real ones do where schedulers and controllers look."""

from typing import Any

import msgspec
import pytest

from tests.cluster.controlplane import Process
from tests.cluster.fake_kubelet import FakeKubelet, FakeNode, gpu_nodes
from tests.cluster.fake_kubelet.admission import pod_requests
from tests.cluster.fake_kubelet.nodes import GPU_DRIVER, LEASE_NAMESPACE
from tests.cluster.fake_kubelet.pods import HELD, RUN_SECONDS, STOP_SECONDS, Spec
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def pod_spec(**extra: Any) -> Document:
    containers = [{"name": "main", "image": "none"}]
    return {"restartPolicy": "Never", "containers": containers} | extra


def pod(name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": pod_spec(**spec),
    }


def one_gpu(name: str) -> Document:
    request = {"name": "gpu", "exactly": {"deviceClassName": GPU_DRIVER}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


async def test_job_is_bound_by_the_default_scheduler_runs_and_completes(
    real: Cluster, kube_scheduler: Process
):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pair"},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "template": {
                "spec": pod_spec(),
            },
        },
    }
    async with real.run_nodes(gpu_nodes(2)):
        await real.api.post(JOBS, job)

        async def both_run() -> bool:
            pods = await real.api.items(PODS)
            return len(pods) == 2 and all(p["status"]["phase"] == "Running" for p in pods)

        async def completed() -> bool:
            status = (await real.api.get(f"{JOBS}/pair"))["status"]
            return any(c["type"] == "Complete" for c in status.get("conditions", ()))

        await eventually(both_run)
        for running in await real.api.items(PODS):
            conditions = {c["type"]: c["status"] for c in running["status"]["conditions"]}
            assert conditions["PodScheduled"] == conditions["Ready"] == "True"
            assert running["status"]["containerStatuses"][0]["ready"]
            await tell(real, running["metadata"]["name"], RUN_SECONDS, "0.1")
        await eventually(completed)


async def test_pods_with_claims_get_distinct_published_gpus_and_give_them_back(
    real: Cluster, kube_scheduler: Process
):
    async with real.run_nodes(gpu_nodes(1, published_gpus=2)):
        await real.api.post(TEMPLATES, one_gpu("one-gpu"))
        claim = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
        for name in ("first", "second"):
            await real.api.post(PODS, pod(name, resourceClaims=[claim]))

        async def running() -> bool:
            pods = await real.api.items(PODS)
            return all(p["status"]["phase"] == "Running" for p in pods)

        async def no_claims() -> bool:
            return not await real.api.items(CLAIMS)

        await eventually(running)
        claims = await real.api.items(CLAIMS)
        devices = [c["status"]["allocation"]["devices"]["results"][0]["device"] for c in claims]
        assert sorted(devices) == ["gpu-0", "gpu-1"]

        for name in ("first", "second"):
            await real.api.delete(f"{PODS}/{name}")
        await eventually(no_claims, what="claims deleted, their finalizers removed")


async def test_a_bound_pod_whose_claim_is_not_allocated_does_not_start(real: Cluster):
    async with FakeKubelet(real.api, gpu_nodes(1, published_gpus=1)) as kubelet:
        await real.api.post(TEMPLATES, one_gpu("one-gpu"))
        claim = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
        await real.api.post(PODS, pod("eager", resourceClaims=[claim], nodeName="node-0"))

        async def reason() -> bool:
            return "is not allocated" in kubelet.waiting.get("default/eager", "")

        await eventually(reason)
        assert (await real.api.get(f"{PODS}/eager"))["status"]["phase"] == "Pending"


async def bind_with_device(cluster: Cluster, name: str, device: str) -> None:
    """Do by hand what a scheduler does for a pod with a claim, on node-0."""
    api = cluster.api
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": one_gpu("")["spec"]["spec"],
    }
    reference = {"name": "gpu", "resourceClaimName": name}
    gate = {"name": "kai-py.test/not-yet"}
    made = await api.create(claim)
    user = await api.post(PODS, pod(name, resourceClaims=[reference], schedulingGates=[gate]))
    result = {"request": "gpu", "driver": GPU_DRIVER, "pool": "node-0", "device": device}
    made["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": user["metadata"]["uid"]}],
    }
    await api.put(f"{CLAIMS}/{name}/status", made)
    await api.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": None}})
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-0"}
    await api.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})


async def test_a_device_given_to_two_claims_starts_one_pod_at_a_time(real: Cluster):
    async def runs(name: str) -> bool:
        return (await real.api.get(f"{PODS}/{name}"))["status"]["phase"] == "Running"

    async with FakeKubelet(real.api, gpu_nodes(1, published_gpus=1)) as kubelet:

        async def refused() -> bool:
            return "node-0/gpu-0 is in use" in kubelet.waiting.get("default/second", "")

        await bind_with_device(real, "first", "gpu-0")
        await eventually(lambda: runs("first"))
        await bind_with_device(real, "second", "gpu-0")
        await eventually(refused)
        assert not await runs("second")
        await real.api.delete(f"{PODS}/first")
        await eventually(lambda: runs("second"))


async def test_pods_beyond_what_the_node_has_are_rejected(cluster: Cluster):
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "2", "example.com/unknown": "1"}},
    }
    async with cluster.run_nodes(gpu_nodes(1, plugin_gpus=5)):
        for index in range(3):
            body = pod(f"pod-{index}", nodeName="node-0", containers=[container])
            await cluster.api.post(PODS, body)

        async def settled() -> bool:
            phases = [p["status"]["phase"] for p in await cluster.api.items(PODS)]
            return sorted(phases) == ["Failed", "Running", "Running"]

        await eventually(settled)
        failed = [p for p in await cluster.api.items(PODS) if p["status"]["phase"] == "Failed"]
        assert failed[0]["status"]["reason"] == "OutOfnvidia.com/gpu"


def test_pod_requests_count_sidecars_init_containers_and_overhead():
    def container(cpu: str, **extra: Any) -> Document:
        return {"name": cpu, "resources": {"requests": {"cpu": cpu}}, **extra}

    spec = {
        "initContainers": [container("3"), container("1", restartPolicy="Always"), container("5")],
        "containers": [container("2"), container("500m")],
        "overhead": {"cpu": "100m"},
    }
    requests = pod_requests(msgspec.convert(spec, Spec))
    # The last init container runs beside the sidecar: 5 + 1 is more than 1 + 2 + 0.5.
    assert requests == {"cpu": 6_100_000_000, "pods": 1_000_000_000}


@pytest.mark.parametrize(("exit_code", "phase"), [("0", "Succeeded"), ("3", "Failed")])
async def test_pod_ends_as_its_annotations_say(cluster: Cluster, exit_code: str, phase: str):
    annotations = {"kai-py.test/run-seconds": "0.1", "kai-py.test/exit-code": exit_code}
    async with cluster.run_nodes(gpu_nodes(1)):
        await cluster.api.post(PODS, pod("brief", annotations=annotations, nodeName="node-0"))

        async def ended() -> bool:
            return (await cluster.api.get(f"{PODS}/brief"))["status"]["phase"] == phase

        await eventually(ended)


async def tell(cluster: Cluster, name: str, annotation: str, value: str) -> None:
    """Change what a pod does from now on."""
    await cluster.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {annotation: value}}})


async def test_deleted_pod_leaves_after_its_stop_time_and_not_before(real: Cluster):
    annotations = {STOP_SECONDS: HELD}
    async with real.run_nodes(gpu_nodes(1)):
        await real.api.post(PODS, pod("slow", annotations=annotations, nodeName="node-0"))

        async def running() -> bool:
            return (await real.api.get(f"{PODS}/slow"))["status"]["phase"] == "Running"

        async def gone() -> bool:
            return not await real.api.items(PODS)

        await eventually(running)
        await real.api.delete(f"{PODS}/slow")
        stopping = await real.api.get(f"{PODS}/slow")
        assert "deletionTimestamp" in stopping["metadata"]
        assert stopping["status"]["phase"] == "Running"
        await tell(real, "slow", STOP_SECONDS, "0.1")
        await eventually(gone)


async def test_pods_of_other_nodes_are_left_alone(real: Cluster):
    async with FakeKubelet(real.api, gpu_nodes(1)):
        await real.api.post(PODS, pod("elsewhere", nodeName="node-of-another"))
        await real.api.post(PODS, pod("here", nodeName="node-0"))

        async def running() -> bool:
            return (await real.api.get(f"{PODS}/here"))["status"]["phase"] == "Running"

        await eventually(running)
        assert (await real.api.get(f"{PODS}/elsewhere"))["status"]["phase"] == "Pending"


async def test_nodes_are_ready_labelled_and_renew_their_leases(real: Cluster):
    node = FakeNode(name="alive", labels={"rack": "a"}, allocatable={"nvidia.com/gpu": "8"})
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/alive"
    async with FakeKubelet(real.api, [node], heartbeat_seconds=0.5):
        registered = await real.api.get("/api/v1/nodes/alive")
        assert registered["metadata"]["labels"]["rack"] == "a"
        assert registered["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        assert "taints" not in registered["spec"]
        first = (await real.api.get(lease))["spec"]["renewTime"]

        async def renewed() -> bool:
            return (await real.api.get(lease))["spec"]["renewTime"] > first

        await eventually(renewed)
