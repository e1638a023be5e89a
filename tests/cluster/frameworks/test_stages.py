"""Gangs that their real controllers create in stages: the first pods start if the whole fits."""

import pytest

from tests.cluster.frameworks.conftest import RunController
from tests.cluster.frameworks.controllers import (
    JOB_SET,
    LEADER_WORKER_SET,
    MPI_OPERATOR,
)
from tests.cluster.frameworks.workloads import (
    RACK,
    job_set,
    nodes,
    sample,
)
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.manifests import queue
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View

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
        assert pools_of(bound) == {0: {bound[f"{name}-0"][0]}, 1: {bound[f"{name}-1"][0]}}
        assert {pool for each in pools_of(bound).values() for pool in each} == {"a", "b"}
        message = await view.wait_pending(f"{name}-2", 1, reason="Unschedulable", within=LONG)
        assert "Capacity is also needed for 3 pods that are not created yet." in message
        async with real.run_nodes(nodes(2, "100m", prefix="d", labels={NODE_POOL: "d"})):
            bound = await view.wait_bound(name, 12, within=LONG)
            assert pools_of(bound)[2] == {"d"}


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
