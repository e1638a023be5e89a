"""Statuses and annotations of KAI's Queues and PodGroups, as KAI itself would write them.

Of a Queue, ``childQueues``, ``allocated``, ``allocatedNonPreemptible`` and ``requested`` are for
programs that read KAI's Queues. The condition types ``Orphan`` and ``OverQuota`` are KAI's, which
never sets them; ``Ready`` says what is wrong with the Queue, for example that a native one has its
name. Of PodGroups, see ``commit.statuses.kai_pod_group``.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from kai_py.api.pod_phases import is_finished
from kai_py.api.queue_status import ORPHAN, OVER_DESERVED, READY
from kai_py.api.records.core import Condition
from kai_py.api.records.kai import KaiPodGroup, KaiQueue
from kai_py.api.times import format_time
from kai_py.commit.api_access import preconditions
from kai_py.commit.settings import CommitSettings
from kai_py.commit.statuses.kai_pod_group import (
    KaiPodGroupAnnotations,
    KaiPodGroupReport,
    LastEvictions,
    empty_pod_group_report,
    kai_pod_group_annotations,
    kai_pod_group_annotations_patch,
    kai_pod_group_patch,
    kai_pod_group_reports,
)
from kai_py.commit.statuses.queue import kai_resource_list
from kai_py.commit.statuses.queue_conditions import QueueCondition, queue_conditions
from kai_py.commit.statuses.report_writer import report_writer
from kai_py.dialects.kai.keys import POD_GROUP
from kai_py.plan.observations import QueueShare
from kai_py.plan.plan import Plan
from kai_py.snapshot.gangs import Gang
from kai_py.watch.client import Client
from kai_py.watch.kinds import KAI_POD_GROUPS, KAI_QUEUES, PODS
from kai_py.watch.mirror import Mirror
from kai_py.watch.resource import Key

CONDITION_TYPES: Mapping[str, str] = {READY: "Ready", ORPHAN: "Orphan", OVER_DESERVED: "OverQuota"}


class KaiQueueReport(Struct, frozen=True):
    """A plan's report on a queue."""

    share: QueueShare
    children: tuple[str, ...]
    conditions: tuple[QueueCondition, ...]


def kai_queue_reports(plan: Plan) -> dict[Key, KaiQueueReport]:
    """A report for every queue of the plan, whichever API it was written in."""
    shares = {share.queue: share for share in plan.queues}
    children: dict[str, list[str]] = {}
    for share in plan.queues:
        children.setdefault(share.parent, []).append(share.queue)
    return {
        ("", name): KaiQueueReport(
            share, tuple(children.get(name, ())), queue_conditions(share, shares)
        )
        for name, share in shares.items()
    }


def kai_queue_patch(
    report: KaiQueueReport, known: KaiQueue, now: datetime
) -> dict[str, Any] | None:
    """The merge patch of the status, or None if the Queue is up to date."""
    share, current = report.share, known.status
    status: dict[str, Any] = {}
    if tuple(current.child_queues) != report.children:
        status["childQueues"] = list(report.children)
    for field, old, amounts in (
        ("allocated", current.allocated, share.allocated),
        ("allocatedNonPreemptible", current.allocated_non_preemptible, share.non_preemptible),
        ("requested", current.requested, share.requested),
    ):
        changes = _changes(old, kai_resource_list(amounts))
        if changes:
            status[field] = changes
    conditions = _conditions(report, known, now)
    if conditions is not None:
        status["conditions"] = conditions
    if not status:
        return None
    return {"metadata": preconditions(known), "status": status}


