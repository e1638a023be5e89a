"""Questions about the cluster that this process schedules, answered in another process.

Which changes would let a gang start, and what would a change do? Simulating takes seconds of one
core, and memory; in this process it would hold up the cycles. The other one is begun for a question
and ends with its answer, one at a time; an answer is kept for a while, so who asks the same again
and again costs nothing. After ``LONGEST_SECONDS`` the suggestions that were found so far are the
answer; whatever takes longer than ``PATIENCE_SECONDS`` is given up.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kai_py.config import Configuration
from kai_py.observe.http import Probes
from kai_py.observe.subject import Subject
from kai_py.observe.suggestion import MistakenQuestionError, NoAdviceError, Suggestion
from kai_py.simulate.advice import advise
from kai_py.simulate.change_texts import changes_in
from kai_py.simulate.changes import Change, ChangeError
from kai_py.simulate.objects import Document, read_objects
from kai_py.simulate.what_if import Comparison, NodesNeeded, nodes_needed, what_if
from kai_py.watch.client import Client

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

KEPT_SECONDS = 60.0
LONGEST_SECONDS = 30.0
PATIENCE_SECONDS = 120.0
MOST_KEPT = 256
UNTIL_PLACED = "until-placed"
T = TypeVar("T")
Asked: TypeAlias = Callable[[Sequence[Document], Configuration, float], T]
"""A question about a cluster, its configuration and the time; it travels to another process."""


class Advisor:
    """Answers for one cluster; ``close`` ends the other process."""

    def __init__(self, client: Client, configuration: Configuration) -> None:
        """Nothing is read and no process begun before the first question."""
        self._client = client
        self._configuration = configuration
        self._one_at_a_time = asyncio.Lock()
        self._known: dict[Hashable, tuple[float, Any]] = {}
        self._process: SpawnProcess | None = None

    async def suggestions(self, gang: str) -> tuple[Suggestion, ...]:
        """Changes with which ``gang`` would start; raises ApiError, NoAdviceError."""
        return await self._answered(gang, partial(_suggestions, gang))

    async def what_if(self, asked: tuple[tuple[str, str], ...]) -> Comparison | NodesNeeded:
        """What changes would do, as (kind, text) pairs (``change_texts``).

        With a pair ``until-placed``, how many such nodes it takes until nobody waits for room.
        Raises ApiError, NoAdviceError; MistakenQuestionError for what cannot be tried.
        """
        try:
            changes = changes_in(pair for pair in asked if pair[0] != UNTIL_PLACED)
        except ChangeError as error:
            raise MistakenQuestionError(str(error)) from None
        like = dict(asked).get(UNTIL_PLACED, "")
        return await self._answered(asked, partial(_what_if, changes, like))

    def close(self) -> None:
        """End the other process, whatever it is at."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()

    async def _answered(self, question: Hashable, ask: Asked[T]) -> T:
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            known = self._known.pop(question, None)
            if known is None or loop.time() >= known[0] + KEPT_SECONDS:
                documents = await read_objects(self._client, _done_without)
                known = loop.time(), await asyncio.to_thread(self._ask, documents, ask)
            self._known[question] = known
            while len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
            answer: T = known[1]
            return answer

    def _ask(self, documents: Sequence[Document], ask: Asked[T]) -> T:
        fresh = multiprocessing.get_context("spawn")
        answers, answering = fresh.Pipe(duplex=False)
        asked = (answering, documents, self._configuration, time.time(), ask)
        self._process = fresh.Process(target=_answer, args=asked, daemon=True)
        self._process.start()
        answering.close()
        try:
            if not answers.poll(PATIENCE_SECONDS):
                raise NoAdviceError(f"the simulation took longer than {PATIENCE_SECONDS:.0f} s")
            mistake, found = answers.recv()
        except EOFError:
            raise NoAdviceError("the simulation ended without an answer") from None
        finally:
            self.close()
            self._process.join()
            answers.close()
        if mistake:
            raise MistakenQuestionError(mistake)
        answer: T = found
        return answer


@contextmanager
def advised(probes: Probes, client: Client, configuration: Configuration) -> Iterator[Probes]:
    """The same probes, which also tell what would help and what would happen."""
    advisor = Advisor(client, configuration)
    source = replace(probes.source, advise=advisor.suggestions, what_if=advisor.what_if)
    try:
        yield replace(probes, source=source)
    finally:
        advisor.close()


def _done_without(_kind: object) -> None:
    """A kind that may not be read is left out, as the scheduler does."""


def _answer(
    answering: Connection,
    documents: Sequence[Document],
    configuration: Configuration,
    now: float,
    ask: Asked[object],
) -> None:
    try:
        answering.send(("", ask(documents, configuration, now)))
    except ChangeError as error:
        answering.send((str(error), None))


def _suggestions(
    gang: str, documents: Sequence[Document], configuration: Configuration, now: float
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


def _what_if(
    changes: Sequence[Change],
    until_placed: str,
    documents: Sequence[Document],
    configuration: Configuration,
    now: float,
) -> Comparison | NodesNeeded:
    if not until_placed:
        return what_if(documents, changes, configuration, now=now)
    return nodes_needed(documents, changes, configuration, like=until_placed, now=now)
