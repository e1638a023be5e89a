"""Gangs that their real controllers create in stages: the first pods start if the whole fits."""

import pytest

from tests.cluster.fake_kubelet import FakeNode
from tests.cluster.fake_kubelet.pods import RUN_SECONDS
from tests.cluster.frameworks.conftest import RunController
from tests.cluster.frameworks.controllers import (
    JOB_SET,
    KWOK,
    LEADER_WORKER_SET,
    MPI_OPERATOR,
    TRAINER,
    submit_with,
)
from tests.cluster.frameworks.modules import documents
from tests.cluster.frameworks.workloads import (
    LIMITS,
    RACK,
    job_set,
    nodes,
    runtimes,
    sample,
    train_job,
)
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View, condition

LONG = 40.0
EXCLUSIVE_SAMPLE = "config/samples/leaderworkerset_exclusiveplacement.yaml"
NODE_POOL = "cloud.google.com/gke-nodepool"


@pytest.mark.slow
async def test_groups_of_the_sample_of_lws_get_a_node_pool_each(
    real: Cluster, run_controller: RunController
):
    await install_definitions(real.api)
    await run_controller(LEADER_WORKER_SET)
    view, document = View(real.api), sample(LEADER_WORKER_SET, EXCLUSIVE_SAMPLE)
    name = document["metadata"]["name"]
    await real.submit(queue())
    pools = [
        node
        for pool in ("a", "b")
        for node in nodes(2, "100m", prefix=pool, labels={NODE_POOL: pool})
    ]
    too_small = nodes(2, "50m", prefix="c", labels={NODE_POOL: "c"})
    async with scheduling(real), real.run_nodes([*pools, *too_small]):
        await real.submit(document)
        bound = await view.wait_bound(name, 8, within=LONG)
        assert sorted(pools_of(bound).values(), key=sorted) == [{"a"}, {"b"}]
        # Any of the three leaders may be the last one that is seen.
        (waiting,) = {0, 1, 2} - set(pools_of(bound))
        pending = f"{name}-{waiting}"
        message = await view.wait_pending(pending, 1, reason="Unschedulable", within=LONG)
        assert "Capacity is also needed for 3 pods that are not created yet." in message
        async with real.run_nodes(nodes(2, "100m", prefix="d", labels={NODE_POOL: "d"})):
            bound = await view.wait_bound(name, 12, within=LONG)
            assert pools_of(bound)[waiting] == {"d"}


def pools_of(bound: dict[str, str]) -> dict[int, set[str]]:
    """By group the pools of its pods; the names of nodes begin with their pool."""
    found: dict[int, set[str]] = {}
    for pod, node in bound.items():
        group = int(pod.removeprefix("leaderworkerset-sample-").split("-")[0])
        found.setdefault(group, set()).add(node[0])
    return found


@pytest.mark.slow
async def test_jobs_of_a_job_set_get_a_rack_each(real: Cluster, run_controller: RunController):
    await install_definitions(real.api)
    await run_controller(JOB_SET)
    view, document = View(real.api), job_set()
    document["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"] = RACK
    await real.submit(queue())
    async with (
        scheduling(real),
        real.run_nodes(nodes(1, "200m", prefix="a", rack="a")),
        real.run_nodes(nodes(1, "100m", prefix="b", rack="b")),
    ):
        await real.submit(document)
        message = await view.wait_pending("train", 2, reason="Unschedulable", within=LONG)
        assert "Capacity is also needed for 2 pods that are not created yet." in message
        async with real.run_nodes(nodes(2, "100m", prefix="c", rack="c")):
            bound = await view.wait_bound("train", 4, within=LONG)
            racks = [
                {node[0] for pod, node in bound.items() if pod.startswith(f"train-w-{job}-")}
                for job in range(2)
            ]
            assert sorted(racks, key=sorted) == [{"a"}, {"c"}]


