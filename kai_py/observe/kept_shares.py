"""The history of shares, kept for the next leader.

What is kept is bounded in bytes; of a longer history every second sample is left out, as in memory.
"""

import asyncio
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kai_py.observe.kept_text import KeptText, compressed, expanded
from kai_py.observe.share_history import ShareHistory, ShareSample

log = logging.getLogger(__name__)

ANNOTATION = "scheduling.kai.io/share-history"
WHAT = "the history of shares"
SAVE_SECONDS = 60.0
MAX_BYTES = 192 * 1024
"""Of the annotation; all annotations of an object have 256 KiB."""
MAX_KEPT = 120


@dataclass(frozen=True)
class KeptShares:
    """The history ``shares``, and where it is kept."""

    text: KeptText
    shares: ShareHistory

    async def run(self) -> None:
        """Take over what an earlier leader kept, then keep the history until cancelled."""
        text = await self.text.read()
        self.shares.recall(await asyncio.to_thread(unpacked, text) if text else ())
        try:
            while True:
                await asyncio.sleep(SAVE_SECONDS)
                await self._save()
        finally:
            await self._save()

    async def _save(self) -> None:
        await self.text.write(await asyncio.to_thread(packed, self.shares.samples))


def packed(samples: Sequence[ShareSample]) -> str:
    """Samples as text of at most ``MAX_BYTES``."""
    kept = list(samples)
    while len(kept) > MAX_KEPT:
        kept = _every_second(kept)
    while kept:
        text = compressed(msgspec.json.encode(kept))
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
        return msgspec.json.decode(expanded(text), type=tuple[ShareSample, ...])
    except (ValueError, zlib.error, msgspec.MsgspecError):
        log.info("the saved history of shares is not readable")
        return ()
