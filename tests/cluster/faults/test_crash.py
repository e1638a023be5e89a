"""A scheduler killed at any moment leaves nothing half done for good.

Only on the real control plane: what is shown is how our writes and its controllers' fit together.
Each round kills `kai-py run` at a write of its own: before it reaches the API server or before its
answer comes back. Whoever starts next finishes the gang, and is the next to be killed.
"""

import random
import signal
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import kai_py.scheduler as scheduler_module
from tests.cluster.fake_kubelet import FakeKubelet, gpu_nodes
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.process import KaiPy, kai_py
from tests.support.cluster.proxy import Passage, Write
from tests.support.cluster.scheduling import EAGER, install_definitions, scheduling
from tests.support.cluster.view import View, devices_of
from tests.support.patience import time_limit
from tests.support.records import replace

SIZE = 4
WRITES = 3 * SIZE
"""Of one gang: a finalizer and an allocation per claim, a binding per pod."""
SEED = 4381
LOSSES = (Passage.LOSE, Passage.LOSE_ANSWER)
STAGES = ("nothing allocated", "some allocated", "all allocated", "some bound")
OF_THE_TRANSACTION = ("resourceclaims", "resourceclaims/status", "pods/binding")


def kill_at(scheduler: KaiPy, number: int, loss: Passage) -> None:
    """Kill the scheduler when it sends the `number`-th write of a transaction from now on."""
    left = number

    def gate(write: Write) -> Passage:
        nonlocal left
        left -= write.kind in OF_THE_TRANSACTION
        if left > 0:
            return Passage.PASS
        if left == 0 and scheduler.running:
            scheduler.kill()
            return loss
        return Passage.LOSE

    scheduler.proxy.gate = gate


@pytest.mark.slow
@pytest.mark.timeout(time_limit(600))
async def test_killed_anywhere_it_ends_with_all_or_none(real: Cluster, tmp_path: Path):
    # Odd writes are lost, of even ones the answer: after the last allocation, and before the first
    # binding, all is allocated.
    kills = [(number, LOSSES[(number + 1) % 2]) for number in range(1, WRITES + 1)]
    random.Random(SEED).shuffle(kills)
    view = View(real.api)
    await install_definitions(real.api)
    await real.submit(queue(), claim_template())
    nodes = gpu_nodes(2, published_gpus=SIZE // 2)
    seen: Counter[str] = Counter()
    async with FakeKubelet(real.api, nodes) as kubelet, AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(kai_py(real, tmp_path, name="run-0"))
        for number, (write, loss) in enumerate(kills, 1):
            name = f"train-{number}"
            kill_at(scheduler, write, loss)
            await real.submit(job(name, SIZE))
            assert await scheduler.wait_ended(within=30) == -signal.SIGKILL, scheduler.log
            seen[await stage(view, name)] += 1
            successor = kai_py(real, tmp_path, name=f"run-{number}")
            scheduler = await stack.enter_async_context(successor)
            await view.wait_bound(name, SIZE, within=30)
            await is_whole(view, name)
            assert kubelet.waiting == {}
            await leaves_nothing(view, name)
    assert len(seen) == len(STAGES), f"not killed in every stage: {seen}"


async def stage(view: View, name: str) -> str:
    """How far the transaction had come; what must hold in each stage."""
    held, bound = await view.held(), await view.bound(name)
    assert len(set(held)) == len(held), "a device is held twice"
    assert len(held) == SIZE or not bound, "a pod is bound before the claims of all"
    return STAGES[(len(held) > 0) + (len(held) == SIZE) + (len(bound) > 0)]


async def is_whole(view: View, name: str) -> None:
    """Every pod has its own device on its own node, reserved for it alone."""
    pods = {pod["metadata"]["uid"]: pod for pod in await view.pods(name)}
    claims = await view.claims()
    assert len({device for claim in claims for device in devices_of(claim)}) == SIZE
    for claim in claims:
        (user,) = claim["status"]["reservedFor"]
        ((_, pool, _),) = devices_of(claim)
        assert pods.pop(user["uid"])["spec"]["nodeName"] == pool
    assert pods == {}


async def leaves_nothing(view: View, name: str) -> None:
    """Deleting the Job takes pods and claims along, finalizers and all."""
    await view.api.delete(f"{view.path('jobs')}/{name}", {"propagationPolicy": "Background"})

    async def gone() -> bool:
        left = [*await view.pods(), *await view.claims()]
        assert left == [], [each["metadata"]["name"] for each in left]
        return True

    await eventually(gone, what="pods and claims that go with their Job")


async def test_what_cannot_start_any_more_gives_its_devices_back(
    real: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    view = View(real.api)
    await install_definitions(real.api)
    await real.submit(queue(), claim_template())
    impatient = replace(scheduler_module.commit_settings(EAGER), claim_grace=0.5)
    monkeypatch.setattr(scheduler_module, "commit_settings", lambda _configuration: impatient)
    async with real.run_nodes(gpu_nodes(1, published_gpus=SIZE)):
        async with kai_py(real, tmp_path) as scheduler:
            kill_at(scheduler, 2 * SIZE + 1, Passage.LOSE)
            await real.submit(job("train", SIZE))
            await scheduler.wait_ended(within=30)
        assert await stage(view, "train") == "all allocated"
        await cordon(real, "node-0", unschedulable=True)
        async with scheduling(real):

            async def given_back() -> bool:
                return await view.held() == []

            await eventually(given_back, what="devices without a holder")
            assert await view.bound("train") == {}
            await cordon(real, "node-0", unschedulable=False)
            await view.wait_bound("train", SIZE)


async def cordon(cluster: Cluster, node: str, *, unschedulable: bool) -> None:
    await cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": unschedulable}})
