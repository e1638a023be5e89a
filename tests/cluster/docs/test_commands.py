"""Every command of the documentation, run as it stands there, on a cluster that has what it names.

`kai-py` commands that answer and those of kubectl are run here; what runs on and on is started by
tests of its own (LASTING), what needs files only by tests/docs/test_commands.py, and make, helm and
the like are looked at by tests/docs/test_shell_lines.py.
"""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kai_py.cli import main
from kai_py.observe.http import serve
from kai_py.observe.http_access import HttpAccess
from tests.cli.test_replay import group, node, written
from tests.cli.test_replay import pod as kai_pod
from tests.cli.test_replay import queue as kai_queue
from tests.cli.test_simulate import SCENARIO
from tests.cluster.controlplane import binaries
from tests.cluster.fake_kubelet import gpu_nodes
from tests.cluster.gangs.test_frameworks import Framework, owned, owner, served
from tests.docs.pages import PAGES, commands, label, shell_lines
from tests.docs.test_commands import needs_files_only
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.manifests import (
    claim,
    claim_template,
    gpu_request,
    job,
    pod,
    pod_spec,
    queue,
)
from tests.support.cluster.scheduling import Running, scheduling
from tests.support.cluster.view import View
from tests.support.repository import ROOT

LASTING = {
    "run": "tests/cluster/installation/test_dry_run.py",
    "top": "tests/cli/test_top.py",
    "demo": "tests/demo/test_story.py",
}
ADDRESS = "http://127.0.0.1:8080"
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
PODS = 8
ANSWERED = (0, 1)
"""Done, or: the answer is no."""


def asked() -> dict[tuple[str, ...], str]:
    """Commands that ask a cluster, in an order in which each finds the files of those before."""
    found = {
        tuple(command): label(page)
        for page in PAGES
        for command in commands(page)
        if command and "--help" not in command and not needs_files_only(command)
        if command[0] not in LASTING
    }
    return dict(sorted(found.items(), key=lambda each: each[0][0] != "snapshot"))


def test_what_lasts_is_started_elsewhere() -> None:
    for command, path in LASTING.items():
        assert (ROOT / path).exists(), command


def write_files(folder: Path) -> None:
    """The files that commands of the documentation name."""
    manifest = yaml.safe_dump(job("another", 2))
    for name in ("job.yaml", "deployment.yaml", "pretrain.yaml"):
        (folder / name).write_text(manifest)
    (folder / "queues.yaml").write_text(yaml.safe_dump(queue("theirs")))
    (folder / "b200.yaml").write_text(yaml.safe_dump(B200))
    (folder / "kai.yaml").write_text("rules: kai\n")
    (folder / "native.yaml").write_text("rules: native\n")
    (folder / "scenario.yaml").write_text(SCENARIO)
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
        claim("vllm-gpu-with-40g", gpu_request(**POOR)),
        pod("vllm", pod_spec(claim="vllm-gpu-with-40g")), pod("train-0"),
    )  # fmt: skip
    pretrain = await cluster.api.create(owner(TRAINING, "pretrain"))
    await cluster.submit(*owned(TRAINING, pretrain))

    async def made() -> bool:
        return len(await View(cluster.api).pods()) == PODS

    await eventually(made, what="the pods of all Jobs")


@asynccontextmanager
async def documented(cluster: Cluster) -> AsyncIterator[str]:
    """The cluster with all of it, a scheduler, and the address of its HTTP server."""
    nodes = gpu_nodes(8, prefix="gpu-node", published_gpus=8)
    async with served(cluster, TRAINING), cluster.run_nodes(nodes):
        running: Running
        async with scheduling(cluster) as running:
            await submit(cluster)
            async with serve(running.scheduler.probes(), HttpAccess("127.0.0.1"), 0) as port:
                yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
@pytest.mark.usefixtures("definitions")
async def test_commands_answer(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    write_files(tmp_path)
    failed = {}
    async with documented(cluster) as address:
        for command, page in asked().items():
            words = [word.replace(ADDRESS, address) for word in command if word != "…"]
            if words[0] == "decisions":
                words = [word for word in words if word != "--follow"] + ["--url", address]
            done = await asyncio.to_thread(
                CliRunner().invoke, main.app, words, obj=main.Invocation()
            )
            if done.exit_code not in ANSWERED or not isinstance(done.exception, SystemExit | None):
                failed[page, shlex.join(command)] = f"{done.output}{done.exception}"
    assert failed == {}


def of_kubectl() -> dict[str, str]:
    """Lines of kubectl alone, with a pod in the place of the one that is left open."""
    return {
        line.partition(" #")[0].replace("…", "train-0").strip(): label(page)
        for page in PAGES
        for line in shell_lines(page)
        if line.startswith("kubectl ") and not line.startswith("kubectl kai ")
    }


@pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
@pytest.mark.usefixtures("definitions")
async def test_kubectl_takes_what_is_told_to_it(cluster: Cluster) -> None:
    await cluster.create_namespace("team-a")
    await cluster.submit(queue("quickstart"), pod("train-0"))
    lines = of_kubectl()
    assert len(lines) >= 4
    for line in lines:
        done = await asyncio.create_subprocess_exec(
            binaries() / "kubectl", f"--kubeconfig={cluster.kubeconfig}", *shlex.split(line)[1:],
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await done.communicate()
        assert done.returncode == 0, f"{line}: {said.decode()}"
