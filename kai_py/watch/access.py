"""Cache of the current credentials for one API server.

They are renewed each minute, because tokens of service accounts are rotated on disk, and loaded
again after the server has refused them. Reading blocks (files, exec plugins), so it happens in a
thread. While credentials cannot be renewed the last ones are kept: they may still be valid.
"""

import asyncio
import logging
import time

from kai_py.watch.credentials import Credentials, ServerAccess
from kai_py.watch.errors import CredentialsError

RENEW_SECONDS = 60.0
RELOAD_SECONDS = 5.0
"""After refusals the credentials are loaded at most this often.

Otherwise a server that refuses everything would make us run an exec plugin in a loop.
"""

logger = logging.getLogger(__name__)


class AccessCache:
    """The current access to one server."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._lock = asyncio.Lock()
        self._access: ServerAccess | None = None
        self._renew_at = 0.0
        self._reload_at = 0.0

    async def current(self) -> ServerAccess:
        """The access to use; raises CredentialsError if there never was one."""
        if self._access is not None and time.monotonic() < self._renew_at:
            return self._access
        async with self._lock:
            access = self._access
            if access is None:
                return self._store(await asyncio.to_thread(self._credentials.load))
            if time.monotonic() >= self._renew_at:
                return self._store(await self._renewed(access))
            return access

    async def reload(self) -> bool:
        """Load the credentials again after a refusal; True if another attempt is worthwhile."""
        refused = self._access
        async with self._lock:
            # Another call has reloaded them while this one waited for the lock.
            if self._access != refused:
                return True
            if time.monotonic() < self._reload_at:
                return False
            self._reload_at = time.monotonic() + RELOAD_SECONDS
            try:
                self._store(await asyncio.to_thread(self._credentials.load))
            except CredentialsError as error:
                logger.warning("credentials were rejected and cannot be read again: %s", error)
            return self._access != refused

    async def _renewed(self, last: ServerAccess) -> ServerAccess:
        try:
            return await asyncio.to_thread(self._credentials.renew)
        except CredentialsError as error:
            logger.warning("keeping the last credentials: %s", error)
            return last

    def _store(self, access: ServerAccess) -> ServerAccess:
        self._access = access
        self._renew_at = time.monotonic() + RENEW_SECONDS
        return access
