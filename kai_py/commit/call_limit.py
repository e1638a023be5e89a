"""A limit of calls under way that the namespaces share, so that one of them cannot take all of it.

Calls about one namespace may hang: a webhook for its objects does not answer, and the API server
waits for it for up to 30 s. With one limit for all, such calls would soon be the only ones under
way, and nothing would be bound anywhere else. Here a namespace may take another slot only while it
has fewer than ``SHARE`` times as many as are free: one alone gets as many as the limit says, and
leaves some for others; the next one gets most of these, and so on.

Namespaces take turns; the calls of one are made in their order. O(namespaces that wait) per call.

Source: A. Choudhury, E. Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

SHARE = 3


class CallLimit:
    """At most ``limit`` calls of one namespace at a time, and a third more of all together."""

    def __init__(self, limit: int) -> None:
        """``limit``: 1 or more; up to 2, nothing is kept for other namespaces."""
        self._limit = limit
        self._free = limit + limit // SHARE
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def locked(self) -> bool:
        """Whether as many calls are under way as one namespace may make."""
        return self._taken.total() >= self._limit

    @asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """A block that makes a call about ``namespace``."""
        await self._acquire(namespace)
        try:
            yield
        finally:
            self._release(namespace)

    def _may_take(self, namespace: str) -> bool:
        return self._taken[namespace] < SHARE * self._free

    def _take(self, namespace: str) -> None:
        self._free -= 1
        self._taken[namespace] += 1

    async def _acquire(self, namespace: str) -> None:
        if namespace not in self._waiting and self._may_take(namespace):
            self._take(namespace)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._give_up(namespace, turn)
            else:
                self._release(namespace)
            raise

    def _give_up(self, namespace: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(namespace, deque())
        with suppress(ValueError):  # its turn came after it was cancelled
            turns.remove(turn)
            if not turns:
                del self._waiting[namespace]

    def _release(self, namespace: str) -> None:
        self._free += 1
        self._taken[namespace] -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]
        while self._start_next():
            pass

    def _start_next(self) -> bool:
        """Start the next call that may be made; whether there is one."""
        for namespace in tuple(self._waiting):
            if not self._may_take(namespace):
                continue
            # Put back at the end, so that the next turn is another namespace's.
            turns = self._waiting.pop(namespace)
            turn = turns.popleft()
            if turns:
                self._waiting[namespace] = turns
            if not turn.cancelled():
                self._take(namespace)
                turn.set_result(None)
            return True
        return False
