"""How much may be under way at a time for one reader with limited rights, and for all readers.

Simulations are made one after another, each takes up to two minutes, and they are finished also
after their readers have left; streams stay open. Without a limit a reader who asks again and again
keeps all others waiting.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from kai_py.observe.http_answers import READER
from kai_py.observe.http_explanations import OnFound, Suggest
from kai_py.observe.suggestion import NoAnswerError, SuggestionSearch


class ReaderLimits:
    """What is under way, by reader."""

    def __init__(self, what: str, most: int, most_of_reader: int) -> None:
        """``what``: the noun for messages, in the plural."""
        self._what, self._most, self._most_of_reader = what, most, most_of_reader
        self._counts: Counter[str] = Counter()

    @contextmanager
    def counted(self, request: web.Request) -> Iterator[None]:
        """Count ``request`` during the block; raises NoAnswerError where there are too many."""
        known = request.get(READER)
        reader = "" if known is None else known.name
        if self._counts.total() >= self._most:
            raise NoAnswerError(f"there are {self._most} {self._what} already: ask again later")
        if reader and self._counts[reader] >= self._most_of_reader:
            raise NoAnswerError(f"you have {self._most_of_reader} {self._what} already")
        self._counts[reader] += 1
        try:
            yield
        finally:
            self._counts[reader] -= 1
            if not self._counts[reader]:
                del self._counts[reader]

    def limited(self, search: Suggest | None, request: web.Request) -> Suggest | None:
        """The search for suggestions, as far as the reader of ``request`` may ask for it."""
        if search is None:
            return None

        async def ask(gang: str, on_found: OnFound) -> SuggestionSearch:
            with self.counted(request):
                return await search(gang, on_found)

        return ask
