"""Suggestions for gangs of the cluster that this process schedules, looked for in another process.

Simulating takes seconds of one core, and memory; in this process it would hold up the cycles. The
other one is begun for a question and ends with its answer, one at a time; an answer is kept for a
while, so who looks at a gang again and again costs nothing. After ``LONGEST_SECONDS`` what was
found so far is the answer.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from kai_py.config import Configuration
from kai_py.observe.explanation import Subject
from kai_py.observe.http import Probes
from kai_py.observe.suggestion import NoAdviceError, Suggestion
from kai_py.simulate.advice import advise
from kai_py.simulate.objects import Document, read_objects
from kai_py.watch.client import Client

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

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
        self._known: dict[str, tuple[float, tuple[Suggestion, ...]]] = {}
        self._process: SpawnProcess | None = None

    async def suggestions(self, gang: str) -> tuple[Suggestion, ...]:
        """Changes with which ``gang`` would start; raises ApiError, NoAdviceError."""
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            known = self._known.get(gang)
            if known is not None and loop.time() < known[0] + KEPT_SECONDS:
                return known[1]
            documents = await read_objects(self._client)
            found = await asyncio.to_thread(self._ask, documents, gang)
            self._known.pop(gang, None)
            self._known[gang] = loop.time(), found
            while len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
            return found

    def close(self) -> None:
        """End the other process, whatever it is at."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()

    def _ask(self, documents: Sequence[Document], gang: str) -> tuple[Suggestion, ...]:
        fresh = multiprocessing.get_context("spawn")
        answers, answering = fresh.Pipe(duplex=False)
        asked = (answering, documents, self._configuration, time.time(), gang)
        self._process = fresh.Process(target=_answer, args=asked, daemon=True)
        self._process.start()
        answering.close()
        try:
            found: tuple[Suggestion, ...] = answers.recv()
        except EOFError:
            raise NoAdviceError(f"{gang}: the simulation ended without an answer") from None
        finally:
            self._process.join()
            answers.close()
        return found


@contextmanager
def advised(probes: Probes, client: Client, configuration: Configuration) -> Iterator[Probes]:
    """The same probes, with explanations that tell what would help."""
    advisor = Advisor(client, configuration)
    try:
        yield replace(probes, source=replace(probes.source, advise=advisor.suggestions))
    finally:
        advisor.close()


def _answer(
    answering: Connection,
    documents: Sequence[Document],
    configuration: Configuration,
    now: float,
    gang: str,
) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    found = advise(
        documents,
        configuration,
        now=now,
        subject=Subject.GANG,
        name=gang,
        may_try=lambda: time.monotonic() < end,
    )
    answering.send(found[0].suggestions if found else ())
