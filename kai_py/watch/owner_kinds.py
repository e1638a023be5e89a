"""Watches further kinds on demand, because objects of them own pods of ours.

A kind is requested when a pod turns out to need it. It is looked for in all groups and versions
that the server serves; one that is not served, or that we may not read, is reported so and looked
for again every minute. One that disappears while it is followed is looked for again. Only the
metadata of a kind is read, unless ``decoder`` returns a decoder for it.

Cost: a call per group that is asked for, and one per kind that is found, once; then its watch.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from kai_py.grouping.owner_chain import GroupKind
from kai_py.watch.client import Client
from kai_py.watch.discovery import ServedApis, find_kind
from kai_py.watch.errors import ApiError, Forbidden, NotFound
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Decode, Kind

RETRY_SECONDS = 60.0
UNREACHABLE_SECONDS = 2.0
SETTLING_SECONDS = 0.02

logger = logging.getLogger(__name__)

Decoder = Callable[[GroupKind], Decode[Any] | None]
"""The decoder for objects of a kind, None where metadata is enough."""


class OnReadable(Protocol):
    """Listener for whether objects of a kind can be read."""

    def __call__(self, kind: GroupKind, *, readable: bool) -> None:
        """Called at every change."""


class OwnerKindWatcher:
    """Follows kinds of owners on demand; ``run`` it beside the mirror."""

    def __init__(
        self, client: Client, mirror: Mirror, decoder: Decoder, on_readable: OnReadable
    ) -> None:
        self._client = client
        self._mirror = mirror
        self._decoder = decoder
        self._on_readable = on_readable
        self._wanted: dict[GroupKind, None] = {}
        self._refused: dict[GroupKind, None] = {}
        self._reasons: dict[GroupKind, str] = {}
        """Why kinds could not be read when they were last looked for."""
        self._followed: dict[GroupKind, Kind[Any]] = {}
        self._served: dict[GroupKind, None] = {}
        self._wake = asyncio.Event()

    def want(self, kind: GroupKind) -> None:
        """Follow ``kind`` as soon as possible."""
        self._wanted[kind] = None
        self._wake.set()

    def drop(self, kind: GroupKind) -> None:
        """Do not look for ``kind`` any more unless it is followed: no pod needs it."""
        for kinds in (self._wanted, self._refused, self._reasons):
            kinds.pop(kind, None)

    @property
    def settled(self) -> bool:
        """Whether every requested kind has been read, or will not be."""
        read = all(self._mirror.has_read(kind) for kind in self._followed.values())
        return read and not self._wanted

    async def wait_settled(self, seconds: float) -> None:
        """Wait until settled, at most this long."""
        for _ in range(int(seconds / SETTLING_SECONDS)):
            if self.settled:
                return
            await asyncio.sleep(SETTLING_SECONDS)

    async def run(self) -> None:
        """Follow requested kinds until cancelled."""
        loop = asyncio.get_running_loop()
        looks_again = loop.time() + RETRY_SECONDS
        while True:
            self._wake.clear()
            await self._find_wanted()
            pause = UNREACHABLE_SECONDS if self._wanted else looks_again - loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.0)):
                    await self._wake.wait()
            # However often pods name new kinds in the meantime.
            if loop.time() >= looks_again:
                looks_again = loop.time() + RETRY_SECONDS
                self._drop_removed()
                self._wanted |= self._refused
                self._refused.clear()

    async def _find_wanted(self) -> None:
        """Look for the wanted kinds; of a group that does not answer, for one of them only."""
        silent: set[str] = set()
        apis = ServedApis(self._client)
        for kind in tuple(self._wanted):
            if kind.group not in silent and not await self._find(apis, kind):
                silent.add(kind.group)

    async def _find(self, apis: ServedApis, kind: GroupKind) -> bool:
        """Look for a kind; False if the server does not answer."""
        problem, found = "", None
        try:
            found = await find_kind(apis, kind, self._decoder(kind))
            if found is not None:
                await self._client.check_list(found.at())
        except (Forbidden, NotFound) as error:
            problem = str(error)
        except ApiError as error:
            logger.warning("cannot discover where %s is served: %s", kind, error)
            return False
        if kind not in self._wanted:
            return True  # it was dropped meanwhile
        if found is None or problem:
            self._refuse(kind, problem or "it is not served")
        else:
            self._follow(kind, found)
        return True

    def _follow(self, kind: GroupKind, found: Kind[Any]) -> None:
        logger.info("following %s: it owns pods of this scheduler", kind)
        self._wanted.pop(kind, None)
        self._reasons.pop(kind, None)
        self._followed[kind] = found
        self._mirror.follow(found)
        self._on_readable(kind, readable=True)

    def _refuse(self, kind: GroupKind, reason: str) -> None:
        # Pods may name any text as the kind of their owner, so the same reason is logged once.
        if self._reasons.get(kind) != reason:
            logger.info("%s owns pods of this scheduler but cannot be read: %s", kind, reason)
        self._wanted.pop(kind, None)
        self._refused[kind] = None
        self._reasons[kind] = reason
        self._on_readable(kind, readable=False)

    def _drop_removed(self) -> None:
        """Look again for kinds that are not served any more: they may return in another version."""
        for kind, followed in tuple(self._followed.items()):
            if self._mirror.served(followed) is not None:
                self._served[kind] = None
            elif kind in self._served:
                del self._served[kind], self._followed[kind]
                self._mirror.unfollow(followed)
                self._refuse(kind, "it is not served any more")
