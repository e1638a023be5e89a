"""The scheduler as a process of its own, as users run it, and what processes take.

Its metrics say when a cycle is done; processor time and memory are the kernel's figures.
"""

import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane.processes import Process, running

MAIN = "from kai_py.cli.main import main; main()"
SERVED = re.compile(r"served on port (\d+)")
CYCLES = re.compile(r'^kai_py_cycle_seconds_count\{stage="total"\} (\S+)$', re.MULTILINE)
READY_SECONDS = 300.0


@dataclass(frozen=True)
class KaiPy:
    """A running ``kai-py run`` that has read the cluster."""

    process: Process

    @property
    def cycles(self) -> int:
        """How many cycles are done."""
        found = CYCLES.search(self._get("/metrics"))
        return int(float(found.group(1))) if found else 0

    @property
    def ready(self) -> bool:
        """Whether it has read the cluster and done a cycle."""
        try:
            return self.cycles > 0
        except (LookupError, OSError):  # it does not serve yet, or is too busy to answer
            return False

    def _get(self, path: str) -> str:
        found = SERVED.search(self.process.log.read_text(errors="replace"))
        if found is None:
            raise LookupError(f"{self.process.log} names no port")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{found.group(1)}{path}", timeout=10.0) as answer:
            return str(answer.read().decode())


@contextmanager
def kai_py_run(kubeconfig: Path, log: Path) -> Iterator[KaiPy]:
    """Run the scheduler for the duration of the block, which begins after its first cycle."""
    options = ("--kubeconfig", str(kubeconfig), "--http", "127.0.0.1:0", "--no-leader-elect")
    with running([sys.executable, "-c", MAIN, "run", *options], log) as process:
        scheduler = KaiPy(process)
        process.wait_until(lambda: scheduler.ready, within=READY_SECONDS)
        yield scheduler


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> tuple[float, float]:
    """Resident memory of a process in MB (10**6 bytes): now, and the most it ever had."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    amounts = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", text, re.MULTILINE))
    return int(amounts["VmRSS"]) * 1024 / 1e6, int(amounts["VmHWM"]) * 1024 / 1e6
