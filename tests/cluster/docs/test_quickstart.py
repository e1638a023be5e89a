"""docs/quickstart.md, done literally on the real control plane."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from tests.cluster.controlplane import binaries
from tests.cluster.fake_kubelet import gpu_nodes
from tests.docs.pages import manifests, shell_lines
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.scheduling import install_definitions, scheduling
from tests.support.cluster.view import View
from tests.support.repository import DOCS, KAI_PY, ROOT

PAGE = DOCS / "quickstart.md"


def line(start: str) -> str:
    """The one command of the page that starts like this."""
    (found,) = [each for each in shell_lines(PAGE) if each.startswith(start)]
    return found


async def run(command: str) -> str:
    """What a command of the page prints; kubectl is that of the control plane."""
    program, *arguments = shlex.split(command, comments=True)
    start = {"kubectl": [str(binaries() / "kubectl")], "kai-py": KAI_PY}[program]
    process = await asyncio.create_subprocess_exec(
        *start, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    answered = (0, 1) if program == "kai-py" else (0,)
    assert process.returncode in answered, f"{command}: {printed.decode()}"
    return printed.decode()


async def test_the_quickstart_does_what_it_says(
    real: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(real.kubeconfig))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"`(kubectl apply -f \S+)`", PAGE.read_text(encoding="utf-8"))
    for command, text in zip((first, second), manifests(PAGE), strict=True):
        (tmp_path / command.split()[-1]).write_text(text)
    view = View(real.api)
    await install_definitions(real.api)
    async with real.run_nodes(gpu_nodes(1, plugin_gpus=8)), scheduling(real):
        await run(first)
        await view.wait_bound("hello-gang", 2)
        await run(second)
        said = await view.wait_pending("larger-gang", 6, reason="QueueMax")
        assert "quickstart" in said
        assert "4" in said
        assert "QueueMax" in await run(line("kai-py explain"))
        assert "default/Job/larger-gang" in await run(line("kai-py what-if"))
        await run(line("kubectl patch"))
        await view.wait_bound("larger-gang", 6)
