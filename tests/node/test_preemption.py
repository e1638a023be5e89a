"""Real pods that are preempted or drained end with grace before their devices go to others."""

import asyncio

from tests.cluster.controlplane import binaries
from tests.node.conftest import GPUS, NAMES
from tests.node.pods import environments, running
from tests.node.workloads import SERVE, STAY, pod_spec, request, template
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import job, priority_class

ALL = GPUS * len(NAMES)
IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def training(name, size, spec):
    """A Job that may be evicted as often as needed."""
    made = job(name, size, spec)
    made["spec"]["podFailurePolicy"] = {"rules": [IGNORED]}
    return made


async def test_victims_end_before_their_devices_are_used(cluster, nodes, scheduler, view):
    await cluster.submit(template("gpu", request()), priority_class("high", 1000))
    low = pod_spec(SERVE, templates={"gpu": "gpu"})
    await cluster.submit(training("low", ALL, low))
    await running(view, "low", ALL)
    await environments(nodes, view, "low")  # they listen to signals now
    where = await view.bound("low")
    high = pod_spec(SERVE, templates={"gpu": "gpu"}, priorityClassName="high")
    await cluster.submit(job("high", ALL, high))
    await running(view, "high", ALL, within=90.0)
    for name, node in where.items():
        assert nodes[node].output_of(name).endswith("\nbye\n")
    held = await view.held()
    assert len(set(held)) == len(held) == ALL


async def test_a_victim_that_does_not_listen_is_waited_for(cluster, nodes, scheduler, view):
    await cluster.submit(template("gpu", request()), priority_class("high", 1000))
    deaf = pod_spec(STAY, templates={"gpu": "gpu"}, terminationGracePeriodSeconds=5)
    await cluster.submit(training("deaf", ALL, deaf))
    await running(view, "deaf", ALL)
    await environments(nodes, view, "deaf")
    high = pod_spec(SERVE, templates={"gpu": "gpu"}, priorityClassName="high")
    await cluster.submit(job("high", ALL, high))

    async def leaving():
        found = await view.pods("deaf")
        terminating = [pod for pod in found if "deletionTimestamp" in pod["metadata"]]
        return len(terminating) == ALL

    await eventually(leaving, within=30.0)
    held = await view.held()
    assert len(set(held)) == len(held), "a device is held twice"
    await running(view, "high", ALL, within=90.0)


async def test_a_drained_node_and_its_gang(cluster, nodes, scheduler, view):
    await cluster.submit(template("gpu", request()))
    await cluster.submit(training("train", GPUS, pod_spec(SERVE, templates={"gpu": "gpu"})))
    await running(view, "train", GPUS)
    await environments(nodes, view, "train")
    before = await view.bound("train")
    (drained,) = set(before.values())
    other = next(name for name in NAMES if name != drained)
    try:
        await kubectl(cluster, "drain", drained, "--force", "--timeout=120s")
        await running(view, "train", GPUS, within=90.0)
        assert set((await view.bound("train")).values()) == {other}
        for name in before:
            assert nodes[drained].output_of(name).endswith("\nbye\n")
    finally:
        await kubectl(cluster, "uncordon", drained)


async def kubectl(cluster, *arguments):
    process = await asyncio.create_subprocess_exec(
        str(binaries() / "kubectl"),
        f"--kubeconfig={cluster.kubeconfig}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
