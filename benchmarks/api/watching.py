"""When was each pod created and when bound, as a client of the API sees it?"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from tests.support.cluster.api import Api

PODS = "/api/v1/namespaces/default/pods"


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Event(msgspec.Struct, frozen=True):
    object: _Pod


@dataclass
class Seen:
    """Seconds of a steady clock by namespace and name of a pod."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def all_bound(self, count: int, *, within: float) -> None:
        """Wait until ``count`` pods are bound."""
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(lambda: len(self.bound) >= count)

    @property
    def first_created(self) -> float:
        """When the first pod was seen."""
        return min(self.created.values())

    @property
    def first_bound(self) -> float:
        """When the first binding was seen."""
        return min(self.bound.values())

    @property
    def last_bound(self) -> float:
        """When the last binding was seen."""
        return max(self.bound.values())

    async def follow(self, api: Api, revision: str, path: str) -> None:
        """Note what happens to the pods of a path from a revision on.

        The server ends a watch whose client is too busy to read; the next one goes on from there.
        """
        decoder = msgspec.json.Decoder(_Event)
        while True:
            async for line in api.watch(path, resourceVersion=revision):
                pod = decoder.decode(line).object
                revision = pod.metadata.resource_version
                await self._note(pod)

    async def _note(self, pod: _Pod) -> None:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        now = time.perf_counter()
        self.created.setdefault(name, now)
        if pod.spec.node_name and name not in self.bound:
            self.bound[name] = now
            async with self._changed:
                self._changed.notify_all()


@asynccontextmanager
async def watching(api: Api, path: str = PODS) -> AsyncIterator[Seen]:
    """Watch the pods of a path for the duration of the block."""
    listed = await api.get(path, limit="1")
    seen = Seen()
    task = asyncio.create_task(seen.follow(api, listed["metadata"]["resourceVersion"], path))
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
