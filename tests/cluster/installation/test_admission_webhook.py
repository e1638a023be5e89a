"""The admission webhooks as the real API server calls them, with the permissions they ask for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from kai_py.api.admission import ADMISSION_LABEL, ENABLED, WEBHOOK_NAME
from kai_py.api.queue import ADMISSION_GATE
from kai_py.api.settings import WebhookConfig
from kai_py.config import Configuration, LeaderElectionConfig
from tests.cluster.controlplane import binaries
from tests.cluster.controlplane.ports import reserved_port
from tests.cluster.controlplane.processes import Process, running
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.fake_kubelet.pods import VISIBLE
from tests.support.cluster.api import ApiError, Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.installation import SPACES, as_account, install
from tests.support.cluster.kai_definitions import install_kai_definitions
from tests.support.cluster.manifests import QUEUE_KEY, SCHEDULER, job, pod, pod_spec, queue
from tests.support.cluster.scheduling import scheduling
from tests.support.cluster.shared_gpus import RESERVATIONS, SHARING
from tests.support.cluster.view import View, scheduled_condition
from tests.support.repository import KAI_PY

QUEUES = "/apis/scheduling.kai.io/v1alpha1/queues"
REGISTERED = "/apis/admissionregistration.k8s.io/v1"
START_SECONDS = 30.0
REFUSED = 422


@asynccontextmanager
async def webhooks(real: Cluster, directory: Path) -> AsyncIterator[Process]:
    """`kai-py webhook` as its own account, called by the API server on loopback."""
    space = next(SPACES)
    with reserved_port() as port:
        wanted = WebhookConfig(host="127.0.0.1", port=port, namespace=space, names=("127.0.0.1",))
        configuration = Configuration(
            webhook=wanted, leader_election=LeaderElectionConfig(namespace=space)
        )
        await install(real, space, configuration, webhook=True)
        await install_kai_definitions(real.api)
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            await lead_to(real, f"{REGISTERED}/{kind}/{WEBHOOK_NAME}", port)
        its = await as_account(real, space, WEBHOOK_NAME, directory / "kubeconfig")
        settings = directory / "config.yaml"
        settings.write_text(yaml.safe_dump({"webhook": wanted.model_dump(by_alias=True)}))
        command = [*KAI_PY, "webhook", "--kubeconfig", its.kubeconfig, "--config", settings]
        with running(command, directory / "webhook.log") as process:
            await eventually(
                lambda: answers(real, process), within=START_SECONDS, what="webhooks that answer"
            )
            yield process


async def lead_to(real: Cluster, path: str, port: int) -> None:
    """Have the API server call loopback in place of a Service, which needs a network."""
    found = await real.api.get(path)
    for each in found["webhooks"]:
        where = each["clientConfig"].pop("service")["path"]
        each["clientConfig"]["url"] = f"https://127.0.0.1:{port}{where}"
    await real.api.request("PUT", path, found)


async def answers(real: Cluster, process: Process) -> bool:
    """Whether a queue that would be refused is refused."""
    assert process.running, process.log_tail()
    await real.api.create(queue("probe-org", deservedGPUs=1, maxGPUs=1))
    try:
        await real.api.create(queue("probe", parent="probe-org", deservedGPUs=2, maxGPUs=2))
    except ApiError as error:
        return error.code == REFUSED
    else:
        await real.api.delete(f"{QUEUES}/probe")
        return False
    finally:
        await real.api.delete(f"{QUEUES}/probe-org")


def plain_pod(name: str, **meta: Document) -> Document:
    """A pod that names neither scheduler nor queue."""
    spec = pod_spec(gpus=1)
    del spec["schedulerName"]
    made = pod(name, spec, annotations={})
    made["metadata"] |= meta
    return made


async def enable(real: Cluster, **labels: str) -> None:
    marks = {ADMISSION_LABEL: ENABLED, QUEUE_KEY: "team-a"} | labels
    await real.api.patch("/api/v1/namespaces/default", {"metadata": {"labels": marks}})


@pytest.fixture
async def unlabelled(real: Cluster) -> AsyncIterator[None]:
    """The namespace is left as it was found."""
    yield
    marks = {ADMISSION_LABEL: None, QUEUE_KEY: None}
    await real.api.patch("/api/v1/namespaces/default", {"metadata": {"labels": marks}})


@pytest.mark.usefixtures("unlabelled")
async def test_the_webhooks_from_start_to_end(real: Cluster, tmp_path: Path) -> None:
    view = View(real.api)
    async with webhooks(real, tmp_path) as process, scheduling(real, SHARING):
        await cycles_are_refused(real)
        await pods_get_scheduler_and_queue(real, view)
        await a_gate_opens_when_there_is_quota(real, view)
        await a_shared_gpu_is_seen_where_it_is_meant(real, view)
        assert "admitted without review" not in process.log.read_text()
        process.stop()
        await real.submit(queue("late", parent="nowhere"))
        await real.submit(plain_pod("late"), job("unserved", 1, pod_spec(gpus=1)))
        async with real.run_nodes(gpu_nodes(1, plugin_gpus=8)):
            await view.wait_bound("unserved", 1)


async def cycles_are_refused(real: Cluster) -> None:
    await real.submit(queue("org"), queue("team-a", parent="org", maxGPUs=16))
    with pytest.raises(ApiError, match=r"'org' is its own ancestor \(org > team-a > org\)"):
        await real.api.patch(f"{QUEUES}/org", {"spec": {"parent": "team-a"}})
    with pytest.raises(ApiError, match=r"'team-a'.* but queue 'org' above has"):
        await real.api.patch(f"{QUEUES}/org", {"spec": {"maxGPUs": 4, "deservedGPUs": 0}})
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "wrong", "namespace": "default"},
        "spec": {"subGroups": [{"name": "a", "parent": "b"}]},
    }
    with pytest.raises(ApiError, match='there is no subgroup "b"'):
        await real.submit(group)
    told = await applied(real, queue("orphan", parent="nowhere"))
    assert "Warning: queue 'orphan': parent 'nowhere' does not exist" in told


async def applied(real: Cluster, document: Document) -> str:
    """What kubectl prints when it creates a document."""
    process = await asyncio.create_subprocess_exec(
        *(str(binaries() / "kubectl"), f"--kubeconfig={real.kubeconfig}", "create", "-f", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(yaml.safe_dump(document).encode())
    return output.decode()


async def pods_get_scheduler_and_queue(real: Cluster, view: View) -> None:
    await real.submit(plain_pod("before"))
    await enable(real)

    async def given() -> bool:
        await real.submit(plain_pod("after-label"))
        (found,) = await view.pods("after-label")
        seen = (found["spec"]["schedulerName"], found["metadata"].get("labels", {}).get(QUEUE_KEY))
        if seen != (SCHEDULER, "team-a"):
            await real.api.delete(f"{view.path('pods')}/after-label")
        return seen == (SCHEDULER, "team-a")

    await eventually(given, what="a pod with scheduler and queue")
    (untouched,) = await view.pods("before")
    assert untouched["spec"]["schedulerName"] == "default-scheduler"
    elsewhere = job("elsewhere", 1, annotations={QUEUE_KEY: "team-b"})
    del elsewhere["spec"]["template"]["spec"]["schedulerName"]
    elsewhere["spec"]["template"]["spec"] |= pod_spec(gpus=1)
    del elsewhere["spec"]["template"]["spec"]["schedulerName"]
    await real.submit(queue("team-b"), elsewhere)
    (of_job,) = await eventually(lambda: view.pods("elsewhere"))
    assert of_job["spec"]["schedulerName"] == SCHEDULER
    assert QUEUE_KEY not in of_job["metadata"].get("labels", {})


async def a_shared_gpu_is_seen_where_it_is_meant(real: Cluster, view: View) -> None:
    """Manifests as KAI's users have them, and nothing else; the namespace gives the scheduler."""
    notes = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"}
    spec = pod_spec()
    spec["containers"] = [{"name": "proxy", "image": "cuda"}, *spec["containers"]]
    del spec["schedulerName"]
    # The scheduler of this test is not that of the installation, whose policy reserves this to it.
    await real.api.delete(f"{REGISTERED}/validatingadmissionpolicybindings/kai-py-reservations")
    async with real.run_nodes(gpu_nodes(1, plugin_gpus=8)):
        await real.submit(job("halves", 2, spec, annotations={}, pod_annotations=notes))

        async def seen() -> list[str]:
            found = await view.pods("halves")
            told = [each["metadata"]["annotations"].get(VISIBLE, "") for each in found]
            assert len(told) == 2, await view.say("halves")
            assert all(told), await view.say("halves")
            return told

        first, second = await eventually(seen, within=30.0)
        assert first == second
        assert first.startswith("proxy=void;main=GPU-node-0-")
        options = {"propagationPolicy": "Background"}
        await real.api.request("DELETE", f"{view.path('jobs')}/halves", options)
        await eventually(lambda: _none_left(real), within=30.0, what="no reservation pod")


