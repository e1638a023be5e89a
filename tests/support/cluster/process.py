"""How does a test run `kai-py run` as users do: a process of its own, reached over HTTP only?"""

import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.controlplane.processes import Process, running
from tests.support.cluster.api import Api
from tests.support.cluster.clusters import Cluster
from tests.support.cluster.eventually import eventually
from tests.support.cluster.proxy import Proxy, proxy
from tests.support.repository import KAI_PY

ALONE: Mapping[str, Any] = {"cyclePeriod": "20ms", "leaderElection": {"enabled": False}}
START_SECONDS = 30.0
_SERVED = re.compile(r"served on port (\d+)")


@dataclass(frozen=True)
class KaiPy:
    """A running `kai-py run` and its way to the API server."""

    process: Process
    proxy: Proxy

    @property
    def running(self) -> bool:
        return self.process.running

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs, negative for a signal."""
        return self.process.popen.poll()

    @property
    def log(self) -> str:
        return self.process.log.read_text(errors="replace")

    def kill(self) -> None:
        self.process.popen.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.process.popen.terminate()

    async def get(self, path: str) -> tuple[int, str]:
        """Ask its own HTTP server; the code is 0 while there is no answer yet."""
        found = _SERVED.search(self.log)
        if found is None:
            return 0, ""
        url = f"http://127.0.0.1:{found[1]}{path}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def ready(self) -> bool:
        assert self.running, self.process.log_tail()
        return (await self.get("/readyz"))[0] == 200

    async def metric(self, name: str, **labels: str) -> float:
        """A sample of `/metrics`; 0 when there is none."""
        _, text = await self.get("/metrics")
        return next(
            (
                sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == name and labels.items() <= sample.labels.items()
            ),
            0.0,
        )

    async def wait_ended(self, *, within: float = 15.0) -> int | None:
        """Wait until it has ended; return how."""

        async def ended() -> bool:
            return not self.running

        await eventually(ended, within=within, what="the end of the process")
        return self.exit_code


@asynccontextmanager
async def kai_py(
    cluster: Cluster,
    directory: Path,
    *arguments: str,
    name: str = "kai-py",
    configuration: Mapping[str, Any] = ALONE,
    direct: bool = False,
) -> AsyncIterator[KaiPy]:
    """Run `kai-py run` against the cluster for the duration of the block, from its first line.

    `direct` leads it to the API server itself, past the proxy, which then sees nothing.
    """
    settings = directory / f"{name}.yaml"
    settings.write_text(yaml.safe_dump(dict(configuration)))
    account = cluster.scheduler_kubeconfig
    async with Api(account) as its, proxy(its, directory / f"{name}.kubeconfig") as way:
        options = [
            *("--kubeconfig", str(account if direct else way.kubeconfig)),
            *("--config", str(settings)),
            *("--http", "127.0.0.1:0"),
        ]
        command = [*KAI_PY, "run", *options, *arguments]
        with running(command, directory / f"{name}.log") as process:
            yield KaiPy(process, way)


async def started(scheduler: KaiPy) -> None:
    """Wait until it has read the cluster."""
    await eventually(scheduler.ready, within=START_SECONDS, what="a scheduler that is ready")
