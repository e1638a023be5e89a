"""``kai-py explain`` against the API alone: why a gang runs here, who evicted it, when."""

import time

from kai_py.api.choices import Subject
from kai_py.cli.connection import cluster_client
from kai_py.cli.reading import read_now
from kai_py.config import Configuration
from kai_py.observe.decision_log import DecisionKind
from kai_py.observe.event_history import read_scheduler_events
from kai_py.observe.explanation import DELETED, Explanation
from kai_py.observe.gang_rows import RUNNING
from kai_py.simulate.explained_cluster import explain_cluster
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import priority_class
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View
from tests.support.situations import gpus, nodes, team

JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def explained(cluster: Cluster, name: str) -> Explanation:
    kubeconfig = str(cluster.kubeconfig)
    async with cluster_client(kubeconfig, "") as client:
        events = await read_scheduler_events(client, "kai-scheduler", ["default"])
    [found] = explain_cluster(
        await read_now(kubeconfig, ""),
        Configuration(),
        now=time.time(),
        subject=Subject.JOB,
        name=f"default/{name}",
        with_suggestions=False,
        events=events,
    )
    return found


async def test_the_past_of_a_gang_is_told_without_the_scheduler(cluster: Cluster):
    view = View(cluster.api)
    await install_definitions(cluster.api)
    async with scheduling(cluster), cluster.run_nodes(nodes(each=4)):
        await cluster.submit(priority_class("urgent", 10), team())
        await cluster.submit(gpus("calm", 4))
        await view.wait_bound("calm", 4)
        await cluster.submit(gpus("hasty", 4, priorityClassName="urgent"))
        await view.wait_bound("hasty", 4)
        await cluster.submit(gpus("late", 4))
        await eventually(lambda: last_told(cluster, "late"), what="late told to wait")
        await eventually(lambda: has_all(cluster, "hasty", 4), what="hasty told to be placed")
    lost = await explained(cluster, "calm")
    placed, evicted, *_ = (e for e in lost.history if e.kind is not DecisionKind.PENDING)
    assert (placed.kind, placed.action, len(placed.pods)) == (DecisionKind.PLACED, "allocate", 4)
    assert (evicted.kind, evicted.action, len(evicted.pods)) == (DecisionKind.EVICTED, "preempt", 4)
    assert evicted.preemptor == "default/Job/hasty"
    assert "(priority 10 > 0) in queue team" in evicted.message
    assert placed.time < evicted.time
    won = await explained(cluster, "hasty")
    assert (won.state, won.nodes) == (RUNNING, ("node-0",))
    assert won.started > 0
    assert evicted in won.history
    await cluster.api.delete(f"{JOBS}/hasty", propagationPolicy="Background")

    async def gone() -> bool:
        return (await explained(cluster, "hasty")).state == DELETED

    await eventually(gone, what="hasty gone")
    assert (await explained(cluster, "hasty")).history == won.history


async def last_told(cluster: Cluster, name: str) -> bool:
    """Whether the last that is told of a gang is that it waits for capacity."""
    *_, last = (await explained(cluster, name)).history or [None]
    return last is not None and last.stage == "Resources"


async def has_all(cluster: Cluster, name: str, pods: int) -> bool:
    """Whether the placement of so many pods is told; events come one by one."""
    told = (await explained(cluster, name)).history
    return sum(len(each.pods) for each in told if each.kind is DecisionKind.PLACED) == pods