async def _none_left(real: Cluster) -> bool:
    return not await real.api.items(RESERVATIONS)


async def a_gate_opens_when_there_is_quota(real: Cluster, view: View) -> None:
    await real.submit(queue("gated", deservedGPUs=1, maxGPUs=1, admissionGate=True))
    in_gated = {QUEUE_KEY: "gated"}

    async def with_gate() -> bool:
        await real.submit(job("train", 2, pod_spec(gpus=1), annotations=in_gated))
        pods = await eventually(lambda: both("train"))
        gates = [pod["spec"].get("schedulingGates") for pod in pods]
        if gates == [[{"name": ADMISSION_GATE}]] * 2:
            return True
        options = {"propagationPolicy": "Background"}
        await real.api.request("DELETE", f"{view.path('jobs')}/train", options)
        await eventually(lambda: gone("train"))
        return False

    async def both(name: str) -> list[Document]:
        found = await view.pods(name)
        return found if len(found) == 2 else []

    async def gone(name: str) -> bool:
        return not await view.pods(name)

    await eventually(with_gate, what="gated pods")

    async def told() -> bool:
        notes = await view.events(kind="Job", name="train", reason="FailedScheduling")
        return any("quota has reached the allowable limit" in note for note in notes)

    await eventually(told, what="an event about the quota")
    assert {scheduled_condition(p)["reason"] for p in await view.pods("train")} == {
        "SchedulingGated"
    }
    await real.api.patch(f"{QUEUES}/gated", {"spec": {"maxGPUs": 2}})
    async with real.run_nodes(gpu_nodes(1, plugin_gpus=8)):
        await view.wait_bound("train", 2)
