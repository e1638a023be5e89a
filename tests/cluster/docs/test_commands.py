"""Every command of the documentation, run as it stands there, on a cluster that has what it names.

Each line is a test, and the installed program a process. What needs files of the repository only is
run by tests/docs/test_commands.py; make, helm and the like are looked at by
tests/docs/test_shell_lines.py.
"""

import asyncio
import itertools
import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from kai_py.api.gpu_share import RESERVATION
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from tests.cli.test_replay import group, node, written
from tests.cli.test_replay import pod as kai_pod
from tests.cli.test_replay import queue as kai_queue
from tests.cli.test_simulate import SCENARIO
from tests.cluster.controlplane import binaries
from tests.cluster.fake_kubelet import gpu_nodes
from tests.docs.pages import PAGES, commands, label, shell_lines
from tests.docs.test_commands import needs_files_only
from tests.support.cluster.clusters import Cluster, embedded_in
from tests.support.cluster.eventually import eventually
from tests.support.cluster.frameworks import Framework, owned, owner, served
from tests.support.cluster.manifests import (
    claim,
    claim_template,
    gpu_request,
    job,
    pod,
    pod_spec,
    queue,
    replicated,
)
from tests.support.cluster.scheduling import Running, install_definitions, scheduling
from tests.support.cluster.view import View
from tests.support.patience import patience
from tests.support.repository import KAI_PY, ROOT

ENDLESS = {
    "run": b"served on port",
    "demo": b"Step 1/",
    "decisions": b'"number"',
}
"""Commands that go on until they are interrupted, and what they say before that."""
OPTIONS = {
    "run": "--http 127.0.0.1:0",
    "decisions": "--url {}",
}
"""Free ports, and the scheduler of these tests."""
INTERRUPTED = (0, 130)
RECORD = ("snapshot", "cluster.json.gz", "--redact")
"""The command whose file others read."""
ADDRESS = "127.0.0.1:8080"
QUEUES = ("inference", "training", "research", "quickstart")
TRAINING = Framework(
    "kubeflow.org", "v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
    ({"training.kubeflow.org/replica-type": "worker"},),
)  # fmt: skip
POOR = {"selectors": [{"cel": {"expression": 'device.attributes["gpu.nvidia.com"].no == 1'}}]}
B200 = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "b200"},
    "status": {"capacity": {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}},
}
LISTED = {"apiVersion": "v1", "kind": "List", "items": [B200]}
"""What ``kubectl get … -o json`` prints."""
PODS = 9
ANSWERED = (0, 1)
"""Done, or: the answer is no."""


def asking() -> dict[tuple[str, ...], str]:
    """Commands that ask a cluster or read files that are not in the repository, and their pages."""
    return {
        tuple(command): label(page)
        for page in PAGES
        for command in commands(page)
        if command and "--help" not in command and not needs_files_only(command)
    }


def lasts(command: tuple[str, ...]) -> bool:
    """Whether it goes on until it is interrupted."""
    return command[0] in ENDLESS and (command[0] != "decisions" or "--follow" in command)


