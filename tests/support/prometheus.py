"""A real Prometheus on loopback, with a past that the test makes up."""

import contextlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.controlplane.ports import unlikely_port
from tests.support.patience import patience

METRIC = "kai_py_queue_resources"
MINUTE = 60
START_SECONDS = 30.0
Held = Mapping[str, Callable[[float], float]]
"""Queue to the GPUs it held so many hours ago."""


@contextlib.contextmanager
def prometheus(home: Path, held: Held, hours: int, until: int) -> Iterator[str]:
    """The address of a server that saw each queue hold this, each minute up to ``until``."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server is None or tool is None:
        pytest.skip("prometheus and promtool are not installed")
    metrics, data, settings = home / "past.txt", home / "data", home / "prometheus.yml"
    metrics.write_text("\n".join([*_lines(held, hours, until), "# EOF\n"]))
    settings.write_text("{}\n")
    fill = [tool, "tsdb", "create-blocks-from", "openmetrics", str(metrics), str(data)]
    subprocess.run(fill, check=True, capture_output=True)
    address = f"127.0.0.1:{unlikely_port()}"
    options = [f"--config.file={settings}", f"--storage.tsdb.path={data}"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [server, *options, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
        try:
            _wait_ready(f"http://{address}", process, home / "log")
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(patience(START_SECONDS))


def _lines(held: Held, hours: int, until: int) -> Iterator[str]:
    yield f"# TYPE {METRIC} gauge"
    for queue, gpus in held.items():
        labels = f'queue="{queue}",resource="gpu",view="allocated",instance="one"'
        for ago in range(hours * 60, -1, -1):
            yield f"{METRIC}{{{labels}}} {gpus(ago / 60)} {until - ago * MINUTE}"


def _wait_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + patience(START_SECONDS)
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=patience(1)).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"prometheus is not ready: {log.read_text()}")
