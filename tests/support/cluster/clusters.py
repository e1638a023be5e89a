"""Which clusters does the suite run on, and what does a test get of one?

`CLUSTERS` has one entry per kind of cluster; the fixture `cluster` runs each test once per entry.
An entry opens its cluster for one test and leaves nothing behind for the next.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kai_py.embedded.cluster import EmbeddedCluster
from tests.cluster.fake_kubelet import FakeKubelet, FakeNode
from tests.support.cluster.account import scheduler_account
from tests.support.cluster.api import Api, ApiError, Document
from tests.support.cluster.eventually import eventually

PODS = "/api/v1/namespaces/default/pods"


def _pod_of_class(priority_class: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "admission-probe"},
        "spec": {
            "priorityClassName": priority_class,
            "containers": [{"name": "main", "image": "none"}],
        },
    }


@dataclass(frozen=True)
class Cluster:
    """A cluster with nothing in it, and the ways to reach it."""

    name: str
    kubeconfig: Path
    scheduler_kubeconfig: Path
    """For schedulers: on a real API server with the permissions of an installation, no more."""
    url: str
    api: Api
    run_nodes: Callable[[Sequence[FakeNode]], AbstractAsyncContextManager[object]]
    """Has nodes that run their pods for the duration of a block."""

    async def submit(self, *documents: Document) -> None:
        """Create documents in their order, in `default` where they name no namespace.

        A PriorityClass is waited for until pods may name it: the admission of pods reads
        classes from a watch of its own, which lags behind what was created.
        """
        for document in documents:
            await self.api.create(document)
            if document["kind"] == "PriorityClass" and await self._has_lagging_admission():
                named = _pod_of_class(document["metadata"]["name"])
                await eventually(
                    lambda named=named: self._admits(named),
                    what=f"admission of pods of {named['spec']['priorityClassName']}",
                )

    async def _has_lagging_admission(self) -> bool:
        """Say whether this is a real API server; the embedded one reads what it stored."""
        return "ServiceAccount" in await self.api.types("v1")

    async def _admits(self, pod: Document) -> bool:
        try:
            await self.api.request("POST", PODS, pod, parameters={"dryRun": "All"})
        except ApiError as error:
            if error.code != 403:
                raise
            return False
        return True

    async def create_namespace(self, name: str) -> None:
        """Create a namespace and wait until pods are accepted in it."""
        await self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if not await self._has_lagging_admission():
            return
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        await eventually(lambda: self.api.items(accounts), what=f"service account of {name}")


@asynccontextmanager
async def real_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Open the session's real control plane, swept afterwards."""
    plane = request.getfixturevalue("real_control_plane")
    sweep = request.getfixturevalue("real_sweep")
    async with Api(plane.kubeconfig) as api:
        account = await scheduler_account(api)
        await sweep.remember(api)
        yield Cluster(
            name="real",
            kubeconfig=plane.kubeconfig,
            scheduler_kubeconfig=account,
            url=plane.url,
            api=api,
            run_nodes=lambda nodes: FakeKubelet(api, nodes),
        )
        await sweep.clean(api)


@asynccontextmanager
async def embedded_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Open a fresh embedded cluster for one test."""
    async with embedded_in(request.getfixturevalue("tmp_path")) as cluster:
        yield cluster


@asynccontextmanager
async def embedded_in(directory: Path) -> AsyncIterator[Cluster]:
    """Open a fresh embedded cluster; nodes run their pods with the same kubelet as on the real."""
    kubeconfig = directory / "embedded.kubeconfig"
    async with EmbeddedCluster(kubelet=False) as embedded:
        embedded.write_kubeconfig(kubeconfig)
        async with Api(kubeconfig) as api:
            yield Cluster(
                name="embedded",
                kubeconfig=kubeconfig,
                scheduler_kubeconfig=kubeconfig,
                url=embedded.url,
                api=api,
                run_nodes=lambda nodes: FakeKubelet(api, nodes),
            )


Opener = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Cluster]]
CLUSTERS: dict[str, Opener] = {"embedded": embedded_cluster, "real": real_cluster}
REAL_FIRST = pytest.mark.parametrize(
    "cluster", ["real", pytest.param("embedded", marks=pytest.mark.nightly)], indirect=True
)
"""For tests that wait long and judge the scheduler, no cluster: `make nightly` runs the other."""
