"""Runs a function in a forked copy of this process and returns its result.

A loaded cluster is a web of objects that would take as long to copy as to load. The operating
system copies it lazily (fork), page by page as either side writes. The child runs the function
alone, whatever threads there are here, and exits; garbage collection is off in it, for it would
write to every page. Complexity: O(pages written by the function), besides the function.
"""

import gc
import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ForkFailedError(RuntimeError):
    """The child ended without an answer: it was killed, or there was no memory left."""


def run_in_fork(work: Callable[[], T]) -> T:
    """Run ``work`` in a forked child and return or raise its result, which must be picklable."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _run_child(work, write_end)
    os.close(write_end)
    completed = False
    try:
        with os.fdopen(read_end, "rb") as pipe:
            answer = pipe.read()
        completed = True
    finally:
        if not completed:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if status or not answer:
        raise ForkFailedError(f"a simulation ended without a result (status {status})")
    error, result = pickle.loads(answer)
    if error is not None:
        raise error
    value: T = result
    return value


def _run_child(work: Callable[[], T], writing: int) -> None:
    """Write the result to the pipe and end the process, whatever happens."""
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
