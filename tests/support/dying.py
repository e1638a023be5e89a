"""A scheduler that is killed between two of its writes, for tests of what comes after it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from kai_py.scheduler import Scheduler
from kai_py.watch.client import Client
from tests.support.patience import patience

LONGEST = 20.0


class KillAfter:
    """Passes calls on, and kills in front of the write after so many that count."""

    def __init__(
        self, transport: Any, writes: int, counts: Callable[[Any], bool], kill: Callable[[], Any]
    ) -> None:
        self._transport = transport
        self._left = writes
        self._counts = counts
        self._kill = kill

    async def send(self, call: Any, *, timeout_seconds: float | None = None) -> bytes:
        """Pass a call on, or kill."""
        if self._counts(call):
            self._left -= call.verb in ("patch", "create")
        if self._left < 0:
            self._kill()
            await asyncio.Event().wait()
        return await self._transport.send(call, timeout_seconds=timeout_seconds)

    def stream(self, call: Any, *, idle: float) -> Any:
        """Pass a watch on."""
        return self._transport.stream(call, idle=idle)


def binds(call: Any) -> bool:
    """Whether a call is about a claim or a binding."""
    return call.kind.startswith("ResourceClaim") or call.kind == "Pod/binding"


async def run_until_killed(
    client: Client,
    make: Callable[[Client], Scheduler],
    writes: int,
    counts: Callable[[Any], bool] = binds,
) -> None:
    """Run a scheduler that `make` makes of a client until it has made so many writes that count."""
    dying = Client(KillAfter(client.transport, writes, counts, lambda: task.cancel("killed")))
    task = asyncio.create_task(make(dying).run())
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(task, patience(LONGEST))
