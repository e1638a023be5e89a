"""Tests that are killed leave no process, cgroup or file of their nodes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.node.keeper import CGROUPS
from tests.support.cluster.api import Api
from tests.support.patience import patience
from tests.support.repository import ROOT

KILLED = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from tests.node.node import node

with node("killed", SimpleNamespace(kubeconfig=Path(sys.argv[1])), Path(sys.argv[2])):
    print("started", flush=True)
    time.sleep(600)
"""


@pytest.fixture
async def removed_node(plane):
    """Its kubelet may have registered the node, and tests that spread pods count its domain."""
    yield
    async with Api(plane.kubeconfig) as api:
        await api.delete("/api/v1/nodes", fieldSelector="metadata.name=killed")


@pytest.mark.usefixtures("removed_node")
def test_nothing_outlives_killed_tests(plane, tmp_path):
    directory = tmp_path / "node"
    arguments = [sys.executable, "-c", KILLED, plane.kubeconfig, directory]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=ROOT) as tests:
        assert tests.stdout
        assert tests.stdout.readline() == b"started\n"
        cgroup = f"kai-killed-{tests.pid}"
        assert programs_of(directory)
        assert cgroups(cgroup)
        tests.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + patience(30.0)
    while programs_of(directory) or cgroups(cgroup) or directory.exists():
        assert time.monotonic() < deadline, (programs_of(directory), cgroups(cgroup))
        time.sleep(0.1)


def cgroups(name):
    return [*CGROUPS.glob(name), *CGROUPS.glob(f"*/{name}")]


def programs_of(directory):
    """Processes that name the directory in their arguments."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (each / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(directory) in arguments and int(each.name) != os.getpid():
            found.append(arguments)
    return found
