"""Statuses of queues: what a plan reports, and the writer that keeps them up to date.

The amounts are the plan's: the same accounting that decided what starts. They include everything
below the queue, and so do the pending gangs. The status is written as a merge patch of what
differs, under the resourceVersion it was compared with; conditions of other writers stay as they
are, and so does ``usage`` where none is recorded. Amounts are quantities; ``kai_resource_list`` has
them as KAI writes them, with GPUs as ``nvidia.com/gpu``.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from msgspec import Struct

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.api.quantity import NANO, Quantity, QuantityFormat
from kai_py.api.queue_status import PendingReason, QueueStatus, QueueStatusCondition, RecordedUsage
from kai_py.commit.api_access import preconditions
from kai_py.commit.retry import ObjectBackoff
from kai_py.commit.statuses.queue_conditions import QueueCondition, queue_conditions
from kai_py.commit.statuses.report_writer import ReportedKind, ReportWriter
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU
from kai_py.snapshot.tables.queue_objects import GPUS, eviction_status, in_api_units, usage_status
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, DEVICE_SELECTOR
from kai_py.watch.client import Client
from kai_py.watch.kinds import WatchedQueue
from kai_py.watch.resource import Resource

BYTES = ("memory", "ephemeral-storage")
NANOS_PER_MILLIONTH = NANO // 1_000_000


def quantity_of(name: str, amount: float) -> Quantity:
    """The quantity of an amount, rounded to millionths, never negative.

    Below that, sums of fractions are noise. Infinity becomes 0: a Quantity cannot express it.
    """
    millionths = round(amount * 1_000_000) if math.isfinite(amount) else 0
    form = QuantityFormat.BINARY_SI if name in BYTES else QuantityFormat.DECIMAL_SI
    return Quantity(max(millionths, 0) * NANOS_PER_MILLIONTH, form)


PODS = "pods"
DEVICES_BY_CLASS = (DEVICE_CLASS, DEVICE_ATTRIBUTE, DEVICE_SELECTOR)


def kai_resource_list(amounts: Mapping[str, float]) -> dict[str, str]:
    """Finite positive amounts by name, rounded to millionths.

    Devices by class are left out: KAI's statuses count GPUs, however they are requested. Nor do
    they count pods.
    """
    shown = in_api_units(
        {
            name: amount
            for name, amount in amounts.items()
            if name != PODS and not name.startswith(DEVICES_BY_CLASS)
        }
    )
    named = {GPU_RESOURCE if name == GPU else name: amount for name, amount in shown.items()}
    quantities = {name: quantity_of(name, named[name]) for name in sorted(named)}
    return {name: str(quantity) for name, quantity in quantities.items() if quantity}


USAGE_WRITE_SECONDS = 300.0
"""Least time between writes of past usage alone, which changes all the time."""
MAX_RESOURCES = 64


class QueueStatusReport(Struct, frozen=True):
    """A plan's report on a queue; equal reports need no new status."""

    share: QueueShare
    conditions: tuple[QueueCondition, ...]
    pending: tuple[PendingReason, ...]
    usage_period: int = 0
    """Changes once in ``USAGE_WRITE_SECONDS`` while past usage is recorded."""


def queue_reports(plan: Plan) -> tuple[QueueStatusReport, ...]:
    """A report for every queue of the plan, in its order. O((queues + pending gangs) x depth)."""
    shares = {share.queue: share for share in plan.queues}
    pending: dict[str, dict[str, PendingReason]] = {name: {} for name in shares}
    for unplaced in plan.unplaced:
        name = unplaced.queue
        while name in shares:
            _count_pending(pending[name], unplaced.stage.value, len(unplaced.pods))
            name = shares[name].parent
    return tuple(
        QueueStatusReport(
            share=replace(share, pending_gangs=sum(r.gangs for r in pending[name].values())),
            conditions=queue_conditions(share, shares),
            pending=tuple(pending[name][reason] for reason in sorted(pending[name])),
            usage_period=_period(share.past_usage.at) if share.past_usage else 0,
        )
        for name, share in shares.items()
    )


