"""Text that a leader saves for its successor.

It is an annotation of a Lease of its own, beside the one that is led by: the scheduler's account
may write Leases of its namespace and no ConfigMaps.
"""

import asyncio
import base64
import logging
import zlib
from contextlib import suppress
from dataclasses import dataclass

from kai_py.watch.client import Client
from kai_py.watch.elector import LEASES
from kai_py.watch.errors import AlreadyExists, ApiError, NotFound

log = logging.getLogger(__name__)

NAME_SUFFIX = "-history"
CALL_SECONDS = 5.0
MAX_EXPANDED = 64 * 1024 * 1024


@dataclass(frozen=True)
class KeptText:
    """An ``annotation`` of the Lease ``name`` of a namespace; ``what`` it is, for people."""

    client: Client
    namespace: str
    name: str
    annotation: str
    what: str

    async def read(self) -> str:
        """The text; empty if there is none, or it cannot be read."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                lease = await self.client.get(LEASES, self.name, namespace=self.namespace)
        except NotFound:
            return ""
        except (ApiError, TimeoutError) as error:
            log.info("%s could not be read: %s", self.what, error or "no answer")
            return ""
        return lease.metadata.annotations.get(self.annotation, "")

    async def write(self, text: str) -> bool:
        """Keep the text; returns whether it is kept."""
        body = {"metadata": {"annotations": {self.annotation: text}}}
        try:
            async with asyncio.timeout(CALL_SECONDS):
                try:
                    await self._patch(body)
                except NotFound:
                    new = {"metadata": {**body["metadata"], "name": self.name}}
                    with suppress(AlreadyExists):
                        await self.client.create(LEASES, new, namespace=self.namespace)
                        return True
                    await self._patch(body)
        except (ApiError, TimeoutError) as error:
            log.info("%s could not be saved: %s", self.what, error or "no answer")
            return False
        return True

    async def _patch(self, body: dict[str, dict[str, dict[str, str]]]) -> None:
        await self.client.patch(LEASES, self.name, body, namespace=self.namespace)


def compressed(data: bytes) -> str:
    """``data`` as short text."""
    return base64.b64encode(zlib.compress(data)).decode()


def expanded(text: str) -> bytes:
    """The data of a text that ``compressed`` made.

    Raises ValueError or zlib.error for another text. Of what expands beyond all measure the rest is
    missing.
    """
    return zlib.decompressobj().decompress(base64.b64decode(text), MAX_EXPANDED)
