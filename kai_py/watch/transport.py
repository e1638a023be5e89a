"""A call of the API, and what clients and reflectors need of the connection that makes it.

``http_transport.py`` is the one that talks HTTP. It is apart because it takes long to import, and
what plans objects in files makes no calls.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from kai_py import __version__
from kai_py.watch.wire import MAX_OBJECT_BYTES

FIELD_MANAGER = "kai-py"
"""The user agent's name, which the server records as our field manager in ``managedFields``."""
USER_AGENT = f"{FIELD_MANAGER}/{__version__}"
JSON = "application/json"
METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
CallObserver = Callable[[str, str, int, float, str], None]
"""Observer of calls: verb, kind (``Pod``, ``Pod/binding``), HTTP code, seconds, and what failed.

The code is 0 without an answer; only then is there a text of what failed.
"""


@dataclass(frozen=True)
class ApiCall:
    """One request, and the verb and kind under which it is counted."""

    verb: str
    kind: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further headers; they may hold a token, so they are in no text about the call."""
    max_bytes: float = MAX_OBJECT_BYTES
    """How much of an answer is read, unless it is a list: it could go on without end."""

    def __str__(self) -> str:
        return f"{METHODS[self.verb]} {self.path}"


class Transport(Protocol):
    """The connection that the client and the reflectors need."""

    async def send(self, call: ApiCall, *, timeout_seconds: float | None = None) -> bytes:
        """Make a call and return the body of the answer; raises ApiError."""

    def stream(
        self, call: ApiCall, *, idle: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch and yield its chunks; raises ApiError, TimedOut after ``idle`` seconds."""
