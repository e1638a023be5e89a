"""Recorder for events (events.k8s.io/v1): without repetitions, at a bounded rate.

The same note on the same object for the same reason is written once. A token bucket of its own and
a bounded queue keep a storm of events from delaying anything else. Events that do not fit, or that
the server does not take, are dropped and counted, because an event is a hint: conditions and
statuses are the truth. A lost event is written when it is reported again; while the server fails,
fewer and fewer are tried. Bindings come first: while as many are under way as allowed, events wait,
for some seconds.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from kai_py.api.queue import API_VERSION
from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata
from kai_py.api.references import ClaimRef
from kai_py.api.workload_names import without_queue_list
from kai_py.commit.retry import TRANSIENT, RetryPolicy
from kai_py.grouping.gang import Owner
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, RoleMissing
from kai_py.watch.resource import define_kind

log = logging.getLogger(__name__)

EVENTS = define_kind(PartialObjectMetadata, "Event", "events", "v1", group="events.k8s.io").at()
MAX_NOTE = 1024
MAX_REMEMBERED = 50_000
MAX_QUEUED = 10_000
DEFER_SECONDS = 10.0
"""The longest wait for bindings to become fewer."""
DEFER_POLL_SECONDS = 0.1


class EventType(StrEnum):
    """Severity of an event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Event(Struct, frozen=True):
    """One event on an object; ``note`` is a sentence of at most 1,024 bytes.

    ``details`` hold the same for programs, by the keys of ``kai_py.commit.event_writer``.
    """

    regarding: Owner
    reason: str
    action: str
    note: str
    type: EventType = EventType.NORMAL
    details: Mapping[str, str] = field(default_factory=dict)


def claim_reference(claim: ClaimRef) -> Owner:
    """Reference to a ResourceClaim, for an event."""
    return Owner(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
    )


def queue_reference(metadata: ObjectMeta) -> Owner:
    """Reference to a Queue, for an event."""
    return Owner(
        api_version=API_VERSION,
        kind="Queue",
        namespace="",
        name=metadata.name,
        uid=metadata.uid,
    )


def event_body(
    event: Event, *, reporter: str, instance: str, now: datetime, token: str
) -> dict[str, Any]:
    """The object to create; events on cluster-scoped objects go to the namespace ``default``.

    ``token`` tells it from other events on the same object.
    """
    note = event.note.encode()[:MAX_NOTE].decode(errors="ignore")
    return {
        "metadata": {
            "name": f"{event.regarding.name[:200].rstrip('.-')}.{token}",
            "namespace": event.regarding.namespace or "default",
            "annotations": {key: text for key, text in event.details.items() if text},
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": reporter,
        "reportingInstance": instance[:128],
        "type": event.type.value,
        "reason": event.reason,
        "action": event.action,
        "note": note,
        "regarding": _reference(event.regarding),
    }


def _key(event: Event) -> tuple[str, str]:
    return event.regarding.uid, event.reason


def _reference(owner: Owner) -> dict[str, str]:
    fields = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "namespace": owner.namespace,
        "name": owner.name,
        "uid": owner.uid,
    }
    return {field: text for field, text in fields.items() if text}


class TokenBucket:
    """A rate limit of ``rate`` per second in the long run and ``burst`` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled = 0.0

    def delay(self, now: float) -> float:
        """Take a token at ``now`` (seconds, any origin); returns the seconds to wait for it."""
        refill = (now - self._filled) * self._rate
        # May go below zero: a token may be taken in advance and is then waited for.
        self._tokens = min(self._burst, self._tokens + refill) - 1.0
        self._filled = now
        return max(0.0, -self._tokens / self._rate)


class EventRecorder:
    """Queues events and writes them one after the other; ``record`` never blocks."""

    def __init__(
        self,
        client: Client,
        bucket: TokenBucket,
        *,
        reporter: str,
        instance: str,
        on_dropped: Callable[[], None],
        retry: RetryPolicy,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """``retry``: the waits after events that a failing server did not take.

        ``busy``: whether as many bindings are under way as may be.
        """
        self._busy = busy
        self._busy_since: float | None = None
        self._client = client
        self._retry = retry
        self._bucket = bucket
        self._reporter = reporter
        self._instance = instance
        self._on_dropped = on_dropped
        self._queue: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUED)
        self._last_notes: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._warned = False

    def record(self, event: Event) -> None:
        """Queue an event, unless its note was the last on this object for this reason.

        A list of queues does not count: each one that comes or goes would repeat all such events.
        """
        key, note = _key(event), without_queue_list(event.note)
        if self._last_notes.get(key) == note:
            return
        self._last_notes[key] = note
        self._last_notes.move_to_end(key)
        if len(self._last_notes) > MAX_REMEMBERED:
            self._last_notes.popitem(last=False)
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            del self._last_notes[key]
            self._on_dropped()

    async def run(self) -> None:
        """Write events until cancelled."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            event = await self._queue.get()
            await self._let_bindings_pass()
            await asyncio.sleep(self._bucket.delay(loop.time()))
            failure = await self._write(event)
            self._queue.task_done()
            failures = 0 if failure is None else failures + 1
            if failure is not None:
                await self._retry.sleep(failures, failure)

    async def _let_bindings_pass(self) -> None:
        """Wait while bindings wait for their turn, unless they have done so for too long."""
        loop = asyncio.get_running_loop()
        while self._busy():
            self._busy_since = since = self._busy_since or loop.time()
            if loop.time() >= since + DEFER_SECONDS:
                return
            await asyncio.sleep(DEFER_POLL_SECONDS)
        self._busy_since = None

    async def drain(self, within: float) -> None:
        """Wait until all queued events are written, at most ``within`` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._queue.join()
        except TimeoutError:
            log.info("%d events were not written in time", self._queue.qsize())

    async def _write(self, event: Event) -> ApiError | None:
        """Write one event; returns a failure that says nothing about the event itself."""
        body = event_body(
            event,
            reporter=self._reporter,
            instance=self._instance,
            now=self._client.machine.utc_now(),
            token=self._client.machine.token(),
        )
        try:
            await self._client.create(EVENTS, body, namespace=body["metadata"]["namespace"])
        except ApiError as error:
            self._on_dropped()
            is_new = isinstance(error, RoleMissing) and not self._warned
            self._warned = self._warned or is_new
            level = logging.WARNING if is_new else logging.DEBUG
            log.log(level, "event %s on %s: %s", event.reason, event.regarding.name, error)
            if not isinstance(error, TRANSIENT):
                return None
            if self._last_notes.get(_key(event)) == without_queue_list(event.note):
                del self._last_notes[_key(event)]
            return error
        self._warned = False
        return None