def _changes(old: Mapping[str, object], new: Mapping[str, str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {name: None for name in old if name not in new}
    changes.update({name: text for name, text in new.items() if str(old.get(name)) != text})
    return changes


def _conditions(
    report: KaiQueueReport, known: KaiQueue, now: datetime
) -> list[dict[str, Any]] | None:
    """The whole list of conditions, or None if it is up to date."""
    before = {condition.type: condition for condition in known.status.conditions}
    ours = {
        name: _condition(found, name, before.get(name), now)
        for found in report.conditions
        if (name := CONDITION_TYPES.get(found.type, ""))
    }
    if all(before.get(name) == condition for name, condition in ours.items()):
        return None
    others = (each for name, each in before.items() if name not in ours)
    return [_document(each) for each in (*others, *ours.values())]


def _condition(
    found: QueueCondition, name: str, before: Condition | None, now: datetime
) -> Condition:
    """A condition as KAI names it; it keeps its time until its status changes."""
    return Condition(
        type=name,
        status=found.status,
        reason=found.reason,
        message=found.message,
        last_transition_time=now
        if before is None or before.status != found.status
        else before.last_transition_time,
    )


def _document(condition: Condition) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(condition)
    if condition.last_transition_time is None:
        del document["lastTransitionTime"]
    else:
        document["lastTransitionTime"] = format_time(condition.last_transition_time)
    return document


class KaiStatusWriter:
    """All writers for KAI's kinds; a kind that is not served costs nothing."""

    def __init__(self, client: Client, mirror: Mirror, settings: CommitSettings) -> None:
        self._mirror = mirror
        self._machine = client.machine
        self._evictions = LastEvictions()
        self._settings = settings
        self._groups_of_pods: frozenset[Key] | None = None
        self._queues = report_writer(client, mirror, settings, KAI_QUEUES, self._queue_patch)
        self._pod_groups = report_writer(
            client, mirror, settings, KAI_POD_GROUPS, self._pod_group_patch
        )
        self._annotations = report_writer(
            client, mirror, settings, KAI_POD_GROUPS, self._annotations_patch, subresource=""
        )

    def update(self, plan: Plan, gangs: Iterable[Gang]) -> None:
        """Record what is to be reported from now on."""
        self._queues.update(lambda: kai_queue_reports(plan))
        self._pod_groups.update(lambda: self._pod_group_reports(plan, gangs))
        evicted = self._evictions.update(plan, self._machine.now())
        self._annotations.update(lambda: self._annotations_of(gangs, evicted))

    def _queue_patch(
        self, report: KaiQueueReport, known: KaiQueue, now: datetime
    ) -> dict[str, Any] | None:
        if not self._settings.reports_on(known.metadata):
            return None
        return kai_queue_patch(report, known, now)

    def _pod_group_reports(self, plan: Plan, gangs: Iterable[Gang]) -> dict[Key, KaiPodGroupReport]:
        pool = self._settings.node_pool
        empty = {key: empty_pod_group_report(uid, pool) for key, uid in self._pod_groups_by_key()}
        return empty | kai_pod_group_reports(plan, gangs, pool)

    def _annotations_of(
        self, gangs: Iterable[Gang], evicted: Mapping[str, float]
    ) -> dict[Key, KaiPodGroupAnnotations]:
        empty = {
            key: KaiPodGroupAnnotations(uid, stale_since=None, has_pods=False)
            for key, uid in self._pod_groups_by_key()
        }
        return empty | kai_pod_group_annotations(gangs, evicted)

    def _pod_groups_by_key(self) -> Iterator[tuple[Key, str]]:
        """Keys and uids of all PodGroups."""
        self._groups_of_pods = None
        for key, group in self._mirror.objects(KAI_POD_GROUPS).items():
            yield key, group.metadata.uid

    def _pod_group_patch(
        self, report: KaiPodGroupReport, known: KaiPodGroup, now: datetime
    ) -> dict[str, Any] | None:
        patch = kai_pod_group_patch(report, known, now)
        return patch if report.has_pods or (patch and self._is_without_pods(known)) else None

    def _annotations_patch(
        self, annotations: KaiPodGroupAnnotations, known: KaiPodGroup, now: datetime
    ) -> dict[str, Any] | None:
        patch = kai_pod_group_annotations_patch(annotations, known, now)
        return patch if annotations.has_pods or (patch and self._is_without_pods(known)) else None

    def _is_without_pods(self, group: KaiPodGroup) -> bool:
        """Whether no pod names the group, of which another scheduler may write the status.

        The names are read once for all writes of a pass, and only if there is something to empty.
        """
        if self._groups_of_pods is None:
            self._groups_of_pods = frozenset(
                (namespace, pod.metadata.annotations[POD_GROUP])
                for (namespace, _), pod in self._mirror.objects(PODS).items()
                if POD_GROUP in pod.metadata.annotations and not is_finished(pod)
            )
        return (group.metadata.namespace, group.metadata.name) not in self._groups_of_pods

    async def run(self) -> None:
        """Write until cancelled."""
        await asyncio.gather(self._queues.run(), self._pod_groups.run(), self._annotations.run())
