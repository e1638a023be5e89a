"""Writer of the objects that report on plans, outside the scheduling cycle.

An object that is up to date is not written. Each object is written at most once per interval, and
all of them at a bounded rate, with those that have waited longest first. If a report changes while
it waits, only its newest form is written. A cycle only records the new reports.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.settings import CommitSettings
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, Conflict, NotFound
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Identified, Key, Kind, Resource

log = logging.getLogger(__name__)

MIN_INTERVAL_SECONDS = 0.5
"""Least time from the end of one pass over all objects to the next."""
MAX_WRITES_PER_PASS = 20

Report = TypeVar("Report")
ReportedObject = TypeVar("ReportedObject", bound=Identified)
Patch = Callable[[Report, ReportedObject, datetime], dict[str, Any] | None]
"""The merge patch that brings an object in line with a report; None if it is."""


@dataclass(frozen=True)
class ReportedKind(Generic[Report, ReportedObject]):
    """A kind whose objects report on plans: where it is served, its objects, how to write them.

    ``patch`` returns the merge patch of the ``subresource`` (empty: of the object), None where it
    is up to date. It must be the same for equal reports on an object that did not change.
    ``on_written`` is called with a report that was written, and the object as it was before.
    """

    served: Callable[[], Resource[ReportedObject] | None]
    find: Callable[[Key], ReportedObject | None]
    patch: Patch[Report, ReportedObject]
    on_written: Callable[[Report, ReportedObject], None] = lambda _report, _known: None
    subresource: str = "status"


class ReportWriter(Generic[Report, ReportedObject]):
    """Reconciles the objects of one kind with the last reports; ``interval`` in seconds."""

    def __init__(
        self,
        client: Client,
        kind: ReportedKind[Report, ReportedObject],
        *,
        interval: float,
        backoff: ObjectBackoff,
    ) -> None:
        self._client = client
        self._kind = kind
        self._interval = interval
        self._backoff = backoff
        self._reports: Callable[[], Mapping[Key, Report]] = dict
        self._changed = asyncio.Event()
        self._not_before: dict[Key, float] = {}
        self._up_to_date: dict[Key, tuple[Report, str]] = {}

    def update(self, reports: Callable[[], Mapping[Key, Report]]) -> None:
        """Record a function that returns the reports by key; it is called when they are written."""
        self._reports = reports
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._changed.clear()
            pause = await self._write_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if math.isfinite(pause) else None):
                    await self._changed.wait()
            # Not part of the timeout above: a change must not start another pass at once.
            await asyncio.sleep(MIN_INTERVAL_SECONDS)

    async def _write_due(self) -> float:
        """Write to the objects that are due; returns the seconds until there are more."""
        resource = self._kind.served()
        if resource is None:
            return math.inf
        now = asyncio.get_running_loop().time()
        outdated = self._outdated()
        due = [entry for entry in outdated if entry[0] <= now]
        for _, key, report, known in due[:MAX_WRITES_PER_PASS]:
            await self._write_report(resource, key, report, known)
        if len(due) > MAX_WRITES_PER_PASS:
            return 0.0
        waiting = [at - now for at, *_ in outdated if at > now]
        retried = [
            self._not_before[k] - now for _, k, r, o in due if not self._is_up_to_date(k, r, o)
        ]
        return min((*waiting, *retried), default=math.inf)

    def _outdated(self) -> list[tuple[float, Key, Report, ReportedObject]]:
        """Objects that may differ from their reports, by the time they may be written."""
        reports = self._reports()
        self._forget_others(reports)
        found = [
            (self._not_before.get(key, 0.0), key, report, known)
            for key, report in reports.items()
            if (known := self._kind.find(key)) is not None
            and not self._is_up_to_date(key, report, known)
        ]
        return sorted(found, key=lambda entry: entry[0])

    def _is_up_to_date(self, key: Key, report: Report, known: ReportedObject) -> bool:
        return self._up_to_date.get(key) == (report, known.metadata.resource_version)

    async def _write_report(
        self, resource: Resource[ReportedObject], key: Key, report: Report, known: ReportedObject
    ) -> None:
        loop, (namespace, name) = asyncio.get_running_loop(), key
        qualified_name = f"{namespace}/{name}" if namespace else name
        pause, label = self._interval, f"{resource.kind.name} {qualified_name}"
        patch = self._patch(report, known, label)
        if patch is None:
            self._up_to_date[key] = (report, known.metadata.resource_version)
            return
        try:
            await self._client.patch(
                resource, name, patch, namespace=namespace, subresource=self._kind.subresource
            )
        except (Conflict, NotFound) as error:
            log.debug("cannot write the status of %s: %s", label, error)
        except ApiError as error:
            log.warning("cannot write the status of %s: %s", label, error)
            pause = max(pause, self._backoff.record_failure(label, loop.time()))
        else:
            self._backoff.reset(label)
            self._kind.on_written(report, known)
        self._not_before[key] = loop.time() + pause

    def _patch(self, report: Report, known: ReportedObject, label: str) -> dict[str, Any] | None:
        """The patch; None also where it cannot be computed, until the report or object changes."""
        try:
            return self._kind.patch(report, known, self._client.machine.utc_now())
        except Exception:
            log.exception("the status of %s cannot be computed; others are written", label)
            return None

    def _forget_others(self, keys: Mapping[Key, object]) -> None:
        for gone in [key for key in (*self._not_before, *self._up_to_date) if key not in keys]:
            self._not_before.pop(gone, None)
            self._up_to_date.pop(gone, None)


def report_writer(
    client: Client,
    mirror: Mirror,
    settings: CommitSettings,
    kind: Kind[ReportedObject],
    patch: Patch[Report, ReportedObject],
    *,
    subresource: str = "status",
) -> ReportWriter[Report, ReportedObject]:
    """A writer for a kind from the mirror; one that is not served costs nothing."""
    return ReportWriter(
        client,
        ReportedKind(
            served=lambda: mirror.served(kind),
            find=mirror.objects(kind).get,
            patch=patch,
            subresource=subresource,
        ),
        interval=settings.queue_status_interval,
        backoff=ObjectBackoff(settings.backoff),
    )