@pytest.mark.nightly
async def test_workers_of_an_mpi_job_wait_until_its_launcher_fits(
    real: Cluster, run_controller: RunController
):
    await install_definitions(real.api)
    await run_controller(MPI_OPERATOR)
    view, document = View(real.api), sample(MPI_OPERATOR, "examples/v2beta1/pi/pi.yaml")
    document["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    await real.submit(queue())
    async with scheduling(real), real.run_nodes(nodes(1, "2500m", prefix="a")):
        await real.submit(document)
        message = await view.wait_pending("pi", 2, reason="Unschedulable", within=LONG)
        assert "Capacity is also needed for a pod that is not created yet." in message
        async with real.run_nodes(nodes(1, "1", prefix="b")):
            bound = await view.wait_bound("pi", 3, within=LONG)
            assert sorted(name for name in bound if "worker" in name) == [
                "pi-worker-0",
                "pi-worker-1",
            ]


TRAIN_JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
TORCHTUNE = "manifests/base/runtimes/torchtune/llama3_2/llama3_2_1B.yaml"
TUNED = "torchtune-llama3.2-1b"
INITIALIZERS = ("dataset-initializer", "model-initializer")


@pytest.mark.nightly
async def test_steps_of_a_train_job_follow_when_those_before_have_ended(
    real: Cluster, run_controller: RunController
):
    """Dataset, model, training: nothing is kept for a step that waits until others complete."""
    await install_definitions(real.api)
    for controller in (JOB_SET, TRAINER):
        await run_controller(controller)
    view, needed = View(real.api), runtimes(TORCHTUNE)
    for job in needed[0]["spec"]["template"]["spec"]["replicatedJobs"]:
        if job["name"] in INITIALIZERS:
            pods = job["template"]["spec"]["template"]
            pods["metadata"] = {"annotations": {RUN_SECONDS: "0.5"}}
    await real.submit(queue(), LIMITS, *volume(TUNED))
    too_few = FakeNode(name="a", allocatable={"nvidia.com/gpu": "3"})
    async with scheduling(real), real.run_nodes([too_few]):
        await submit_with(real, needed, train_job(TUNED, 2))
        message = await view.wait_pending("train-node", 2, reason="Unschedulable", within=LONG)
        assert "2 pods must start together but only 1 can be scheduled" in message
        ended = {each["metadata"]["name"]: each["status"]["phase"] for each in await view.pods()}
        assert sorted(ended.values()) == ["Pending", "Pending", "Succeeded", "Succeeded"], ended
        async with real.run_nodes(nodes(1, "1", prefix="b")):
            await view.wait_bound("train-node", 2, within=LONG)


@pytest.mark.nightly
async def test_a_train_job_runs_to_its_end_on_nodes_of_kwok(
    real: Cluster, run_controller: RunController
):
    await install_definitions(real.api)
    for controller in (KWOK, JOB_SET, TRAINER):
        await run_controller(controller)
    await real.submit(queue(), LIMITS, *volume(TUNED), kwok_node("kwok-0"))
    async with scheduling(real):
        await submit_with(real, runtimes(TORCHTUNE), train_job(TUNED, 2))

        async def has_ended() -> bool:
            (found,) = await real.api.items(TRAIN_JOBS)
            return condition(found, "Complete").get("status") == "True"

        await eventually(has_ended, within=LONG, what="the TrainJob is complete")
    starts = {
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]: pod["status"][
            "startTime"
        ]
        for pod in await View(real.api).pods()
    }
    assert sorted(starts, key=lambda step: (starts[step], step)) == [*INITIALIZERS, "node"]


def kwok_node(name: str) -> Document:
    """The node of kwok's own tests, under another name, open to all pods, and with GPUs."""
    (found,) = documents(KWOK.module, "test/kwok/fake-node.yaml")
    found["metadata"]["name"] = name
    del found["spec"]["taints"]
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return found | {"status": {"allocatable": amounts, "capacity": amounts}}


def volume(name: str) -> list[Document]:
    """The claim that a runtime names, and a volume for it."""
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {"capacity": size, "hostPath": {"path": "/none"}, **common},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"resources": {"requests": size}, **common},
        },
    ]
