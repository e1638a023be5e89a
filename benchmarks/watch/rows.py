"""The rows of the watch part: reading a big cluster, keeping up with it, and the memory it takes.

Processor time of the client's process is counted, not the server's, which has a process of its own.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.machine import ROOT
from benchmarks.processes import kai_py_run, processor_seconds, resident_mb
from benchmarks.row import Benchmark, Measured
from benchmarks.timing import peak_resident_mb
from kai_py.config import Configuration
from kai_py.planner import Planner
from kai_py.watch.credentials import find_credentials
from kai_py.watch.http_transport import connect
from kai_py.watch.kinds import PODS as KIND_OF_PODS
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Kind

NODES, PODS, EVENTS = 10_000, 100_000, 20_000


def watch_benchmarks() -> list[Benchmark]:
    """The rows."""
    size = f"{NODES:,} nodes, {PODS:,} pods of 7 KB"
    return [
        Benchmark(
            part="watch",
            name="process",
            title=f"{size}: kai-py run reads all and does a cycle (CPU); memory of the process",
            run=measure_process,
            aim="600 MB",
        ),
        Benchmark(
            part="watch",
            name="event",
            title=f"{size}: one pod event, from the wire into the builder (CPU)",
            run=measure_event,
            peer="40 µs (without builder), typed official client 1,900 µs",
        ),
    ]


def measure_process() -> Measured:
    """Start the scheduler on such a cluster; one that has nothing to do."""
    with big_cluster(NODES, PODS) as url, tempfile.TemporaryDirectory() as directory:
        kubeconfig = write_kubeconfig(Path(directory), url)
        began = time.perf_counter()
        with kai_py_run(kubeconfig, Path(directory) / "kai-py.log") as scheduler:
            waited = time.perf_counter() - began
            now, peak = resident_mb(scheduler.process.pid)
            seconds = processor_seconds(scheduler.process.pid)
    outcome = f"ready after {waited:.1f} s; {now:.0f} MB resident then"
    return Measured(seconds=seconds, outcome=outcome, peak_mb=peak)


def measure_event() -> Measured:
    """Follow such a cluster, then have it change."""
    with big_cluster(NODES, PODS) as url, tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_follow(url, write_kubeconfig(Path(directory), url)))


@contextmanager
def big_cluster(nodes: int, pods: int) -> Iterator[str]:
    """The server in its own process; gives its URL."""
    command = [sys.executable, "-m", "benchmarks.watch.server", str(nodes), str(pods)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


async def _follow(url: str, kubeconfig: Path) -> Measured:
    planner = Planner(Configuration())
    told = 0
    enough = asyncio.Event()

    def listen(kind: Kind[Any], old: Any, new: Any) -> None:
        nonlocal told
        planner.builder.apply(kind.plural, old, new)
        told += kind is KIND_OF_PODS
        if told == EVENTS:
            enough.set()

    async with connect(find_credentials(str(kubeconfig))) as client:
        mirror = Mirror(client)
        mirror.subscribe(listen)
        following = asyncio.create_task(mirror.run())
        await mirror.wait_synced()
        told, began = 0, time.process_time()
        async with aiohttp.ClientSession() as session:
            await session.post(f"{url}/events", params={"count": str(EVENTS)})
        await enough.wait()
        each = (time.process_time() - began) / EVENTS
        following.cancel()
    return Measured(seconds=each, outcome=f"{EVENTS:,} events", peak_mb=peak_resident_mb())


def write_kubeconfig(directory: Path, url: str) -> Path:
    """A kubeconfig for a server that asks for no credentials."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "big", "cluster": {"server": url}}],
        "users": [{"name": "reader", "user": {}}],
        "contexts": [{"name": "big", "context": {"cluster": "big", "user": "reader"}}],
        "current-context": "big",
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
