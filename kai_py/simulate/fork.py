"""What comes of it, in a copy of this process? The copy is thrown away; only the answer comes back.

A loaded cluster is a web of objects that would take as long to copy as to load. The operating
system copies it in no time (fork), page by page as either side writes. The copy runs the work
alone, whatever threads there are here, and ends; garbage collection is off in it, for it would
write to every page. Complexity: O(pages that the work writes to) beside the work.
"""

import gc
import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ForkFailedError(RuntimeError):
    """The copy ended without an answer: somebody ended it, or there was no memory left."""


def run_in_fork(work: Callable[[], T]) -> T:
    """What ``work`` gives, or raises, in a copy of this process; both must be picklable."""
    reading, writing = os.pipe()
    copy = os.fork()
    if copy == 0:
        os.close(reading)
        _run_child(work, writing)
    os.close(writing)
    ended = False
    try:
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read()
        ended = True
    finally:
        if not ended:
            os.kill(copy, signal.SIGKILL)
        _, status = os.waitpid(copy, 0)
    if status or not answer:
        raise ForkFailedError(f"a simulation ended without an answer (status {status})")
    error, result = pickle.loads(answer)
    if error is not None:
        raise error
    given: T = result
    return given


def _run_child(work: Callable[[], T], writing: int) -> None:
    """Write what the work gives to the pipe and end the process, whatever happens."""
    try:
        gc.disable()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        outcome: tuple[Exception | None, T | None]
        try:
            outcome = None, work()
        except Exception as error:  # raised again where it is asked for
            outcome = error, None
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(outcome, pipe)
        os._exit(0)
    finally:
        os._exit(1)