def write_files(folder: Path) -> None:
    """The files that commands of the documentation name."""
    manifest = yaml.safe_dump(job("another", 2))
    for name in ("job.yaml", "deployment.yaml", "pretrain.yaml"):
        (folder / name).write_text(manifest)
    (folder / "more.yaml").write_text(yaml.safe_dump(queue("more")))
    (folder / "manifests").mkdir()
    (folder / "manifests" / "job.yaml").write_text(manifest)
    (folder / "cluster.json").write_text(json.dumps(LISTED))
    (folder / "queues.yaml").write_text(yaml.safe_dump(queue("theirs")))
    (folder / "b200.yaml").write_text(yaml.safe_dump(B200))
    (folder / "kai.yaml").write_text("rules: kai\n")
    (folder / "native.yaml").write_text("rules: native\n")
    (folder / "scenario.yaml").write_text(SCENARIO)
    (folder / "plan.txt").write_text("")
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "jobs.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time\n"
        "a,1000,1024,1,1000,,inference,0,3600\n"
    )
    (folder / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,8,G2\n")
    written(
        folder, nodes=[node("n1", 4)], pods=[kai_pod("p-0", "p")], queues=[kai_queue("q", quota=4)],
        podGroups=[group("p", 1)],
    )  # fmt: skip


async def submit(cluster: Cluster) -> None:
    """The objects that commands of the documentation name; some run, some wait."""
    await cluster.submit(claim_template(), queue(), *(queue(name, maxGPUs=64) for name in QUEUES))
    await cluster.submit(
        job("train", 2), job("larger-gang", 2), job("old", 1),
        claim("vllm-7d9f4c-x2k8p-gpu-q5tzn", gpu_request(**POOR)),
        pod("vllm", pod_spec(claim="vllm-7d9f4c-x2k8p-gpu-q5tzn")), pod("train-0"),
        replicated("Deployment", "web", 1),
    )  # fmt: skip
    pretrain = await cluster.api.create(owner(TRAINING, "pretrain"))
    await cluster.submit(*owned(TRAINING, pretrain))

    async def made() -> bool:
        return len(await View(cluster.api).pods()) == PODS

    await eventually(made, what="the pods of all Jobs")


@dataclass(frozen=True)
class Documented:
    """Where the commands of the documentation find what they name."""

    cluster: Cluster
    environment: dict[str, str]
    folder: Path
    address: str

    def words(self, command: tuple[str, ...]) -> list[str]:
        """The command as it is typed here: at these addresses, and without what is left open."""
        here = {f"http://{ADDRESS}": self.address, ADDRESS: "127.0.0.1:0"}
        words = [here.get(word, word) for word in command if word != "…"]
        return [*KAI_PY, *words, *OPTIONS.get(command[0], "").format(self.address).split()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def documented(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Documented]:
    """A cluster with all that is named, and a scheduler with its HTTP server."""
    folder = tmp_path_factory.mktemp("documented")
    write_files(folder)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(embedded_in(tmp_path_factory.mktemp("cluster")))
        await install_definitions(cluster.api)
        await stack.enter_async_context(served(cluster, TRAINING))
        await stack.enter_async_context(
            cluster.run_nodes(gpu_nodes(8, prefix="gpu-node", published_gpus=8))
        )
        running: Running = await stack.enter_async_context(scheduling(cluster))
        await submit(cluster)
        port = await stack.enter_async_context(
            serve(running.scheduler.probes(), HttpAccess("127.0.0.1"), 0)
        )
        environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder)}
        where = Documented(cluster, environment, folder, f"http://127.0.0.1:{port}")
        code, said = await run(where, folder, RECORD)
        assert code == 0, said
        yield where


async def run(where: Documented, folder: Path, command: tuple[str, ...]) -> tuple[int | None, str]:
    """Run a command to its end; gives the exit code and what it said.

    One that does not end says where it is before it is ended.
    """
    process = await start(where, folder, command)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(patience(60)):
            said, _ = await process.communicate(json.dumps(LISTED).encode())
    except TimeoutError:
        process.send_signal(signal.SIGABRT)
        said = await process.stdout.read()
        await process.wait()
    return process.returncode, said.decode()


async def start(
    where: Documented, folder: Path, command: tuple[str, ...]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *where.words(command),
        cwd=folder,
        env=where.environment | {"PYTHONFAULTHANDLER": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@pytest.fixture
def folder(documented: Documented, tmp_path: Path) -> Path:
    """A copy of the files for one command, some of which write."""
    return shutil.copytree(documented.folder, tmp_path / "files", symlinks=True)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("command", list(itertools.filterfalse(lasts, asking())), ids=" ".join)
async def test_a_command_answers(
    documented: Documented, folder: Path, command: tuple[str, ...]
) -> None:
    code, said = await run(documented, folder, command)
    assert code in ANSWERED, said
    assert said
    assert "Traceback" not in said


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "command", [command for command in asking() if lasts(command)], ids=" ".join
)
async def test_a_command_runs_until_interrupted(
    documented: Documented, folder: Path, command: tuple[str, ...]
) -> None:
    if command[0] == "decisions":
        # Those before may have been made longer ago than the command looks back.
        await documented.cluster.submit(pod("decided"))
    process = await start(documented, folder, command)
    said = b""
    try:
        async with asyncio.timeout(patience(60)):
            while ENDLESS[command[0]] not in said:
                piece = await process.stdout.read(1 << 16)
                assert piece, said.decode()
                said += piece
            process.send_signal(signal.SIGINT)
            rest, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode in INTERRUPTED, (said + rest).decode()
    assert b"Traceback" not in said + rest


def of_kubectl() -> dict[str, str]:
    """What lines give to kubectl, with a pod in the place of the one that is left open."""
    return {
        re.split(" [#>|]", line)[0].replace("…", "train-0").strip(): label(page)
        for page in PAGES
        for line in shell_lines(page)
        if line.startswith("kubectl ") and not line.startswith("kubectl kai ")
    }


@pytest.mark.parametrize("line", of_kubectl())
@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
@pytest.mark.usefixtures("definitions")
async def test_kubectl_takes_what_is_told_to_it(cluster: Cluster, line: str) -> None:
    for name in ("team-a", RESERVATION):
        await cluster.create_namespace(name)
    await cluster.submit(queue("quickstart"), pod("train-0"))
    done = await asyncio.create_subprocess_exec(
        binaries() / "kubectl", f"--kubeconfig={cluster.kubeconfig}", *shlex.split(line)[1:],
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await done.communicate()
    assert done.returncode == 0, said.decode()


def test_there_are_commands_of_kubectl() -> None:
    assert len(of_kubectl()) >= 4
