"""The history of shares, kept where the next leader reads it.

It is an annotation of a Lease of its own, beside the one that is led by: the scheduler's account
may write Leases of its namespace and no ConfigMaps. What is kept is bounded in bytes; of a longer
history every second sample is left out, as in memory.
"""

import asyncio
import base64
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kai_py.observe.share_history import ShareHistory, ShareSample
from kai_py.watch.client import Client
from kai_py.watch.elector import LEASES
from kai_py.watch.errors import ApiError, NotFound

log = logging.getLogger(__name__)

ANNOTATION = "scheduling.kai.io/share-history"
NAME_SUFFIX = "-history"
SAVE_SECONDS = 60.0
CALL_SECONDS = 5.0
MAX_BYTES = 192 * 1024
"""Of the annotation; all annotations of an object have 256 KiB."""
MAX_EXPANDED = 64 * 1024 * 1024
MAX_KEPT = 120


@dataclass(frozen=True)
class KeptShares:
    """The history ``shares``, kept in the Lease ``name`` of a namespace."""

    client: Client
    namespace: str
    name: str
    shares: ShareHistory

    async def run(self) -> None:
        """Take over what an earlier leader kept, then keep the history until cancelled."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._recall()
        except (ApiError, TimeoutError) as error:
            log.info("the history of shares is not known: %s", error or "no answer")
        try:
            while True:
                await asyncio.sleep(SAVE_SECONDS)
                await self._save()
        finally:
            await self._save()

    async def _recall(self) -> None:
        try:
            lease = await self.client.get(LEASES, self.name, namespace=self.namespace)
        except NotFound:
            return
        text = lease.metadata.annotations.get(ANNOTATION, "")
        self.shares.recall(await asyncio.to_thread(unpacked, text) if text else ())

    async def _save(self) -> None:
        text = await asyncio.to_thread(packed, self.shares.samples)
        annotations = {"metadata": {"annotations": {ANNOTATION: text}}}
        try:
            async with asyncio.timeout(CALL_SECONDS):
                try:
                    await self.client.patch(
                        LEASES, self.name, annotations, namespace=self.namespace
                    )
                except NotFound:
                    annotations["metadata"]["name"] = self.name  # type: ignore[assignment]
                    await self.client.create(LEASES, annotations, namespace=self.namespace)
        except (ApiError, TimeoutError) as error:
            log.info("the history of shares could not be kept: %s", error or "no answer")


def packed(samples: Sequence[ShareSample]) -> str:
    """Samples as text of at most ``MAX_BYTES``."""
    kept = list(samples)
    while len(kept) > MAX_KEPT:
        kept = _every_second(kept)
    while kept:
        text = base64.b64encode(zlib.compress(msgspec.json.encode(kept))).decode()
        if len(text) <= MAX_BYTES:
            return text
        kept = _every_second(kept)
    return ""


def _every_second(samples: list[ShareSample]) -> list[ShareSample]:
    """Half of the samples, the last one among them; none of one."""
    return samples[1::2] if len(samples) % 2 == 0 else samples[2::2]


def unpacked(text: str) -> tuple[ShareSample, ...]:
    """The samples of a text; none if it is not one that ``packed`` made."""
    try:
        expanded = zlib.decompressobj().decompress(base64.b64decode(text), MAX_EXPANDED)
        return msgspec.json.decode(expanded, type=tuple[ShareSample, ...])
    except (ValueError, zlib.error, msgspec.MsgspecError):
        log.info("the history of shares that is kept is not readable")
        return ()
