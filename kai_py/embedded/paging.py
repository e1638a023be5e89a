"""Paging of lists on one consistent state.

The remainder of a list is kept under its continue token. Objects are never changed in place, so
keeping references is a consistent snapshot. Old remainders are dropped and then answered with 410.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kai_py.embedded.errors import expired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai_py.embedded.documents import Json

MAX_REMAINDERS = 256


@dataclass(frozen=True)
class Page:
    """Part of a list: its objects, the revision of the whole list, the continue token."""

    items: Sequence[Json]
    revision: int
    token: str = ""
    remaining: int = 0


class Pager:
    """The remainders of lists that clients may still request."""

    def __init__(self) -> None:
        self._remainders: OrderedDict[str, tuple[int, Sequence[Json]]] = OrderedDict()
        self._issued = 0

    def first(self, items: Sequence[Json], revision: int, limit: int | None) -> Page:
        """Return the first page of a new list."""
        return self._page(items, revision, limit)

    def next(self, token: str, limit: int | None, *, compacted_through: int) -> Page:
        """Return the page of a token; raise RequestError 410 when it is no longer kept."""
        revision, items = self._remainders.get(token, (0, ()))
        if not items or revision < compacted_through:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        return self._page(items, revision, limit)

    def _page(self, items: Sequence[Json], revision: int, limit: int | None) -> Page:
        if not limit or len(items) <= limit:
            return Page(items, revision)
        self._issued += 1
        token = base64.urlsafe_b64encode(f"{revision}/{self._issued}".encode()).decode()
        self._remainders[token] = (revision, items[limit:])
        if len(self._remainders) > MAX_REMAINDERS:
            # Oldest first; a client that comes back for it gets 410 and lists again.
            self._remainders.popitem(last=False)
        return Page(items[:limit], revision, token, len(items) - limit)
