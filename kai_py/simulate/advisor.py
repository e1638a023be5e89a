"""Suggestions for gangs of the cluster that this process schedules, looked for in another process.

Simulating takes seconds of one core; in this process it would hold up the cycles. The other one
begins with the first question and answers one at a time; an answer is kept for a while, so who
looks at a gang again and again costs nothing. After ``LONGEST_SECONDS`` what was found so far is
the answer.
"""

import asyncio
import functools
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from kai_py.config import Configuration
from kai_py.observe.explanation import Subject
from kai_py.observe.suggestion import Suggestion
from kai_py.simulate.advice import advise
from kai_py.simulate.objects import Document, read_objects
from kai_py.watch.client import Client

KEPT_SECONDS = 60.0
LONGEST_SECONDS = 30.0
MOST_KEPT = 256


class Advisor:
    """Answers for one cluster; ``close`` ends the other process."""

    def __init__(self, client: Client, configuration: Configuration) -> None:
        """Nothing is read and no process begun before the first question."""
        self._client = client
        self._configuration = configuration
        self._one_at_a_time = asyncio.Lock()
        self._workers: ProcessPoolExecutor | None = None
        self._known: dict[str, tuple[float, tuple[Suggestion, ...]]] = {}

    async def suggestions(self, gang: str) -> tuple[Suggestion, ...]:
        """Changes with which ``gang`` would start; raises ApiError, BrokenProcessPool."""
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            known = self._known.get(gang)
            if known is not None and loop.time() < known[0] + KEPT_SECONDS:
                return known[1]
            documents = await read_objects(self._client)
            if self._workers is None:
                fresh = multiprocessing.get_context("spawn")
                self._workers = ProcessPoolExecutor(max_workers=1, mp_context=fresh)
            ask = functools.partial(_answer, documents, self._configuration, time.time(), gang)
            found = await loop.run_in_executor(self._workers, ask)
            self._known.pop(gang, None)
            self._known[gang] = loop.time(), found
            while len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
            return found

    def close(self) -> None:
        """End the other process, whatever it is at."""
        if self._workers is not None:
            self._workers.shutdown(wait=False, cancel_futures=True)


def _answer(
    documents: Sequence[Document], configuration: Configuration, now: float, gang: str
) -> tuple[Suggestion, ...]:
    end = time.monotonic() + LONGEST_SECONDS
    found = advise(
        documents,
        configuration,
        now=now,
        subject=Subject.GANG,
        name=gang,
        may_try=lambda: time.monotonic() < end,
    )
    return found[0].suggestions if found else ()
