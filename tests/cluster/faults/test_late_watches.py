"""Late watches, lost answers and outages cost time, never a device of a bound pod.

`kai-py run` reaches the API server through a proxy that is the fault. Its graces are two seconds
(of a quiet machine), so that each fault lasts longer than every one of them. `make nightly` runs
more kinds and lengths.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.audit import bound_without_devices, findings
from tests.support.cluster.clusters import REAL_FIRST, Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.process import ALONE, KaiPy, kai_py, started
from tests.support.cluster.proxy import Answer, Passage
from tests.support.cluster.scheduling import install_definitions
from tests.support.cluster.view import View
from tests.support.patience import patience, time_limit

GRACE = min(patience(2.0), 6.0)
IMPATIENT = {**ALONE, "commit": {"watchGrace": f"{GRACE}s"}}
NODES, GPUS, SIZE = 2, 4, 4

pytestmark = [pytest.mark.slow, pytest.mark.timeout(time_limit(900))]

EVERY_KIND = (
    "pods",
    "resourceclaims",
    "nodes",
    "resourceslices",
    "deviceclasses",
    "queues",
    "jobs",
    "namespaces",
    "priorityclasses",
    "poddisruptionbudgets",
)


@asynccontextmanager
async def impatient(cluster: Cluster, directory: Path) -> AsyncIterator[KaiPy]:
    """A queue, nodes, and at work on them a scheduler of short graces."""
    await install_definitions(cluster.api)
    await cluster.submit(queue(maxGPUs=NODES * GPUS), claim_template())
    async with (
        cluster.run_nodes(gpu_nodes(NODES, published_gpus=GPUS)),
        kai_py(cluster, directory, configuration=IMPATIENT) as scheduler,
    ):
        await started(scheduler)
        yield scheduler


async def watched(cluster: Cluster, seconds: float) -> None:
    """Look again and again while the fault lasts."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        assert await bound_without_devices(cluster.api) == []
        await asyncio.sleep(0.2)


async def ends(view: View, name: str) -> None:
    """The Job is whole, then it goes, and leaves no device allocated."""
    await view.wait_bound(name, SIZE, within=60)
    assert await bound_without_devices(view.api) == []
    assert await findings(view.api) == []
    await view.api.delete(f"{view.path('jobs')}/{name}", {"propagationPolicy": "Background"})

    async def free() -> bool:
        return await view.held() == [] and await view.pods() == []

    await eventually(free, within=60, what="devices that are free again")


async def says_why(scheduler: KaiPy) -> None:
    async def said() -> bool:
        code, text = await scheduler.get("/readyz")
        return code == 503 and "nothing is decided until it is read again" in text

    await eventually(said, within=20, what="a scheduler that says that its view is old")


async def late(cluster: Cluster, directory: Path, kinds: tuple[str, ...]) -> None:
    view = View(cluster.api)
    async with impatient(cluster, directory) as scheduler:
        for number, kind in enumerate(kinds):
            await cluster.submit(job(f"before-{number}", SIZE))
            await view.wait_bound(f"before-{number}", SIZE, within=60)
            scheduler.proxy.hold(kind)
            await cluster.submit(job(f"during-{number}", SIZE))
            await watched(cluster, 4 * GRACE)
            if kind in ("pods", "nodes", "resourceclaims", "queues"):
                await says_why(scheduler)
            assert len(await view.bound(f"before-{number}")) == SIZE
            scheduler.proxy.release()
            await view.wait_bound(f"during-{number}", SIZE, within=60)
            assert await bound_without_devices(cluster.api) == []
            assert len(await view.bound(f"before-{number}")) == SIZE
            await eventually(scheduler.ready, within=60, what="a scheduler that is ready again")
            for name in ("before", "during"):
                path = f"{view.path('jobs')}/{name}-{number}"
                await view.api.delete(path, {"propagationPolicy": "Background"})

            async def free() -> bool:
                return await view.held() == [] and await view.pods() == []

            await eventually(free, within=60, what="devices that are free again")
        assert scheduler.running


@pytest.mark.nightly
async def test_a_kind_that_is_dark_costs_no_pod_a_device(cluster: Cluster, tmp_path: Path):
    await late(cluster, tmp_path, EVERY_KIND[:2])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_every_kind_may_be_dark(cluster: Cluster, tmp_path: Path, kind: str):
    await late(cluster, tmp_path, (kind,))


