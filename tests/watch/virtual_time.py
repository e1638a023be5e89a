"""An event loop whose clock jumps to the next timer as soon as nothing is left to do.

Minutes of backoff pass in milliseconds, and waiting times can be asserted exactly. With sockets on
loopback the loop looks for readiness for ``grace`` real seconds before it jumps: data written by
this same process is there by then.
"""

import asyncio
import functools
import selectors


class _Selector(selectors.DefaultSelector):
    def __init__(self, grace):
        super().__init__()
        self.grace = grace
        self.skipped = 0.0

    def select(self, timeout=None):
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(min(self.grace, timeout))
        if not ready:
            self.skipped += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self, grace=0.0):
        self._clock = _Selector(grace)
        self._start = super().time()
        super().__init__(self._clock)

    def time(self):
        return self._clock.skipped


def run(main, *, grace=0.0):
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(grace)) as runner:
        return runner.run(main)


def test(coroutine_function):
    """A test whose coroutine runs in virtual time."""

    @functools.wraps(coroutine_function)
    def in_virtual_time(*args, **kwargs):
        return run(coroutine_function(*args, **kwargs))

    return in_virtual_time
