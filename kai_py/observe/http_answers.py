"""Shared by the routes of the HTTP API: JSON answers, values in queries, and the reader."""

from collections.abc import Collection, Mapping
from typing import Protocol

from aiohttp import web

from kai_py.api.texts import printable
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.visibility import Visibility
from kai_py.watch.errors import ApiError

MAX_DIGITS = 15
MAX_NAMESPACE = 63


class Reader(Protocol):
    """A reader whose rights say what it sees; see ``TenantReader``."""

    @property
    def name(self) -> str:
        """Whom all its questions come from."""

    async def visibility(self, view: ClusterView, asked: Collection[str] = ()) -> Visibility | None:
        """The part of ``view`` that the reader may see; None: all of it. Raises ApiError."""


READER = web.RequestKey("reader", Reader)
"""The reader of a request that may not see everything."""


async def visible_to_reader(
    request: web.Request, view: ClusterView, asked: Collection[str] = ()
) -> Visibility | None:
    """The part that the reader may see; None: everything. Raises HTTPServiceUnavailable.

    ``asked``: namespaces in question, beside those of the query's ``namespace``.
    """
    reader: Reader | None = request.get(READER)
    if reader is None:
        return None
    named = (each[:MAX_NAMESPACE] for each in request.query.getall("namespace", ()))
    try:
        return await reader.visibility(view, tuple(filter(None, (*asked, *named))))
    except ApiError:
        raise web.HTTPServiceUnavailable(
            text="the API server could not review what you may see\n"
        ) from None


def parse_integer(text: str) -> int:
    """A whole number of a query; raises HTTPBadRequest for any other text and for a huge one."""
    if not (text.isascii() and text.isdecimal()) or len(text) > MAX_DIGITS:
        shown = printable(text[:40]) + ("…" if len(text) > 40 else "")
        problem = f'expected a whole number of at most {MAX_DIGITS} digits, not "{shown}"'
        raise web.HTTPBadRequest(text=f"{problem}\n")
    return int(text)


def parse_flag(query: Mapping[str, str], name: str, *, default: bool = True) -> bool:
    """Whether a query says true; raises HTTPBadRequest for texts other than true and false."""
    if name not in query:
        return default
    text = query[name]
    if text not in ("true", "false"):
        shown = printable(text[:40])
        raise web.HTTPBadRequest(text=f'{name} must be true or false, not "{shown}"\n')
    return text == "true"


def json_response(
    request: web.Request, body: bytes, headers: dict[str, str] | None = None
) -> web.Response:
    """A JSON answer, compressed if the reader takes that."""
    response = web.Response(
        body=body,
        content_type="application/json",
        headers={"Cache-Control": "no-cache", **(headers or {})},
    )
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        response.enable_compression(web.ContentCoding.gzip)
    return response
