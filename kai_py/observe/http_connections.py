"""A limit for open connections, so that no client can take the memory of the scheduler.

Metrics and probes need no token: a client that opens connections and sends or reads nothing would
otherwise hold an answer each. Where there are too many the oldest is closed: probes are answered.
"""

import asyncio

from aiohttp import web

MAX_CONNECTIONS = 512
KEEP_ALIVE_SECONDS = 75.0
"""How long a connection without requests stays open."""


class LimitedServer:
    """Makes the protocol of each new connection, as ``server`` does."""

    def __init__(self, server: web.Server) -> None:
        """``server``: knows the open connections, the oldest first."""
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a connection that is accepted now."""
        connections = self._server.connections
        for each in connections[: len(connections) + 1 - MAX_CONNECTIONS]:
            # Not ``close``, which waits until the client has read all.
            if each.transport is not None:
                each.transport.abort()
        return self._server()
