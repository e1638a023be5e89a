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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class ForkFailedError(RuntimeError):
    """The child ended without an answer: it was killed, or there was no memory left."""


def run_in_fork(work: Callable[[], T]) -> T:
    """Run ``work`` in a forked child and return or raise its result, which must be picklable."""
    with started_in_fork(work) as result:
        return result()


@contextmanager
def started_in_fork(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Run ``work`` in a forked child beside this process.

    Yields a function that waits for its result, and returns or raises it. A child whose result
    nothing waited for is killed.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _run_child(work, write_end)
    os.close(write_end)
    answer = None
    try:
        with os.fdopen(read_end, "rb") as pipe:

            def result() -> T:
                nonlocal answer
                answer = pipe.read()
                value: T = _result_of(answer, os.waitpid(child, 0)[1])
                return value

            yield result
    finally:
        if answer is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _result_of(answer: bytes, status: int) -> Any:
    """The result that a child wrote before it ended with ``status``."""
    if status or not answer:
        raise ForkFailedError(f"a simulation ended without a result (status {status})")
    error, result = pickle.loads(answer)
    if error is not None:
        raise error
    return result


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
