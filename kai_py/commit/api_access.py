"""API access shared by the writers of this package: client, served resources, concurrency limit.

The limit bounds the calls under way at once. Bindings and claims share one; statuses and events
have limits of their own, so that reporting never delays scheduling.

Namespaces share a limit, so that none can take all of it. Calls about one namespace may hang: a
webhook for its objects does not answer, and the API server waits for it for up to 30 s. With one
limit for all, such calls would soon be the only ones under way, and nothing would be bound anywhere
else. Here a namespace may take another slot only while it has fewer than ``SHARE`` times as many as
are free: one alone gets as many as the limit says, and leaves some for others; the next one gets
most of these, and so on. Namespaces take turns; the calls of one are made in their order.
O(namespaces that wait) per call.

Source: A. Choudhury, E. Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.retry import RetryPolicy, retry_transient
from kai_py.watch.client import Client, PatchType
from kai_py.watch.errors import ApiError, Invalid, is_absent
from kai_py.watch.resource import Identified, Resource

SHARE = 3


class CallLimit:
    """At most ``limit`` calls of one namespace at a time, and a third more of all together."""

    def __init__(self, limit: int) -> None:
        """``limit``: 1 or more; up to 2, nothing is kept for other namespaces."""
        self._limit = limit
        self._free = limit + limit // SHARE
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def locked(self) -> bool:
        """Whether as many calls are under way as one namespace may make."""
        return self._taken.total() >= self._limit

    @asynccontextmanager
    async def slot(self, namespace: str) -> AsyncIterator[None]:
        """A block that makes a call about ``namespace``."""
        await self._acquire(namespace)
        try:
            yield
        finally:
            self._release(namespace)

    def _may_take(self, namespace: str) -> bool:
        return self._taken[namespace] < SHARE * self._free

    def _take(self, namespace: str) -> None:
        self._free -= 1
        self._taken[namespace] += 1

    async def _acquire(self, namespace: str) -> None:
        if namespace not in self._waiting and self._may_take(namespace):
            self._take(namespace)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._give_up(namespace, turn)
            else:
                self._release(namespace)
            raise

    def _give_up(self, namespace: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(namespace, deque())
        with suppress(ValueError):  # its turn came after it was cancelled
            turns.remove(turn)
            if not turns:
                del self._waiting[namespace]

    def _release(self, namespace: str) -> None:
        self._free += 1
        self._taken[namespace] -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]
        while self._start_next():
            pass

    def _start_next(self) -> bool:
        """Start the next call that may be made; whether there is one."""
        for namespace in tuple(self._waiting):
            if not self._may_take(namespace):
                continue
            # Put back at the end, so that the next turn is another namespace's.
            turns = self._waiting.pop(namespace)
            turn = turns.popleft()
            if turns:
                self._waiting[namespace] = turns
            if not turn.cancelled():
                self._take(namespace)
                turn.set_result(None)
            return True
        return False


FindPod = Callable[[PodRef], Pod | None]
"""A pod from the mirror; None when it is deleted or was recreated."""
Result = TypeVar("Result")


class ApiAccess(Struct, frozen=True):
    """Calls under one concurrency limit; ``retry`` applies to each object by itself.

    ``settle_pause``: the waits between reads that are repeated until one of them succeeds.
    ``namespace``: of calls that name none. ``served_claims``: at which version claims are served
    now, which changes when the control plane is upgraded.
    """

    client: Client
    pods: Resource[Pod]
    served_claims: Callable[[], Resource[ResourceClaim]]
    limiter: CallLimit
    retry: RetryPolicy
    settle_pause: RetryPolicy
    namespace: str = ""

    @property
    def claims(self) -> Resource[ResourceClaim]:
        """Where claims are read and written."""
        return self.served_claims()

    def about(self, namespace: str) -> "ApiAccess":
        """The same access, for calls about one namespace."""
        return replace(self, namespace=namespace)

    async def call(
        self, request: Callable[[], Awaitable[Result]], namespace: str | None = None
    ) -> Result:
        """Make one call within the limit; about ``namespace``, that of the access by default."""
        async with self.limiter.slot(self.namespace if namespace is None else namespace):
            return await request()

    async def read_claim(self, claim: ClaimRef) -> ResourceClaim:
        """Read a claim, repeating transient failures; raises ApiError."""
        return await retry_transient(
            lambda: self.call(
                lambda: self.client.get(self.claims, claim.name, namespace=claim.namespace),
                claim.namespace,
            ),
            self.retry,
        )

    async def read_pod(self, pod: PodRef) -> Pod:
        """Read a pod, repeating transient failures; raises ApiError."""
        return await retry_transient(
            lambda: self.call(
                lambda: self.client.get(self.pods, pod.name, namespace=pod.namespace),
                pod.namespace,
            ),
            self.retry,
        )

    async def patch_pod(
        self,
        pod: PodRef,
        body: dict[str, Any],
        *,
        subresource: str = "",
        patch_type: PatchType = PatchType.MERGE,
    ) -> Pod:
        """Patch a pod within the limit; raises ApiError, see ``is_gone``.

        ``body`` names the pod's uid, so that no other pod of its name is changed.
        """
        return await self.call(
            lambda: self.client.patch(
                self.pods,
                pod.name,
                body,
                namespace=pod.namespace,
                subresource=subresource,
                patch_type=patch_type,
            ),
            pod.namespace,
        )


def is_gone(error: ApiError, name: str) -> bool:
    """Whether a patch of ``name`` with a uid failed because that incarnation exists no more.

    A uid in a patch is no precondition but a change of an immutable field: 422, not 409.
    """
    if isinstance(error, Invalid):
        return any(cause.field == "metadata.uid" for cause in error.causes)
    return is_absent(error, name)


def preconditions(known: Identified) -> dict[str, str]:
    """Metadata for a patch that the API server refuses (409) if the object has changed."""
    return {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version}
