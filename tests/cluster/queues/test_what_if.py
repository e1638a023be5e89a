"""Five changes on the real control plane: what is told of each beforehand is what then happens."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack

from kai_py.cli.reading import read_now
from kai_py.config import Configuration
from kai_py.observe.decision_log import DecisionKind
from kai_py.plan.plan import Stage
from kai_py.simulate.changes import AddNodes, AddObjects, ClusterChange, RemoveGang
from kai_py.simulate.what_if import Comparison, what_if
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.queues.test_preemption import IGNORE_DISRUPTIONS
from tests.support.cluster.api import Document
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import QUEUE_KEY, job, pod_spec, priority_class, queue
from tests.support.cluster.scheduling import Running, install_definitions, scheduling
from tests.support.cluster.view import View

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def gpus(name: str, size: int, team: str, **spec: object) -> Document:
    """A Job for which pods that have to leave are no failure."""
    made = job(name, size, pod_spec(gpus=1, **spec), annotations={QUEUE_KEY: team})
    made["spec"]["podFailurePolicy"] = IGNORE_DISRUPTIONS
    return made


async def test_what_was_told_is_what_then_happens(real: Cluster):
    await install_definitions(real.api)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(scheduling(real))
        await stack.enter_async_context(real.run_nodes(gpu_nodes(2, plugin_gpus=4)))
        await real.submit(
            queue("a", deservedGPUs=4), queue("b", deservedGPUs=4, maxGPUs=4),
            priority_class("urgent", 100), gpus("a-one", 4, "a"),
        )  # fmt: skip
        view = View(real.api)
        await view.wait_bound("a-one", 4)
        await real.submit(gpus("b-one", 4, "b"))
        await view.wait_bound("b-one", 4)
        await real.submit(gpus("a-two", 4, "a"))
        await stands(running, waiting={"default/Job/a-two": Stage.FAIR_SHARE})

        async def one_node_more() -> None:
            added = gpu_nodes(1, prefix="node-0-added", plugin_gpus=4)
            await stack.enter_async_context(real.run_nodes(added))

        async def told_of(
            change: ClusterChange, make: Callable[[], Awaitable[object]]
        ) -> Comparison:
            return await asked_and_done(real, running, change, make)

        more = await told_of(AddNodes("node-0", 1), one_node_more)
        assert [each.gang for each in more.starts] == ["default/Job/a-two"]
        capped = gpus("b-two", 2, "b")
        told = await told_of(AddObjects([capped]), lambda: real.submit(capped))
        assert [each.stage for each in told.pending] == ["QueueMax"]
        told = await told_of(
            RemoveGang("default/Job/b-one"),
            lambda: real.api.delete(f"{JOBS}/b-one", propagationPolicy="Background"),
        )
        assert [each.gang for each in told.starts] == ["default/Job/b-two"]
        greedy = gpus("a-three", 4, "a")
        told = await told_of(AddObjects([greedy]), lambda: real.submit(greedy))
        assert [each.stage for each in told.pending] == ["FairShare"]
        urgent = gpus("urgent", 4, "a", priorityClassName="urgent")
        told = await told_of(AddObjects([urgent]), lambda: real.submit(urgent))
        assert [each.gang for each in told.starts] == ["default/Job/urgent"]
        assert {each.gang for each in told.victims} == {"default/Job/a-two"}


async def asked_and_done(
    cluster: Cluster, running: Running, change: ClusterChange, make: Callable[[], Awaitable[object]]
) -> Comparison:
    """Ask what a change would do, make it, and see that it did that."""
    documents = await read_now(str(cluster.kubeconfig), "")
    told = await asyncio.to_thread(what_if, documents, (change,), Configuration(), now=time.time())
    before = running.scheduler.decisions.newest
    await make()
    lost = {each.gang for each in told.victims}
    await stands(
        running,
        waiting={each.gang: each.stage for each in told.pending if each.gang not in lost},
        runs={each.gang for each in told.starts},
    )
    made = running.scheduler.decisions.since(before)
    assert {each.gang for each in made if each.kind is DecisionKind.EVICTED} == lost
    return told


async def stands(
    running: Running, *, waiting: Mapping[str, Stage], runs: Collection[str] = ()
) -> None:
    """Wait until exactly these gangs wait, at these stages, and these run.

    Whoever lost its pods comes back when its controller has paused for as long as it wants to.
    """

    async def reached() -> bool:
        view = running.scheduler.last_view
        assert view is not None
        assert {each.gang: each.stage for each in view.plan.unplaced} == waiting
        assert all(view.snapshot.gangs[key].is_satisfied for key in runs)
        return True

    await eventually(reached, within=30, what=f"{waiting} waiting, {runs} running")
