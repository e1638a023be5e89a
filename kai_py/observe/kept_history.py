"""History that a leader keeps for its successor: shares of queues, and failed starts of gangs.

They are annotations of a Lease of their own, beside the one that is led by: the scheduler's account
may write Leases of its namespace and no ConfigMaps. What is kept is bounded in bytes:

    shares         allocated GPUs and fair shares of the queues over time; of a longer history
                   every second sample is left out, as in memory
    failed starts  with the nodes and devices avoided for them; if they are too many, the times
                   since when gangs are not ready are left out first, then the oldest attempts

A new leader reads the failed starts before its first cycle: otherwise it would start gangs that are
held back.

A sample of the shares is taken at most once per interval. When there are ``MAX_SAMPLES`` every
second one is dropped and the interval doubles: memory is bounded, and the whole time stays in view.
"""

import asyncio
import base64
import logging
import math
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.times import CLOCK_STEP
from kai_py.plan.plan import Plan
from kai_py.plan.session.startups import StartupRecord
from kai_py.snapshot.accounting import GPU
from kai_py.watch.client import Client
from kai_py.watch.elector import LEASES
from kai_py.watch.errors import AlreadyExists, ApiError, NotFound

FIRST_INTERVAL = 1.0
MAX_SAMPLES = 360


class ShareSample(Struct, frozen=True):
    """GPUs by queue at ``time``, in seconds since the epoch."""

    time: float
    allocated: dict[str, float]
    fair_share: dict[str, float]


class ShareHistory:
    """The samples, oldest first; ``interval`` in seconds."""

    def __init__(self) -> None:
        self.interval = FIRST_INTERVAL
        self._samples: list[ShareSample] = []
        self._newest: ShareSample | None = None

    @property
    def samples(self) -> tuple[ShareSample, ...]:
        """The samples kept, and the newest whether or not it is kept."""
        newest = self._newest
        # The newest sample may be the last kept one.
        extra = () if newest is None or newest in self._samples[-1:] else (newest,)
        return (*self._samples, *extra)

    def recall(self, samples: Sequence[ShareSample]) -> None:
        """Put the samples of earlier leaders, oldest first, before all others."""
        first = self._samples[0].time if self._samples else math.inf
        earlier = [sample for sample in samples if sample.time < first]
        self._samples = [*earlier, *self._samples]
        if len(earlier) > 1:
            widest = (earlier[-1].time - earlier[0].time) / (len(earlier) - 1)
            while self.interval < widest / 2:
                self.interval *= 2
        self._thin_out()

    def record(self, plan: Plan, now: float) -> None:
        """Take a sample if one is due."""
        sample = ShareSample(
            time=now,
            allocated={share.queue: share.allocated.get(GPU, 0.0) for share in plan.queues},
            fair_share={share.queue: share.fair_share.get(GPU, 0.0) for share in plan.queues},
        )
        self._newest = sample
        while self._samples and self._samples[-1].time > now + CLOCK_STEP:
            self._samples.pop()  # of a clock that has been set back
        if self._samples and now - self._samples[-1].time < self.interval:
            return
        self._samples.append(sample)
        self._thin_out()

    def _thin_out(self) -> None:
        while len(self._samples) >= MAX_SAMPLES:
            self._samples = self._samples[::2]
            self.interval *= 2


log = logging.getLogger(__name__)

NAME_SUFFIX = "-history"
CALL_SECONDS = 5.0
MAX_EXPANDED = 64 * 1024 * 1024
SHARES_ANNOTATION = "scheduling.kai.io/share-history"
STARTUPS_ANNOTATION = "scheduling.kai.io/failed-starts"
SHARES = "the history of shares"
STARTUPS = "the record of gangs that did not get ready"
SAVE_SHARES_SECONDS = 60.0
SAVE_STARTUPS_PAUSE = 2.0
"""Seconds between two writes of failed starts, which are written a moment after they change."""
MAX_SHARES_BYTES, MAX_STARTUPS_BYTES = 192 * 1024, 48 * 1024
"""The largest values of the annotations; all annotations of an object have 256 KiB."""
MAX_SAMPLES_KEPT = 120


class KeptText(Struct, frozen=True):
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
        """Write the text; returns whether that succeeded."""
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


