"""How does a program of the control plane start, fail with its reason, and surely end?

A child gets its own session, so Ctrl-C in the terminal reaches the tests only, which then stop it
in order. When the process that started it is killed, the kernel kills the child too (`attached`);
that follows the *thread* that started it, so start these from a thread that lives as long as they
should.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import patience

_ATTACHED = Path(__file__).with_name("attached.py")
_COLLECT_SELDOM = {"GOGC": "400"}
"""Programs in Go take a sixth less processor time, and at most some hundred MB more."""


class StartError(RuntimeError):
    """A program ended or did not become ready; the text carries the tail of its log."""


@dataclass(frozen=True)
class Process:
    """A running program and where it writes."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def log_tail(self, *, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], bool], *, within: float) -> None:
        """Block until `ready()`; raise StartError when the program ends or is not ready in time.

        `within` is in seconds of a quiet machine.
        """
        longest = patience(within)
        deadline = time.monotonic() + longest
        while not ready():
            if not self.running:
                raise StartError(
                    f"{self.name} ended with code {self.popen.returncode}:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} not ready after {longest:.0f} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self, *, within: float = 5.0) -> None:
        """Ask it to end, kill it when it has not after `within` seconds."""
        self.popen.terminate()
        try:
            self.popen.wait(patience(within))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


@contextmanager
def running(command: Sequence[str | Path], log: Path, *, grace: float = 5.0) -> Iterator[Process]:
    """Run `command` for the duration of the block, its output in `log`."""
    with log.open("ab") as output:
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", _ATTACHED, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | _COLLECT_SELDOM,
        )
    process = Process(name=Path(command[0]).name, log=log, popen=popen)
    try:
        yield process
    finally:
        process.stop(within=grace)
