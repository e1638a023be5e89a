"""A real control plane with nodes without a kubelet, and bulk work on it.

Nodes stay ready without a kubelet because the controller that would doubt them is off; pods never
run: what is measured ends with the binding.
"""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.api import documents
from benchmarks.api.watching import PODS
from benchmarks.processes import kai_py_run, processor_seconds
from tests.cluster.controlplane import ControlPlane, Process, control_plane
from tests.support.cluster.api import Api, Document
from tests.support.cluster.eventually import eventually
from tests.support.cluster.scheduling import install_definitions

T = TypeVar("T")
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
WRITES_AT_ONCE = 32
EMPTY_SECONDS = 120.0
REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
LABELS = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Cluster:
    """Nodes, a queue, and the ways to schedule on them."""

    plane: ControlPlane
    api: Api
    nodes: int

    @contextmanager
    def kai_py(self) -> Iterator[Process]:
        """Run ``kai-py run`` in the block; gives its process."""
        with kai_py_run(self.plane.kubeconfig, self.plane.directory / "kai-py.log") as scheduler:
            yield scheduler.process

    def scheduler(self, name: str) -> AbstractContextManager[Process]:
        """Run the scheduler that owns pods of this ``schedulerName``."""
        return self.kai_py() if name == documents.KAI_PY else self.plane.kube_scheduler()

    async def create_pods(
        self, count: int, scheduler: str, make: Callable[[int, str], Document] = documents.pod
    ) -> None:
        """Create pods, of one GPU unless ``make`` makes others."""
        await at_once(
            (make(i, scheduler) for i in range(count)),
            lambda each: self.api.request("POST", PODS, each),
        )

    async def publish_devices(self) -> None:
        """List eight devices on each node, and what to claim them by."""
        for document in (*documents.one_gpu(), *map(documents.gpu_slice, range(self.nodes))):
            await self.api.create(document)

    async def wait_for_claims(self, count: int) -> None:
        """Wait until the claims of so many pods were made."""

        async def made() -> bool:
            return len(await self.api.items(CLAIMS)) == count

        await eventually(made, within=EMPTY_SECONDS, what=f"{count} claims")

    async def delete_pods(self) -> None:
        """Delete every pod and wait until they and their claims are gone."""
        await self.api.delete(PODS, gracePeriodSeconds="0")
        await eventually(self._empty, within=EMPTY_SECONDS, what="no pods")

    async def bind(self, pods: int, *, writes: int) -> None:
        """Bind one-GPU pods to the nodes, eight to each, as fast as the server takes it."""

        async def one(i: int) -> bytes:
            name, node = f"pod-{i:05d}", f"node-{i // 8:04d}"
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
            return await self.api.request("POST", f"{PODS}/{name}/binding", binding)

        await at_once(range(pods), one, limit=writes)

    def processor_seconds(self, scheduler: Process | None = None) -> tuple[float, float]:
        """Processor time so far of the scheduler, and of the API server."""
        server = processor_seconds(self.plane.processes["kube-apiserver"].pid)
        return (processor_seconds(scheduler.pid) if scheduler else 0.0), server

    async def requests(self) -> Counter[str]:
        """The requests that the server has answered, by verb and resource; watches have no end."""
        text = (await self.api.request("GET", "/metrics", accept="text/plain")).decode()
        found: Counter[str] = Counter()
        for labels, count in REQUESTS.findall(text):
            named = dict(LABELS.findall(labels))
            resource = "/".join(filter(None, (named["resource"], named["subresource"])))
            found[f"{named['verb']} {resource or 'other paths'}"] += round(float(count))
        return found

    async def _empty(self) -> bool:
        left = [await self.api.items(path, limit="1") for path in (PODS, CLAIMS)]
        return not any(left)


@asynccontextmanager
async def cluster(nodes: int) -> AsyncIterator[Cluster]:
    """A fresh control plane with so many nodes."""
    with (
        tempfile.TemporaryDirectory() as directory,
        control_plane(
            Path(directory),
            apiserver_flags={
                "disable-admission-plugins": "TaintNodesByCondition",
                "delete-collection-workers": 16,
            },
            controller_manager_flags={"controllers": "*,-node-lifecycle-controller"},
        ) as plane,
    ):
        async with Api(plane.kubeconfig) as api:
            await install_definitions(api)
            await api.create(documents.queue(8 * nodes))
            await at_once(
                map(documents.node, range(nodes)),
                lambda each: api.request("POST", "/api/v1/nodes", each),
            )
            yield Cluster(plane, api, nodes)


async def at_once(
    items: Iterable[T], write: Callable[[T], Awaitable[object]], *, limit: int = WRITES_AT_ONCE
) -> None:
    """Do a write for each item, in order, ``limit`` of them under way."""
    rest = iter(items)

    async def work() -> None:
        for item in rest:
            await write(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(work())
