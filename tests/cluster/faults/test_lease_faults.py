"""Calls for the lease that are late, fail, or lose their answers cost time, never a second binding.

Two replicas reach the API server, embedded and real, each through a proxy that spoils the calls for
the lease and no others. A replica that loses the lease ends and is started again, as in a cluster.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.faults.test_leader_election import bindings, elected
from tests.support.cluster.api import Document
from tests.support.cluster.audit import bound_without_devices, findings
from tests.support.cluster.clusters import REAL_FIRST, Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import claim_template, job, queue
from tests.support.cluster.process import KaiPy, kai_py
from tests.support.cluster.proxy import Answer, Passage, Proxy
from tests.support.cluster.scheduling import install_definitions
from tests.support.cluster.view import View
from tests.support.patience import time_limit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(time_limit(600))]

TIMES = {"duration": "4s", "renewDeadline": "3s", "retry": "300ms"}
SIZE, FAULT_SECONDS = 4, 8.0
WRITES = ("POST", "PUT", "PATCH")


def answers_are_lost(proxy: Proxy) -> None:
    calls = 0

    def gate(write):
        nonlocal calls
        calls += write.kind == "leases"
        return Passage.LOSE_ANSWER if write.kind == "leases" and calls % 2 else Passage.PASS

    proxy.gate = gate


def all_answers_are_lost(proxy: Proxy) -> None:
    proxy.gate = lambda write: Passage.LOSE_ANSWER if write.kind == "leases" else Passage.PASS


def calls_are_late(proxy: Proxy) -> None:
    proxy.delay = lambda _method, kind: 2.0 if kind == "leases" else 0.0


def calls_are_too_late(proxy: Proxy) -> None:
    """Each write arrives once its writer has given up on it."""
    proxy.delay = lambda method, kind: 6.0 if kind == "leases" and method in WRITES else 0.0


def answered_with(status: int, body: bytes = b""):
    def fault(proxy: Proxy) -> None:
        answer = Answer(status, body)
        proxy.spoil = lambda _method, kind: answer if kind == "leases" else None

    return fault


FAULTS = {
    "answers-lost": answers_are_lost,
    "all-answers-lost": all_answers_are_lost,
    "late": calls_are_late,
    "too-late": calls_are_too_late,
    "401": answered_with(401, b'{"kind":"Status","code":401,"reason":"Unauthorized"}'),
    "403": answered_with(403, b'{"kind":"Status","code":403,"reason":"Forbidden"}'),
    "404": answered_with(404, b'{"kind":"Status","code":404,"reason":"NotFound"}'),
    "409": answered_with(409, b'{"kind":"Status","code":409,"reason":"Conflict"}'),
    "500": answered_with(500, b"oops"),
    "503": answered_with(503),
    "another-object": answered_with(200, b"{}"),
}
NIGHTLY = [pytest.param(each, marks=pytest.mark.nightly) for each in FAULTS if each != "too-late"]


class Replicas:
    """Two processes of the scheduler; one that has ended is started again."""

    def __init__(
        self, cluster: Cluster, directory: Path, stack: AsyncExitStack, configuration: Document
    ) -> None:
        self._cluster, self._directory, self._stack = cluster, directory, stack
        self._configuration = configuration
        self.all: list[KaiPy] = []
        self.fault = lambda _proxy: None

    async def start(self) -> None:
        name = f"replica-{len(self.all)}"
        made = kai_py(self._cluster, self._directory, name=name, configuration=self._configuration)
        self.all.append(await self._stack.enter_async_context(made))
        self.fault(self.all[-1].proxy)

    async def keep_two(self) -> None:
        while True:
            for _ in range(2 - sum(each.running for each in self.all)):
                await self.start()
            await asyncio.sleep(0.2)

    def heal(self) -> None:
        self.fault = lambda _proxy: None
        for each in self.all:
            each.proxy.gate = lambda _write: Passage.PASS
            each.proxy.spoil = lambda _method, _kind: None
            each.proxy.delay = lambda _method, _kind: 0.0

    async def leader(self) -> bool:
        running = [each for each in self.all if each.running]
        return 1 in [await each.metric("kai_py_leader") for each in running]


@asynccontextmanager
async def two(
    cluster: Cluster, directory: Path, configuration: Document
) -> AsyncIterator[Replicas]:
    async with AsyncExitStack() as stack:
        replicas = Replicas(cluster, directory, stack, configuration)
        keeping = asyncio.create_task(replicas.keep_two())
        try:
            yield replicas
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))


@REAL_FIRST
@pytest.mark.parametrize("fault", ["too-late", *NIGHTLY])
async def test_what_happens_to_the_lease_costs_no_pod_a_device(
    cluster: Cluster, tmp_path: Path, fault: str
):
    view = View(cluster.api)
    await install_definitions(cluster.api)
    await cluster.submit(queue(), claim_template())
    async with (
        cluster.run_nodes(gpu_nodes(2, published_gpus=8)),
        two(cluster, tmp_path, elected(TIMES)) as replicas,
    ):
        await eventually(replicas.leader, within=60, what="a leader")
        replicas.fault = FAULTS[fault]
        for each in replicas.all:
            replicas.fault(each.proxy)
        await cluster.submit(job("during", SIZE))
        end = asyncio.get_running_loop().time() + FAULT_SECONDS
        while asyncio.get_running_loop().time() < end:
            assert await bound_without_devices(cluster.api) == []
            await asyncio.sleep(0.2)
        replicas.heal()
        await cluster.submit(job("after", SIZE))
        await view.wait_bound("during", SIZE, within=60)
        await view.wait_bound("after", SIZE, within=60)
        assert await bound_without_devices(cluster.api) == []
        assert set(bindings(*replicas.all).values()) == {1}
        assert await findings(cluster.api) == []
