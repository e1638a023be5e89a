"""A limit of processor time for what must end: another process on the machine costs it nothing."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class CpuLimitError(BaseException):
    """The code used more processor time than it may; nothing that catches errors catches it."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Fail what is inside once it has used so much processor time; in the main thread only."""

    def interrupt(signum: int, frame: object) -> None:
        raise CpuLimitError(f"still running after {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
