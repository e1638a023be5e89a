"""Leader election from a thread of its own, so that nothing the process does delays a renewal.

The event loop of the process decodes watches, freezes snapshots and runs the writes; while one of
these takes long it renews no Lease. Here the election has its own thread, event loop and
connection, and shares with the process only the interpreter, which threads take in turns of
milliseconds. The work stays on the loop that called ``lead``:

    thread   acquire ──► renew, renew, renew ───────────────► release
    loop               └─► work ───────────────────── ends ─┘

A Lease that is lost ends the process from the thread, also while its loop is blocked: it cannot
write afterwards.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from kai_py.watch.client import Client
from kai_py.watch.elector import Election, Elector, Leader, Result, stop_task


class ElectorThread:
    """A candidate in an election; ``connect`` opens a client for the thread's event loop."""

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Client]],
        election: Election,
        *,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self._connect, self._election, self._on_lost = connect, election, on_lost
        self._elector: Elector | None = None

    @property
    def leading(self) -> bool:
        """Whether this process may act at this moment."""
        elector = self._elector
        return elector is not None and elector.leading

    @property
    def leader(self) -> Leader:
        """The candidate that holds the Lease, which may be this one."""
        elector = self._elector
        return Leader() if elector is None else elector.leader

    def problems(self) -> list[str]:
        """Why this process could not lead, as sentences; none while it can or another does."""
        elector = self._elector
        return [] if elector is None else elector.problems()

    async def lead(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """As ``Elector.lead``, with the work on this event loop and the election in the thread."""
        loop, thread_loop = asyncio.get_running_loop(), asyncio.new_event_loop()
        acquired, ended = loop.create_future(), loop.create_future()
        finished = asyncio.Event()

        async def hold() -> None:
            loop.call_soon_threadsafe(acquired.set_result, None)
            await finished.wait()

        async def elect() -> None:
            async with self._connect() as client:
                self._elector = Elector(client, self._election, on_lost=self._on_lost)
                await self._elector.lead(hold)

        election = thread_loop.create_task(elect())

        def run() -> None:
            try:
                thread_loop.run_until_complete(asyncio.wait((election,)))
                thread_loop.run_until_complete(thread_loop.shutdown_default_executor())
            finally:
                thread_loop.close()
                loop.call_soon_threadsafe(ended.set_result, None)

        threading.Thread(target=run, name="leader election", daemon=True).start()
        task: asyncio.Task[Result] | None = None
        try:
            await asyncio.wait((acquired, ended), return_when=asyncio.FIRST_COMPLETED)
            if acquired.done():
                task = asyncio.create_task(work())
                await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if task is not None:
                await stop_task(task)
            if not ended.done():
                thread_loop.call_soon_threadsafe(finished.set if task else election.cancel)
                await asyncio.wait((ended,))
        if not election.cancelled():
            election.result()
        assert task is not None, "an election without work raises"
        return task.result()
