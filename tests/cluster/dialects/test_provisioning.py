"""A ProvisioningRequest per gang, with the test in the place of the autoscaler.

The scheduler has the permissions that `kai-py install` gives it, so only on the real API server.
"""

import time
from pathlib import Path

from kai_py.api.autoscaling import AutoscalingConfig, ProvisioningConfig
from kai_py.api.times import format_time
from kai_py.deploy.objects import NAME
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.frameworks import Framework, served
from tests.support.cluster.installation import SPACES, as_account, install
from tests.support.cluster.manifests import job, pod_spec, queue
from tests.support.cluster.scheduling import EAGER, install_definitions, scheduling
from tests.support.cluster.view import View

REQUEST = Framework("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", {}, ())
PREFIX = "autoscaling.x-k8s.io"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
CLASS = "check-capacity.autoscaling.x-k8s.io"
ASKING = EAGER.model_copy(
    update={
        "autoscaling": AutoscalingConfig(
            provisioning=ProvisioningConfig(class_name=CLASS, retry_after=2.0)
        )
    }
)


async def test_a_gang_asks_for_its_capacity_at_once_until_it_starts(
    real: Cluster, tmp_path: Path
) -> None:
    view, space = View(real.api), next(SPACES)
    await install(real, space, ASKING)
    its = await as_account(real, space, NAME, tmp_path / "kubeconfig")
    async with (
        served(real, REQUEST),
        real.run_nodes(gpu_nodes(1, plugin_gpus=2)),
        scheduling(its, ASKING),
    ):
        await real.submit(queue(), job("train", 4, pod_spec(gpus=1)))
        await view.wait_pending("train", 4, reason="ProvisioningRequested")
        first = await request(real)
        await asks_for_four(real, first)
        await name_their_request(view, [first["metadata"]["name"]] * 4)
        await answer(real, first, "Accepted", "True")
        await says(view, "an autoscaler has accepted it")
        await answer(real, first, "Failed", "True")
        await says(view, "it failed (so says the test)")
        second = await request(real, after=first)
        await asks_for_four(real, second)
        await answer(real, second, "Provisioned", "True")
        await says(view, "its nodes are ready (so says the test)")
        async with real.run_nodes(gpu_nodes(1, plugin_gpus=2, prefix="added")):
            await view.wait_bound("train", 4)
            await name_their_request(view, [second["metadata"]["name"]] * 4)

            async def gone() -> bool:
                assert await real.api.items(REQUESTS) == []
                assert await real.api.items(TEMPLATES) == []
                return True

            await eventually(gone, what="no request of a gang that started")


async def test_pods_whose_request_is_no_use_any_more_do_not_name_it(real: Cluster) -> None:
    view = View(real.api)
    await install_definitions(real.api)
    async with (
        served(real, REQUEST),
        real.run_nodes(gpu_nodes(1, plugin_gpus=1)),
        scheduling(real, ASKING),
    ):
        await real.submit(queue(), job("train", 2, pod_spec(gpus=1)))
        made = await request(real)
        await name_their_request(view, [made["metadata"]["name"]] * 2)
        path = "/apis/scheduling.kai.io/v1alpha1/queues/team-a"
        await real.api.patch(path, {"spec": {"deservedGPUs": 1, "maxGPUs": 1}})
        await view.wait_pending("train", 2, reason="QueueMax")
        await name_their_request(view, [None] * 2)


async def request(real: Cluster, *, after: Document | None = None) -> Document:
    """The one request there is, another one than `after`."""

    async def made() -> Document:
        found = await real.api.items(REQUESTS)
        assert len(found) == 1
        assert after is None or found[0]["metadata"]["uid"] != after["metadata"]["uid"]
        return found[0]

    return await eventually(made, what="a ProvisioningRequest")


async def asks_for_four(real: Cluster, asked: Document) -> None:
    """Its one pod set is of four pods like the Job's; their template goes with the request."""
    assert asked["spec"]["provisioningClassName"] == CLASS
    assert [each["count"] for each in asked["spec"]["podSets"]] == [4]
    name = asked["spec"]["podSets"][0]["podTemplateRef"]["name"]

    async def templated() -> bool:
        found = {each["metadata"]["name"]: each for each in await real.api.items(TEMPLATES)}
        owners = [each["uid"] for each in found[name]["metadata"]["ownerReferences"]]
        assert owners == [asked["metadata"]["uid"]]
        spec = found[name]["template"]["spec"]
        assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
        return True

    await eventually(templated, what="its PodTemplate")


async def name_their_request(view: View, names: list[str | None]) -> None:
    """Each pod says by its annotations which request frees capacity for it."""

    async def said() -> bool:
        marks = [each["metadata"].get("annotations") or {} for each in await view.pods("train")]
        assert [each.get(f"{PREFIX}/consume-provisioning-request") for each in marks] == names
        classes = [CLASS if name else None for name in names]
        assert [each.get(f"{PREFIX}/provisioning-class-name") for each in marks] == classes
        return True

    await eventually(said, what=f"pods that name {names}")


async def answer(real: Cluster, asked: Document, kind: str, status: str) -> None:
    """Say something of a request, as an autoscaler would."""
    stated = {
        "type": kind,
        "status": status,
        "reason": kind,
        "message": "so says the test" if kind != "Accepted" else "",
        "lastTransitionTime": format_time(time.time()),
    }
    path = f"{REQUESTS}/{asked['metadata']['name']}/status"
    await real.api.patch(path, {"status": {"conditions": [stated]}})


async def says(view: View, words: str) -> None:
    """An event on the Job says how its request stands."""

    async def said() -> bool:
        told = await view.events(kind="Job", name="train", reason="FailedScheduling")
        assert any(f"{words}." in note for note in told), told
        return True

    await eventually(said)