def desired_status(report: QueueStatusReport, watched: WatchedQueue, now: datetime) -> QueueStatus:
    """The whole status the queue must have; a condition keeps its time until its status changes."""
    share, current = report.share, watched.queue.status
    generation = watched.metadata.generation
    before = {condition.type: condition for condition in current.conditions}
    ours = tuple(
        _condition(finding, before.get(finding.type), generation, now)
        for finding in report.conditions
    )
    types = {condition.type for condition in ours}
    return QueueStatus(
        observed_generation=generation,
        allocated=_amounts(share.allocated),
        requested=_amounts(share.requested),
        infeasible=_amounts(share.infeasible),
        fair_share=_amounts(share.fair_share),
        pending_gangs=share.pending_gangs,
        pending=report.pending,
        usage=_usage(report, current),
        evictions=tuple(map(eviction_status, share.evictions)),
        conditions=(*ours, *(c for c in current.conditions if c.type not in types)),
    )


def queue_status_patch(desired: QueueStatus, known: WatchedQueue) -> dict[str, Any] | None:
    """The merge patch of queues/status that brings the queue to ``desired``; None if up to date."""
    changes = merge_patch(_document(known.queue.status), _document(desired))
    if not changes:
        return None
    return {"metadata": preconditions(known), "status": changes}


def changed_conditions(report: QueueStatusReport, known: WatchedQueue) -> Iterable[QueueCondition]:
    """Conditions that are about to change in status or reason."""
    current = {c.type: (c.status, c.reason) for c in known.queue.status.conditions}
    return (f for f in report.conditions if current.get(f.type) != (f.status, f.reason))


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from one document to another that holds no nulls."""
    changes: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            inner = merge_patch(before, value)
            if inner:
                changes[key] = inner
        elif before != value:
            changes[key] = value
    return changes


def _usage(report: QueueStatusReport, current: QueueStatus) -> RecordedUsage | None:
    """The recorded usage; written at most once per period."""
    usage = report.share.past_usage
    if usage is None:
        return current.usage
    if current.usage and _period(current.usage.observed_at.timestamp()) == report.usage_period:
        return current.usage
    return usage_status(usage)


def _period(seconds: float) -> int:
    return int(seconds // USAGE_WRITE_SECONDS)


def _count_pending(waiting: dict[str, PendingReason], reason: str, pods: int) -> None:
    counted = waiting.get(reason, PendingReason(reason=reason))
    waiting[reason] = PendingReason(
        reason=reason, gangs=counted.gangs + 1, pods=counted.pods + pods
    )


def _condition(
    condition: QueueCondition, before: QueueStatusCondition | None, generation: int, now: datetime
) -> QueueStatusCondition:
    since = now.replace(microsecond=0)
    if before is not None and before.status == condition.status:
        since = before.last_transition_time
    return QueueStatusCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        # The limit of metav1.Condition; a longer message makes the server refuse the whole status.
        message=condition.message[:32768],
        last_transition_time=since,
        observed_generation=generation,
    )


def _amounts(amounts: Mapping[str, float]) -> dict[str, Quantity]:
    """Amounts in the API's units; GPUs first and always, others unless they are zero."""
    shown = in_api_units(amounts)
    listed = {GPUS: quantity_of(GPUS, shown.pop(GPU, 0.0))}
    for name in sorted(shown):
        quantity = quantity_of(name, shown[name])
        if quantity and len(listed) < MAX_RESOURCES:
            listed[name] = quantity
    return listed


def _document(status: QueueStatus) -> dict[str, Any]:
    document: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


class QueueStatusWriter:
    """Reconciles the statuses of queues with the last plan.

    ``find_queue`` returns a queue from the mirror. ``interval`` is in seconds. ``on_transition`` is
    called, with the queue as it was, for conditions written with another status or reason.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[WatchedQueue],
        find_queue: Callable[[str], WatchedQueue | None],
        *,
        interval: float,
        backoff: ObjectBackoff,
        on_transition: Callable[[WatchedQueue, QueueCondition], None],
    ) -> None:
        self._on_transition = on_transition
        reported = ReportedKind(
            served=lambda: resource,
            find=lambda key: find_queue(key[1]),
            patch=_patch,
            on_written=self._report_transitions,
        )
        self._writer = ReportWriter(client, reported, interval=interval, backoff=backoff)

    def update(self, plan: Plan) -> None:
        """Record what is to be reported from now on."""
        self._writer.update(
            lambda: {("", report.share.queue): report for report in queue_reports(plan)}
        )

    async def run(self) -> None:
        """Write until cancelled."""
        await self._writer.run()

    def _report_transitions(self, report: QueueStatusReport, known: WatchedQueue) -> None:
        for condition in changed_conditions(report, known):
            self._on_transition(known, condition)


def _patch(report: QueueStatusReport, known: WatchedQueue, now: datetime) -> dict[str, Any] | None:
    return queue_status_patch(desired_status(report, known, now), known)