class KeptShares(Struct, frozen=True):
    """The history ``shares``, and where it is kept."""

    text: KeptText
    shares: ShareHistory

    async def run(self) -> None:
        """Take over what an earlier leader kept, then keep the history until cancelled."""
        text = await self.text.read()
        self.shares.recall(await asyncio.to_thread(unpacked_shares, text) if text else ())
        try:
            while True:
                await asyncio.sleep(SAVE_SHARES_SECONDS)
                await self._save()
        finally:
            await self._save()

    async def _save(self) -> None:
        await self.text.write(await asyncio.to_thread(packed_shares, self.shares.samples))


def packed_shares(samples: Sequence[ShareSample]) -> str:
    """Samples as text of at most ``MAX_SHARES_BYTES``."""
    kept = list(samples)
    while len(kept) > MAX_SAMPLES_KEPT:
        kept = _every_second(kept)
    while kept:
        text = _compressed(msgspec.json.encode(kept))
        if len(text) <= MAX_SHARES_BYTES:
            return text
        kept = _every_second(kept)
    return ""


def _every_second(samples: list[ShareSample]) -> list[ShareSample]:
    """Half of the samples, the last one among them; none of one."""
    return samples[1::2] if len(samples) % 2 == 0 else samples[2::2]


def unpacked_shares(text: str) -> tuple[ShareSample, ...]:
    """The samples of a text; none if it is not one that ``packed_shares`` made."""
    try:
        return msgspec.json.decode(_expanded(text), type=tuple[ShareSample, ...])
    except (ValueError, zlib.error, msgspec.MsgspecError):
        log.info("the saved history of shares is not readable")
        return ()


@dataclass
class KeptStartups:
    """Where the record of failed starts is kept, and its last state."""

    text: KeptText
    record: StartupRecord = field(default_factory=StartupRecord)
    _written: StartupRecord = field(default_factory=StartupRecord)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def recall(self) -> StartupRecord:
        """The history that an earlier leader kept."""
        self.record = self._written = unpacked_startups(await self.text.read())
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
                await asyncio.sleep(SAVE_STARTUPS_PAUSE)
        finally:
            await self._save()

    async def _save(self) -> None:
        record = self.record
        if record == self._written:
            return
        if await self.text.write(await asyncio.to_thread(packed_startups, record)):
            self._written = record
        else:
            self._changed.set()


def packed_startups(record: StartupRecord) -> str:
    """The record as text of at most ``MAX_STARTUPS_BYTES``."""
    attempts = sorted(record.attempts.items(), key=lambda item: item[1].failed)
    kept = record
    while True:
        text = _compressed(msgspec.msgpack.encode(kept))
        if len(text) <= MAX_STARTUPS_BYTES:
            return text
        if kept.since:
            kept = replace(kept, since={})
        elif attempts:
            attempts = attempts[(len(attempts) + 1) // 2 :]
            kept = replace(kept, attempts=dict(attempts))
        else:
            return ""


def unpacked_startups(text: str) -> StartupRecord:
    """The record of a text; an empty one if it is not one that ``packed_startups`` made."""
    if not text:
        return StartupRecord()
    try:
        return msgspec.msgpack.decode(_expanded(text), type=StartupRecord)
    except (ValueError, zlib.error, msgspec.MsgspecError):
        log.info("%s is not readable", STARTUPS)
        return StartupRecord()


def kept_history(
    client: Client, namespace: str, lease: str, shares: ShareHistory
) -> tuple[KeptShares, KeptStartups]:
    """Where ``shares`` and failed starts are kept: beside the ``lease`` that is led by."""
    place = client, namespace, f"{lease}{NAME_SUFFIX}"
    return (
        KeptShares(KeptText(*place, SHARES_ANNOTATION, SHARES), shares),
        KeptStartups(KeptText(*place, STARTUPS_ANNOTATION, STARTUPS)),
    )


def _compressed(data: bytes) -> str:
    """``data`` as short text."""
    return base64.b64encode(zlib.compress(data)).decode()


def _expanded(text: str) -> bytes:
    """The data of a text that ``_compressed`` made; raises ValueError or zlib.error for another.

    At most ``MAX_EXPANDED`` bytes: the rest of a text that expands to more is missing.
    """
    return zlib.decompressobj().decompress(base64.b64decode(text), MAX_EXPANDED)
