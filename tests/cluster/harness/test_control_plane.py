"""The real control plane starts with what it is asked for, says why it does not, and ends."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.controlplane import ControlPlane, StartError, control_plane
from tests.support.cluster.api import Api
from tests.support.patience import patience
from tests.support.repository import ROOT

KEEP_RUNNING = """
import sys, time
from pathlib import Path
from tests.cluster.controlplane import control_plane

with control_plane(Path(sys.argv[1])) as plane:
    print(*(process.pid for process in plane.processes.values()), flush=True)
    time.sleep(60)
"""


async def test_every_version_of_the_resource_api_is_served(real_control_plane: ControlPlane):
    async with Api(real_control_plane.kubeconfig) as api:
        for version in ("v1", "v1beta2", "v1beta1"):
            assert "ResourceClaim" in await api.types(f"resource.k8s.io/{version}")


def test_kubectl_accepts_the_kubeconfig(real_control_plane: ControlPlane):
    command = [real_control_plane.kubectl, "--kubeconfig", real_control_plane.kubeconfig]
    answer = subprocess.run(
        [*command, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout == "admin"


async def test_feature_gates_and_api_versions_are_switched(tmp_path: Path):
    with control_plane(
        tmp_path,
        feature_gates={"GenericWorkload": True, "GangScheduling": True},
        runtime_config={"scheduling.k8s.io/v1alpha2": True, "resource.k8s.io/v1beta1": False},
    ) as plane:
        async with Api(plane.kubeconfig) as api:
            assert "Workload" in await api.types("scheduling.k8s.io/v1alpha2")
            assert await api.types("resource.k8s.io/v1beta1") == {}
        with plane.kube_scheduler() as scheduler:
            assert scheduler.running


def test_a_component_that_does_not_start_shows_its_log(tmp_path: Path):
    with (
        pytest.raises(StartError, match=r"kube-apiserver ended with code 1:(?s:.)*no-such-flag"),
        control_plane(tmp_path, apiserver_flags={"no-such-flag": 1}),
    ):
        pass
    assert _processes_naming(tmp_path) == []


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_program_that_started_it(tmp_path: Path, end: signal.Signals):
    starter = subprocess.Popen(
        [sys.executable, "-c", KEEP_RUNNING, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    assert len(pids) == 3
    assert all(_alive(pid) for pid in pids)
    starter.send_signal(end)
    starter.communicate()
    deadline = time.monotonic() + patience(5)
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # dead, and not collected by its new parent yet


def _processes_naming(path: Path) -> list[Path]:
    commands = Path("/proc").glob("[0-9]*/cmdline")
    return [command for command in commands if str(path).encode() in _content(command)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
async def test_served_it_runs_until_interrupted_and_leaves_nothing(end: signal.Signals):
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.cluster.controlplane", "--serve"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert serving.stdout is not None
    line = b""
    while not line.startswith(b"/"):  # before it, what is built, if anything is
        line = await serving.stdout.readline()
        assert line
    kubeconfig = Path(line.decode().strip())
    async with Api(kubeconfig) as api:
        assert (await api.get("/version"))["major"] == "1"
    serving.send_signal(end)
    assert await asyncio.wait_for(serving.wait(), patience(30)) == 0
    assert not kubeconfig.parent.exists()
