"""Suggestions and what-if questions about the scheduled cluster, answered in another process.

A simulation takes seconds of one core, and memory; in this process it would delay the cycles. The
other process is started for a question and ends with its answer, one at a time. Answers are cached
for ``CACHE_SECONDS``, so that repeated questions cost nothing. After ``SEARCH_SECONDS`` the search
for suggestions ends with those found so far; any answer that takes longer than ``TIMEOUT_SECONDS``
is abandoned.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec.structs import replace

from kai_py.api.choices import Subject
from kai_py.api.sent_objects import decode_objects
from kai_py.config import Configuration
from kai_py.observe.http import Probes
from kai_py.observe.suggestion import (
    InvalidQuestionError,
    NoAnswerError,
    Suggestion,
    SuggestionSearch,
)
from kai_py.simulate.change_texts import parse_changes
from kai_py.simulate.changes import AddObjects, ChangeError, ClusterChange
from kai_py.simulate.explained_cluster import SearchReport, explain_cluster
from kai_py.simulate.files.objects import Document, read_objects
from kai_py.simulate.what_if import Comparison, NodesNeeded, nodes_needed, what_if
from kai_py.watch.client import Client

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

log = logging.getLogger(__name__)

CACHE_SECONDS = 60.0
SEARCH_SECONDS = 30.0
TIMEOUT_SECONDS = 120.0
SIMULATION_NICENESS = 10
UNTIL_PLACED, ADD = "until-placed", "add"
T = TypeVar("T")
OnPartial: TypeAlias = Callable[[object], None]
Query: TypeAlias = Callable[[Sequence[Document], Configuration, float, OnPartial], T]
"""A query about a cluster, its configuration and the time; it is pickled for the other process.

