"""From the previous version to this one, with work running, on a real API server.

The previous version is one of the project's own history: its process, its CRD, its records on pods,
claims and queues. Only a clone with that history can show it.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from kai_py.config import CommitConfig, Configuration
from tests.cluster.fake_kubelet import gpu_nodes
from tests.support.cluster.api import Api, ApiError, Document
from tests.support.cluster.audit import wait_without_findings
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import (
    TEMPLATE,
    claim_template,
    job,
    pod_spec,
    priority_class,
    queue,
)
from tests.support.cluster.scheduling import DEFINITIONS, install_definitions, scheduling
from tests.support.cluster.view import View
from tests.support.patience import patience
from tests.support.repository import CRDS, NO_HISTORY, ROOT

PREVIOUS = "4adc2671bbf43126f2709c1365fa4cda6b3d9599"
START = "from kai_py.cli.main import main; main()"


def in_history() -> bool:
    """Whether this is a clone that has the previous version."""
    command = ["git", "cat-file", "-e", f"{PREVIOUS}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not in_history(), reason=NO_HISTORY)


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the previous version."""
    tree = tmp_path_factory.mktemp("previous")
    archive = tree.with_suffix(".tar")
    subprocess.run(["git", "archive", "-o", archive, PREVIOUS], cwd=ROOT, check=True)
    with tarfile.open(archive) as packed:
        packed.extractall(tree, filter="data")
    return tree


def definitions(directory: Path) -> list[Document]:
    return [yaml.safe_load(path.read_text()) for path in sorted(directory.glob("*.yaml"))]


async def define(api: Api, defined: list[Document]) -> None:
    """Apply CRDs in place of those that are there."""
    for definition in defined:
        stored = f"{DEFINITIONS}/{definition['metadata']['name']}"

        async def replaced(stored: str = stored, wanted: Document = definition) -> bool:
            version = (await api.get(stored))["metadata"]["resourceVersion"]
            try:
                await api.put(
                    stored,
                    wanted | {"metadata": wanted["metadata"] | {"resourceVersion": version}},
                )
            except ApiError as error:
                if error.reason != "Conflict":  # the server writes statuses meanwhile
                    raise
                return False
            return True

        await eventually(replaced, what=f"{stored} replaced")


@asynccontextmanager
async def running(tree: Path, kubeconfig: Path, log: Path) -> AsyncIterator[None]:
    """The scheduler of another tree as a process, ended as a Deployment would."""
    with log.open("wb") as lines:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", START, "run", "--kubeconfig", kubeconfig),
            *("--no-leader-elect", "--http", "127.0.0.1:0"),
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdout=lines,
            stderr=lines,
        )
    try:
        yield
        assert process.returncode is None, f"the previous version ended, see {log}"
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), patience(30))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def gpus(name: str, count: int, priority: str) -> Document:
    return job(name, count, pod_spec(template=TEMPLATE, priorityClassName=priority))


async def state(view: View) -> dict[str, tuple[str, str]]:
    """The uid and node of each pod of the gang that runs."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["spec"]["nodeName"])
        for pod in await view.pods("running")
    }


async def test_work_goes_on_when_the_scheduler_is_replaced(
    real: Cluster, previous: Path, tmp_path: Path
) -> None:
    view, api = View(real.api), real.api
    configuration = Configuration(cycle_period=0.02, commit=CommitConfig(queue_status_interval=0.2))
    await install_definitions(api)
    async with real.run_nodes(gpu_nodes(1, published_gpus=4)):
        try:
            await define(api, definitions(previous / "crds"))
            async with running(previous, real.scheduler_kubeconfig, tmp_path / "log"):
                await real.submit(
                    queue(), priority_class("low", 10), priority_class("high", 1000),
                    claim_template(), gpus("running", 3, "low"),
                )  # fmt: skip
                await view.wait_bound("running", 3, within=60)
                await real.submit(gpus("waiting", 2, "low"))
                await view.wait_pending("waiting", 2, reason="Unschedulable", within=60)
        finally:
            await define(api, definitions(CRDS))
        before, devices = await state(view), sorted(await view.held())
        async with scheduling(real, configuration):

            async def is_told() -> bool:
                stored = await api.get("/apis/scheduling.kai.io/v1alpha1/queues/team-a")
                assert stored["status"]["allocated"] == {"gpus": "3"}
                return True

            await eventually(is_told, what="the queue's status of this version", within=30)
            assert await state(view) == before
            assert sorted(await view.held()) == devices
            await real.submit(gpus("urgent", 4, "high"))
            await view.wait_bound("urgent", 4, within=60)

            async def is_recorded() -> bool:
                return bool(await view.events(kind="Job", name="running", reason="Preempted"))

            await eventually(is_recorded, what="the event of the preemption", within=30)

        await wait_without_findings(api, within=30)