@REAL_FIRST
async def test_a_pod_watch_that_hangs_after_the_binding_costs_no_pod_a_device(
    cluster: Cluster, tmp_path: Path
):
    """The case that took 62 GPUs from running pods: only the watch of pods is held back."""
    view = View(cluster.api)
    async with impatient(cluster, tmp_path) as scheduler:

        def hold(write):
            if write.kind == "pods/binding":
                scheduler.proxy.hold("pods")
            return Passage.PASS

        scheduler.proxy.gate = hold
        await cluster.submit(job("train", SIZE))
        await view.wait_bound("train", SIZE, within=60)
        await watched(cluster, 6 * GRACE)
        assert await scheduler.metric("kai_py_claims_recovered_total") == 0
        scheduler.proxy.gate = lambda _write: Passage.PASS
        scheduler.proxy.release()
        await eventually(scheduler.ready, within=60, what="a scheduler that is ready again")
        await ends(view, "train")


ERRORS = {
    "401": Answer(401, b'{"kind":"Status","code":401,"reason":"Unauthorized"}'),
    "403": Answer(403, b'{"kind":"Status","code":403,"reason":"Forbidden"}'),
    "404 of a proxy": Answer(404, b"<html>no backend</html>"),
    "404 of the path": Answer(404, b'{"kind":"Status","code":404,"reason":"NotFound"}'),
    "410": Answer(410, b'{"kind":"Status","code":410,"reason":"Expired"}'),
    "500": Answer(500, b"oops"),
    "503": Answer(503),
    "garbage": Answer(200, b"<html>hello</html>"),
    "another object": Answer(200, b"{}"),
}


OFTEN = ("403", "404 of a proxy", "another object")


@pytest.mark.nightly
async def test_lost_answers_and_errors_on_the_read_cost_no_pod_a_device(
    cluster: Cluster, tmp_path: Path
):
    await lost_answers(cluster, tmp_path, OFTEN)


@pytest.mark.nightly
async def test_no_error_on_the_read_costs_a_device(cluster: Cluster, tmp_path: Path):
    await lost_answers(cluster, tmp_path, tuple(ERRORS))


async def lost_answers(cluster: Cluster, directory: Path, errors: tuple[str, ...]) -> None:
    view = View(cluster.api)
    async with impatient(cluster, directory) as scheduler:
        for number, error in enumerate(errors):
            spoil_reads(scheduler, ERRORS[error])
            await cluster.submit(job(f"train-{number}", SIZE))
            await watched(cluster, 1.5 * GRACE)
            scheduler.proxy.spoil = lambda _method, _kind: None
            scheduler.proxy.gate = lambda _write: Passage.PASS
            await ends(view, f"train-{number}")


def spoil_reads(scheduler: KaiPy, error: Answer) -> None:
    """Lose the answers to half of the bindings; whoever reads a pod then gets ``error``."""
    bindings = 0

    def gate(write):
        nonlocal bindings
        bindings += write.kind == "pods/binding"
        lost = write.kind == "pods/binding" and bindings % 2
        return Passage.LOSE_ANSWER if lost else Passage.PASS

    def spoil(method, kind):
        return error if bindings and method == "GET" and kind == "pods" else None

    scheduler.proxy.gate, scheduler.proxy.spoil = gate, spoil


async def outages(cluster: Cluster, directory: Path, lengths: tuple[float, ...]) -> None:
    view = View(cluster.api)
    async with impatient(cluster, directory) as scheduler:
        for number, seconds in enumerate(lengths):
            bindings = 0

            def gate(write):
                nonlocal bindings
                bindings += write.kind == "pods/binding"
                if bindings < SIZE:
                    return Passage.PASS
                asyncio.get_running_loop().call_soon(scheduler.proxy.cut)
                return Passage.LOSE_ANSWER

            scheduler.proxy.gate = gate
            await cluster.submit(job(f"train-{number}", SIZE))

            async def is_cut() -> bool:
                return scheduler.proxy.cut_off

            await eventually(is_cut, within=60, what="the last binding of the gang")
            await watched(cluster, seconds)
            scheduler.proxy.gate = lambda _write: Passage.PASS
            scheduler.proxy.cut_off = False
            await watched(cluster, 2 * GRACE)
            await ends(view, f"train-{number}")


@REAL_FIRST
async def test_an_outage_in_the_midst_of_binding_costs_no_pod_a_device(
    cluster: Cluster, tmp_path: Path
):
    await outages(cluster, tmp_path, (1.0, 10.0))


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [20, 30, 35, 38, 43, 50, 60, 90, 120])
async def test_no_length_of_an_outage_costs_a_device(
    cluster: Cluster, tmp_path: Path, seconds: int
):
    await outages(cluster, tmp_path, (float(seconds),))
