"""Calls through aiohttp: watches, and calls through a proxy or with a password in the URL.

It is apart from ``http_transport.py`` because aiohttp takes long to import, and commands that read
a cluster once need none of these calls.
"""

import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

import aiohttp
from yarl import URL

from kai_py.watch.connections import connect_failure, keep_alive
from kai_py.watch.credentials import ServerAccess
from kai_py.watch.errors import StatusError, TimedOut, Unreachable, from_response
from kai_py.watch.transport import METHODS, USER_AGENT, ApiCall


class AiohttpCalls:
    """A pool of ``connections``; 0 means no limit. To be made in a running event loop."""

    def __init__(self, connections: int) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
        )

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()

    async def request(
        self, call: ApiCall, access: ServerAccess, idle: float | None = None
    ) -> aiohttp.ClientResponse:
        """Make a call; gives the answer without its body. Raises TimedOut or Unreachable."""
        headers = {"Accept": call.accept, **call.headers}
        if access.authorization:
            headers["Authorization"] = access.authorization
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        # Not requoted: the path must reach the server unchanged.
        url = URL(access.server + call.path, encoded=True)
        with _translated_errors(call):
            return await self._session.request(
                METHODS[call.verb],
                url.with_query(call.parameters) if call.parameters else url,
                data=call.body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_read=idle),
                ssl=access.tls or True,
                server_hostname=access.server_name or None,
                proxy=access.proxy or None,
                # Never follow a redirect with our credentials.
                allow_redirects=False,
            )


async def read_chunks(
    call: ApiCall, response: aiohttp.ClientResponse
) -> AsyncGenerator[bytes, None]:
    """The body as it comes; raises TimedOut or Unreachable."""
    with _translated_errors(call):
        async for chunk in response.content.iter_any():
            yield chunk


async def read_body(call: ApiCall, response: aiohttp.ClientResponse) -> bytes:
    """The whole body; raises TimedOut or Unreachable."""
    with _translated_errors(call):
        return await response.read()


async def read_failure(call: ApiCall, response: aiohttp.ClientResponse) -> StatusError:
    """What the server says in an answer that is no success; raises TimedOut or Unreachable."""
    body = await read_body(call, response)
    return from_response(str(call), response.status, body, response.headers)


@contextmanager
def _translated_errors(call: ApiCall) -> Iterator[None]:
    """Errors of aiohttp and the socket as ours; others as they are."""
    try:
        yield
    except TimeoutError as error:
        raise TimedOut(f"{call}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"{call}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The reason of an error, without the objects that aiohttp puts into its texts."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return connect_failure(f"{error.host}:{error.port}", error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return connect_failure(f"{error.host}:{error.port}", error.os_error)
    return str(error) or type(error).__name__


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    result = socket.socket(family, kind, protocol)
    keep_alive(result)
    return result