It may report parts of its answer.
"""


def _ignore_partial(_part: object) -> None:
    """Wait for the whole answer."""


class Advisor:
    """Answers queries about one cluster; ``close`` ends the other process."""

    def __init__(self, client: Client, configuration: Configuration) -> None:
        """Nothing is read and no process is started before the first query."""
        self._client = client
        self._configuration = configuration
        self._lock = asyncio.Lock()
        self._cache: dict[Hashable, tuple[float, Any]] = {}
        self._process: SpawnProcess | None = None
        self._is_closed = False

    async def suggestions(
        self, gang: str, on_found: Callable[[Suggestion], None] = lambda _: None
    ) -> SuggestionSearch:
        """Changes with which ``gang`` would start; raises ApiError, NoAnswerError.

        Each is passed to ``on_found`` as it is found; where the search ends without an answer,
        those found before are the answer.
        """
        found: list[Suggestion] = []
        loop = asyncio.get_running_loop()

        def on_partial(suggestion: object) -> None:
            assert isinstance(suggestion, Suggestion)
            found.append(suggestion)
            loop.call_soon_threadsafe(on_found, suggestion)

        try:
            return await self._cached_answer(gang, partial(_suggestions, gang), on_partial)
        except NoAnswerError as error:
            if not found:
                raise
            log.warning("the search for suggestions for %s ended early: %s", gang, error)
            return SuggestionSearch(tuple(found), is_finished=False)

    async def what_if(self, asked: tuple[tuple[str, str], ...]) -> Comparison | NodesNeeded:
        """The effect of changes, given as (kind, text) pairs (``change_texts``).

        With a pair ``until-placed``: how many such nodes it takes until no gang waits for capacity.
        Raises ApiError, NoAnswerError; InvalidQuestionError for changes that cannot be made.
        """
        try:
            added = [AddObjects(decode_objects(text)) for kind, text in asked if kind == ADD]
            known = (pair for pair in asked if pair[0] not in (UNTIL_PLACED, ADD))
            changes = (*parse_changes(known), *added)
        except ValueError as error:  # ChangeError too
            raise InvalidQuestionError(str(error)) from None
        like = dict(asked).get(UNTIL_PLACED, "")
        return await self._cached_answer(asked, partial(_what_if, changes, like))

    def close(self) -> None:
        """Answer no more queries, and end the one that is being answered."""
        self._is_closed = True
        self._kill_process()

    def _kill_process(self) -> None:
        """Kill the other process, if it runs, and the simulations that it has forked."""
        process = self._process
        if process is None or process.pid is None or not process.is_alive():
            return
        # Just after its start it does not lead a group yet.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()

    async def _cached_answer(
        self, question: Hashable, query: Query[T], on_partial: OnPartial = _ignore_partial
    ) -> T:
        async with self._lock:
            loop = asyncio.get_running_loop()
            cached = self._cache.pop(question, None)
            if cached is None or loop.time() >= cached[0] + CACHE_SECONDS:
                documents = await read_objects(self._client, _ignore_refused)
                cached = (
                    loop.time(),
                    await asyncio.to_thread(self._run_in_process, documents, query, on_partial),
                )
            # Re-inserted at the end: the least recently used entries are dropped below.
            # Answers can be large, and those of earlier minutes are no answers any more.
            oldest = loop.time() - CACHE_SECONDS
            self._cache = {asked: kept for asked, kept in self._cache.items() if kept[0] > oldest}
            self._cache[question] = cached
            answer: T = cached[1]
            return answer

    def _run_in_process(
        self, documents: Sequence[Document], query: Query[T], on_partial: OnPartial
    ) -> T:
        spawn = multiprocessing.get_context("spawn")
        receiver, sender = spawn.Pipe(duplex=False)
        arguments = (sender, documents, self._configuration, time.time(), query)
        self._process = spawn.Process(target=_run_query, args=arguments, daemon=True)
        self._process.start()
        sender.close()
        try:
            # While it is being started, which takes seconds, ``close`` can't kill it.
            if self._is_closed:
                raise NoAnswerError("the scheduler has been stopped")
            end = time.monotonic() + TIMEOUT_SECONDS
            while True:
                if not receiver.poll(max(end - time.monotonic(), 0.0)):
                    raise NoAnswerError(f"the simulation took longer than {TIMEOUT_SECONDS:.0f} s")
                is_partial, mistake, failure, result = receiver.recv()
                if not is_partial:
                    break
                on_partial(result)
        except EOFError:
            raise NoAnswerError("the simulation ended without a result") from None
        finally:
            self._kill_process()
            self._process.join()
            receiver.close()
        if mistake:
            raise InvalidQuestionError(mistake)
        if failure:
            fields = {"exception": failure}
            log.error("a simulation failed; please report it", extra={"fields": fields})
            raise NoAnswerError(f"the simulation failed: {failure.splitlines()[-1]}")
        answer: T = result
        return answer


@contextmanager
def with_advisor(probes: Probes, client: Client, configuration: Configuration) -> Iterator[Probes]:
    """The probes, with suggestions and what-if answers."""
    advisor = Advisor(client, configuration)
    source = replace(probes.source, suggest=advisor.suggestions, what_if=advisor.what_if)
    try:
        yield replace(probes, source=source)
    finally:
        advisor.close()


def _ignore_refused(_kind: object) -> None:
    """Leave out a kind that may not be read, as the scheduler does."""


def _run_query(
    connection: Connection,
    documents: Sequence[Document],
    configuration: Configuration,
    now: float,
    query: Query[object],
) -> None:
    """Send parts of the answer as they come, and at last what was wrong, or the answer.

    In a process group of its own, with a priority below that of the scheduler.
    """
    os.setpgid(0, 0)
    os.nice(SIMULATION_NICENESS)
    with suppress(BrokenPipeError):  # the parent process has ended
        try:
            answer = query(
                documents, configuration, now, lambda part: connection.send((True, "", "", part))
            )
            connection.send((False, "", "", answer))
        except ChangeError as error:
            connection.send((False, str(error), "", None))
        except Exception:  # the parent process logs it
            connection.send((False, "", traceback.format_exc(), None))


def _suggestions(
    gang: str,
    documents: Sequence[Document],
    configuration: Configuration,
    now: float,
    on_partial: OnPartial,
) -> SuggestionSearch:
    end = time.monotonic() + SEARCH_SECONDS
    found = explain_cluster(
        documents,
        configuration,
        now=now,
        subject=Subject.GANG,
        name=gang,
        has_time=lambda: time.monotonic() < end,
        report=SearchReport(on_found=lambda _gang, suggestion: on_partial(suggestion)),
    )
    if not found:
        return SuggestionSearch(())
    return SuggestionSearch(found[0].suggestions, not found[0].is_search_unfinished)


def _what_if(
    changes: Sequence[ClusterChange],
    until_placed: str,
    documents: Sequence[Document],
    configuration: Configuration,
    now: float,
    _on_partial: OnPartial,
) -> Comparison | NodesNeeded:
    if not until_placed:
        return what_if(documents, changes, configuration, now=now)
    return nodes_needed(documents, changes, configuration, like=until_placed, now=now)
