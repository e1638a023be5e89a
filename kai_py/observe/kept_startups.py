"""Failed starts of gangs, and the nodes and devices blamed for them, kept for the next leader.

A new leader reads them before its first cycle: otherwise it would start gangs that are held back.
They are written a moment after they change. What is kept is bounded in bytes: if it is too much,
the times since when gangs are not ready are left out first, then the oldest attempts.
"""

import asyncio
import logging
import zlib
from dataclasses import dataclass, field, replace

import msgspec

from kai_py.observe.kept_text import KeptText, compressed, expanded
from kai_py.plan.session.startups import StartupRecord

log = logging.getLogger(__name__)

ANNOTATION = "scheduling.kai.io/failed-starts"
WHAT = "the record of gangs that did not get ready"
PAUSE_SECONDS = 2.0
MAX_BYTES = 48 * 1024
"""Of the annotation, beside the history of shares."""


@dataclass
class KeptStartups:
    """Where the record is kept, and its last state."""

    text: KeptText
    record: StartupRecord = field(default_factory=StartupRecord)
    _written: StartupRecord = field(default_factory=StartupRecord)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def recall(self) -> StartupRecord:
        """What an earlier leader kept."""
        self.record = self._written = unpacked(await self.text.read())
        return self.record

    def note(self, record: StartupRecord) -> None:
        """Have this written soon, if it is new."""
        if record != self.record:
            self.record = record
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled; what could not be written is tried again."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._save()
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await self._save()

    async def _save(self) -> None:
        record = self.record
        if record == self._written:
            return
        if await self.text.write(await asyncio.to_thread(packed, record)):
            self._written = record
        else:
            self._changed.set()


def packed(record: StartupRecord) -> str:
    """The record as text of at most ``MAX_BYTES``."""
    attempts = sorted(record.attempts.items(), key=lambda item: item[1].failed)
    kept = record
    while True:
        text = compressed(msgspec.msgpack.encode(kept))
        if len(text) <= MAX_BYTES:
            return text
        if kept.since:
            kept = replace(kept, since={})
        elif attempts:
            attempts = attempts[(len(attempts) + 1) // 2 :]
            kept = replace(kept, attempts=dict(attempts))
        else:
            return ""


def unpacked(text: str) -> StartupRecord:
    """The record of a text; an empty one if it is not one that ``packed`` made."""
    if not text:
        return StartupRecord()
    try:
        return msgspec.msgpack.decode(expanded(text), type=StartupRecord)
    except (ValueError, zlib.error, msgspec.MsgspecError):
        log.info("%s is not readable", WHAT)
        return StartupRecord()
