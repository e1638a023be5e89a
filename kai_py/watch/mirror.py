"""Mirror of the cluster: one dict per kind, kept equal to the server's objects.

Each served kind has a reflector of its own that runs, waits and fails by itself. Discovery is
repeated every half minute and whenever a collection turns out to be missing: CRDs come and go while
we run. A kind that is not served is empty. So is one that we may not read, once the server has
refused it for a while from the start, or whose group does not answer then; only required kinds are
waited for. A kind that was read before keeps its objects when it is refused, and grows stale.

Listeners are called synchronously, in the order in which changes were received (per kind), in the
event loop that runs the mirror. After the first sync the mirrored objects are moved out of the
garbage collector's sight: they are frozen and acyclic, and walking them would only cost time. From
then on, the process keeps memory that it has freed (``machine``).
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct

from kai_py.watch.client import Client
from kai_py.watch.collection import Collection, OnChange, Rejected
from kai_py.watch.discovery import DiscoveryLog, Served, discover
from kai_py.watch.errors import ApiError, NotFound
from kai_py.watch.kinds import WATCHED
from kai_py.watch.machine import Backoff, keep_freed_memory
from kai_py.watch.reflector import SILENCE_SECONDS, Reflector
from kai_py.watch.resource import Key, Kind, Resource, T

DISCOVERY_SECONDS = 30.0
REFUSAL_SECONDS = 5.0
"""Least time before a refusal counts: a starting server refuses everything for a moment."""
UNANSWERED_SECONDS = 30.0
"""For so long at the start the groups of optional kinds are waited for that do not answer."""
FROZEN_AT_ONCE = 1000
"""Objects of the first lists after which these are frozen: no collection walks them again."""
GC_THRESHOLDS = (50_000, 50, 100)

logger = logging.getLogger(__name__)


class KindStatus(Struct, frozen=True):
    """State of the mirroring of one kind."""

    kind: str
    api_version: str
    """The version it is read at, empty if the server does not serve it."""
    synced: bool
    objects: int
    age: float
    """Seconds since the last contact with the server; at most about a minute while all is well."""
    problem: str
    """Why the last attempt failed, empty while all is well."""
    rejected: tuple[Rejected, ...]
    """Objects that could not be decoded and are left out."""
    required: bool = False
    """Whether the scheduler waits until it has been read."""
    missing_permission: str = ""
    """``permission`` while listing and watching are forbidden."""
    permission: str = ""
    """Resource and group as roles name them; no two kinds have the same."""
    listed_after: float = SILENCE_SECONDS
    """Seconds without contact after which the kind is listed."""


class Progress(Struct, frozen=True):
    """How far the view of a kind has come; times on the event loop's clock.

    ``last``: the last event, bookmark or list; ``listed``: the start of the last complete list;
    ``unseen_since``: the oldest write of ours that is not shown, None without. ``version``: the
    newest resourceVersion that was applied. ``refused``: reading the kind is forbidden by now.
    """

    last: float
    listed: float
    unseen_since: float | None
    version: str = ""
    refused: bool = False


class OnRefused(Protocol):
    """Listener for kinds that we may not read, and that can be read after all."""

    def __call__(self, kind: Kind[Any], *, refused: bool) -> None:
        """Called at every change."""


def _ignore(kind: Kind[Any], *, refused: bool) -> None:
    del kind, refused


class Mirror:
    """The mirrored cluster; ``run`` it in one task, read and subscribe in the same event loop."""

    def __init__(
        self,
        client: Client,
        kinds: Sequence[Kind[Any]] = WATCHED,
        *,
        on_refused: OnRefused = _ignore,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        """``silence``: seconds after which a silent watch is closed and the kind listed."""
        self._silence = silence
        self._client = client
        self._on_refused = on_refused
        self._refused: dict[Kind[Any], None] = {}
        self._collections = {kind: Collection(kind, self._notify) for kind in kinds}
        self._listeners: dict[Kind[Any], list[OnChange]] = {kind: [] for kind in kinds}
        self._global_listeners: list[OnChange] = []
        self._followed: dict[Kind[Any], None] = {}
        self._served: Served = {}
        self._reflectors: dict[Kind[Any], Reflector[Any]] = {}
        self._tasks: dict[Kind[Any], asyncio.Task[None]] = {}
        self._absence_backoffs = {kind: self._new_backoff() for kind in kinds}
        self._taken_in = 0
        self._discovered_since: float | None = None
        self._unanswered: Mapping[Kind[Any], str] = {}
        self._discovery_log = DiscoveryLog(kinds)
        self._problem = "not connected yet"
        self._discovery_backoff = self._new_backoff()
        self._rediscover = asyncio.Event()
        self._synced = asyncio.Event()
        for kind in kinds:
            client.own_writes.follow(kind)

    def objects(self, kind: Kind[T]) -> Mapping[Key, T]:
        """The live, read-only view of a kind, keyed by (namespace, name)."""
        return MappingProxyType(self._collections[kind].objects)

    def served(self, kind: Kind[T]) -> Resource[T] | None:
        """The resource at which a kind is served, None if it is not (or not yet known to be)."""
        return self._served.get(kind)

    def subscribe(self, listener: OnChange, *kinds: Kind[Any]) -> None:
        """Pass a listener the known objects, as additions, and from then on every change.

        Without ``kinds`` it is called for all kinds. It must be quick and must not raise.
        """
        if not kinds:
            self._global_listeners.append(listener)
        for kind in kinds or tuple(self._collections):
            for record in self._collections[kind].objects.values():
                listener(kind, None, record)
            self._listeners[kind].append(listener)

    def follow(self, kind: Kind[Any]) -> None:
        """Mirror one more kind from now on, also for the listeners to all kinds.

        It never counts towards ``synced``: the mirror was complete without it.
        """
        self._collections[kind] = Collection(kind, self._notify)
        self._listeners[kind] = list(self._global_listeners)
        self._absence_backoffs[kind] = self._new_backoff()
        self._followed[kind] = None
        self._rediscover.set()

    def unfollow(self, kind: Kind[Any]) -> None:
        """Stop mirroring a followed kind; its objects are reported as deleted."""
        self._stop(kind)
        self._collections[kind].replace({})
        del self._collections[kind], self._listeners[kind], self._absence_backoffs[kind]
        del self._followed[kind]

    def has_read(self, kind: Kind[Any]) -> bool:
        """Whether a kind has been read completely."""
        reflector = self._reflectors.get(kind)
        return reflector is not None and reflector.synced

    @property
    def synced(self) -> bool:
        """Whether every served kind has been read completely, or is optional and refused."""
        return self._has_answers() and all(
            item.synced or (kind in self._refused and not kind.required)
            for kind, item in self._reflectors.items()
            if kind not in self._followed
        )

    async def wait_synced(self) -> None:
        """Wait until ``synced``."""
        await self._synced.wait()

    def status(self) -> tuple[KindStatus, ...]:
        """The state of every kind."""
        return tuple(self._status(kind) for kind in self._collections)

    def status_of_unreadable(self) -> Iterator[KindStatus]:
        """The state of the kinds of which objects cannot be read."""
        return (self._status(kind) for kind, held in self._collections.items() if held.rejected)

    def progress(self, kinds: Iterable[Kind[Any]]) -> Iterator[tuple[Kind[Any], Progress]]:
        """The progress of those of ``kinds`` that have been read."""
        for kind in kinds:
            reflector = self._reflectors.get(kind)
            if reflector is None or not reflector.seen_version:
                continue
            unseen = self._client.own_writes.unseen_since(
                kind, reflector.seen_version, reflector.listed
            )
            yield (
                kind,
                Progress(
                    reflector.last_progress,
                    reflector.listed,
                    unseen,
                    reflector.seen_version,
                    _is_forbidden(reflector),
                ),
            )

    async def run(self) -> None:
        """Keep the mirror equal to the server until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_freeze_memory_when_synced(self._synced))
                while True:
                    await self._discover()
                    self._follow_served(group)
                    await self._next_discovery()
        finally:
            self._reflectors.clear()
            self._tasks.clear()

    async def _discover(self) -> None:
        self._rediscover.clear()
        try:
            found = await discover(self._client, self._collections, self._served)
        except ApiError as error:
            self._problem = f"discovery: {error}"
            logger.warning("cannot discover the served kinds: %s", error)
            return
        self._served, self._unanswered = found.served, found.unanswered
        if self._discovered_since is None:
            self._discovered_since = asyncio.get_running_loop().time()
        self._discovery_log.tell(found)
        self._problem = ""
        if self._has_answers():
            self._discovery_backoff.reset()

    def _has_answers(self) -> bool:
        """Whether it is known which kinds are served, or optional ones were waited for."""
        if self._discovered_since is None:
            return False
        waiting = [kind for kind in self._unanswered if kind not in self._followed]
        waited = asyncio.get_running_loop().time() - self._discovered_since
        return not any(kind.required or waited < UNANSWERED_SECONDS for kind in waiting)

    def _follow_served(self, group: asyncio.TaskGroup) -> None:
        for kind in self._collections:
            resource = self._served.get(kind)
            reflector = self._reflectors.get(kind)
            if resource is None:
                self._stop(kind)
            # The task has ended after a 404, and now the kind is served again.
            elif reflector is None or self._tasks[kind].done():
                self._start(group, resource)
            elif reflector.resource.version != resource.version:
                self._tasks[kind].cancel()
                self._start(group, resource)
        self._update_synced()

    def _start(self, group: asyncio.TaskGroup, resource: Resource[Any]) -> None:
        kind = resource.kind
        reflector = Reflector(
            self._client.transport,
            resource,
            self._collections[kind],
            on_synced=self._update_synced,
            on_refused=self._update_synced,
            silence=self._silence,
            uniform=self._client.machine.uniform,
        )
        before = self._reflectors.get(kind)
        if before is not None:
            # Its objects are still those that the reflector before it has read.
            reflector.last_progress, reflector.listed = before.last_progress, before.listed
            reflector.seen_version = before.seen_version
        self._reflectors[kind] = reflector
        self._tasks[kind] = group.create_task(self._reflect(reflector), name=f"watch {kind.name}")

    def _new_backoff(self) -> Backoff:
        return Backoff(self._client.machine.uniform)

    def _stop(self, kind: Kind[Any]) -> None:
        if kind not in self._reflectors:
            return
        logger.info("%s is not served any more", kind.name)
        self._tasks.pop(kind).cancel()
        del self._reflectors[kind]
        self._set_refused(kind, refused=False)
        self._collections[kind].replace({})

    async def _reflect(self, reflector: Reflector[Any]) -> None:
        """Run a reflector; when its collection is missing, repeat discovery, with backoff."""
        try:
            await reflector.run()
        except NotFound as error:
            reflector.problem = str(error)
            await asyncio.sleep(self._absence_backoffs[reflector.resource.kind].next())
            self._rediscover.set()

    async def _next_discovery(self) -> None:
        delay = DISCOVERY_SECONDS if self._has_answers() else self._discovery_backoff.next()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._rediscover.wait()

    def _update_synced(self) -> None:
        for kind, reflector in self._reflectors.items():
            if reflector.synced:
                self._absence_backoffs[kind].reset()
            self._set_refused(kind, refused=_is_refused(reflector))
        if self.synced:
            self._synced.set()

    def _set_refused(self, kind: Kind[Any], *, refused: bool) -> None:
        if refused == (kind in self._refused):
            return
        if refused:
            self._refused[kind] = None
            consequence = "required for scheduling" if kind.required else "continuing without it"
            template = "%s %s: the permission to list and watch it is missing"
            logger.warning(template, consequence, kind.permission)
        else:
            del self._refused[kind]
        self._on_refused(kind, refused=refused)

    def _notify(self, kind: Kind[Any], old: Any, new: Any) -> None:
        for listener in self._listeners[kind]:
            listener(kind, old, new)
        self._taken_in += 1
        if self._taken_in % FROZEN_AT_ONCE == 0 and not self._synced.is_set():
            gc.freeze()

    def _status(self, kind: Kind[Any]) -> KindStatus:
        collection = self._collections[kind]
        resource = self._served.get(kind)
        reflector = self._reflectors.get(kind)
        now = asyncio.get_running_loop().time()
        return KindStatus(
            kind=kind.name,
            api_version=resource.api_version if resource else "",
            synced=reflector.synced if reflector else self._is_absent(kind),
            objects=len(collection.objects),
            age=now - reflector.last_contact if reflector else 0.0,
            problem=reflector.problem if reflector else self._unanswered.get(kind, self._problem),
            rejected=tuple(collection.rejected.values()),
            required=kind.required,
            missing_permission=kind.permission if _is_forbidden(reflector) else "",
            permission=kind.permission,
            listed_after=self._silence,
        )

    def _is_absent(self, kind: Kind[Any]) -> bool:
        """Whether a kind without a reflector is known not to be served."""
        return self._discovered_since is not None and kind not in self._unanswered


def _is_refused(reflector: Reflector[Any]) -> bool:
    """Whether a kind was never read, as that is forbidden."""
    return not reflector.synced and _is_forbidden(reflector)


def _is_forbidden(reflector: Reflector[Any] | None) -> bool:
    return reflector is not None and reflector.refused_for >= REFUSAL_SECONDS


def freeze_memory() -> None:
    """Exclude all present objects from garbage collection, and collect less often from now on.

    Memory that is freed from now on is kept.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    keep_freed_memory()


async def _freeze_memory_when_synced(synced: asyncio.Event) -> None:
    await synced.wait()
    freeze_memory()
