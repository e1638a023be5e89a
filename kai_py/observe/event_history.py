"""History of decisions read from the API, for use without a running scheduler.

Read from the scheduler's events on pods (placed, evicted) and on gangs' owners (pending), which the
API server keeps for an hour by default. Where these have expired: the time since which a running
gang's pods are bound, and the evictions in its queue's status. Equal decisions about several pods
within seconds are merged.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api import event_annotations as details
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.record import Record
from kai_py.api.texts import count_of
from kai_py.observe.decision_log import Decision, DecisionKind, decisions_about, placement_reason
from kai_py.plan.plan import Action, Plan
from kai_py.snapshot.snapshot import Snapshot
from kai_py.watch.client import Client
from kai_py.watch.resource import define_kind

MERGE_SECONDS = 10.0
EVENTS_MISSING = "its events are not written yet, or no longer kept"


class InvolvedObject(Record, frozen=True):
    """The object that an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class ClusterEvent(Record, frozen=True):
    """A core/v1 Event as far as it is read; ``type`` is Normal or Warning."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    involved_object: InvolvedObject = InvolvedObject()
    reason: str = ""
    message: str = ""
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    """When it was last repeated, of events in the older form."""

    @property
    def last_seen(self) -> float:
        """Seconds since the epoch."""
        last = self.last_timestamp or self.event_time or self.metadata.creation_timestamp
        return last.timestamp() if last is not None else 0.0


EVENTS = define_kind(ClusterEvent, "Event", "events", "v1")
KINDS = {
    "Scheduled": DecisionKind.PLACED,
    "Preempted": DecisionKind.EVICTED,
    "FailedScheduling": DecisionKind.PENDING,
    "Unschedulable": DecisionKind.PENDING,
    "NotReady": DecisionKind.PENDING,
}


async def read_scheduler_events(
    client: Client, reporter: str, namespaces: Iterable[str]
) -> list[ClusterEvent]:
    """Events reported by ``reporter``: all evictions, and the other events of ``namespaces``.

    Raises ApiError.
    """
    selector = f"reportingComponent={reporter}"
    found: list[ClusterEvent] = []
    for namespace in sorted(set(namespaces)):
        listing = await client.list(EVENTS.at(), namespace=namespace, field_selector=selector)
        found += (each for each in listing.items if each.reason != "Preempted")
    evictions = await client.list(EVENTS.at(), field_selector=f"{selector},reason=Preempted")
    return [*found, *evictions.items]


FAILED_CREATE = "FailedCreate"


async def read_refused_creations(client: Client, namespace: str) -> list[ClusterEvent]:
    """Events of controllers in ``namespace`` whose pods the API server refused; raises ApiError."""
    selector = f"reason={FAILED_CREATE},type=Warning"
    return list(
        (await client.list(EVENTS.at(), namespace=namespace, field_selector=selector)).items
    )


def decisions_of_events(events: Iterable[ClusterEvent]) -> tuple[Decision, ...]:
    """The decisions reported by events, oldest first; a pending gang once for each stage."""
    singles = sorted(filter(None, map(_decision, events)), key=lambda each: (each.time, each.pods))
    merged: list[Decision] = []
    newest: dict[tuple[str, ...], int] = {}
    stages: dict[str, str] = {}
    for each in singles:
        former = stages.get(each.gang, "")
        stages[each.gang] = each.stage
        if each.kind is DecisionKind.PENDING:
            # The same stage is reported again on every change of the message.
            if former != each.stage:
                merged.append(replace(each, previous_stage=former))
            continue
        key = (each.kind, each.gang, each.action, each.preemptor, each.message)
        index = newest.get(key)
        if index is not None and each.time - merged[index].time <= MERGE_SECONDS:
            merged[index] = _merged(merged[index], each)
        else:
            newest[key] = len(merged)
            merged.append(each)
    return tuple(merged)


def _evicted(pods: int) -> str:
    were = "was" if pods == 1 else "were"
    return f"{count_of(pods, 'pod')} {were} evicted; {EVENTS_MISSING}"


def _merged(first: Decision, other: Decision) -> Decision:
    return replace(
        first,
        pods=tuple(dict.fromkeys((*first.pods, *other.pods))),
        nodes=tuple(dict.fromkeys((*first.nodes, *other.nodes))),
    )


def _decision(event: ClusterEvent) -> Decision | None:
    kind, annotations = KINDS.get(event.reason), event.metadata.annotations
    gang, subject = annotations.get(details.GANG, ""), event.involved_object
    # Who may write events of a namespace can forge them, but not of gangs in other namespaces.
    if kind is None or not gang.startswith(f"{event.metadata.namespace}/"):
        return None
    # The Event of a pod's eviction is repeated on its owner, for people.
    if kind is DecisionKind.EVICTED and subject.kind != "Pod":
        return None
    action = annotations.get(details.ACTION, "")
    is_placement = kind is DecisionKind.PLACED and action in list(Action)
    on_pod = subject.kind == "Pod" and kind is not DecisionKind.PENDING
    node = annotations.get(details.NODE, "")
    return Decision(
        kind=kind,
        gang=gang,
        queue=annotations.get(details.QUEUE, ""),
        time=event.event_time.timestamp() if event.event_time else 0.0,
        action=action,
        pods=(f"{subject.namespace}/{subject.name}",) if on_pod else (),
        nodes=(node,) if node else (),
        stage=annotations.get(details.STAGE, ""),
        message=placement_reason(Action(action)) if is_placement else event.message,
        preemptor=annotations.get(details.PREEMPTOR, ""),
        preemptor_queue=annotations.get(details.PREEMPTOR_QUEUE, ""),
    )


class DecisionHistory(Struct, frozen=True):
    """The known past of a cluster."""

    decisions: tuple[Decision, ...]
    snapshot: Snapshot
    plan: Plan

    def about(self, gang: str, since: float = 0.0) -> tuple[Decision, ...]:
        """Decisions about ``gang`` or in its favour, made after ``since``, oldest first."""
        kept = decisions_about(gang, self.decisions)
        kinds = {each.kind for each in kept if each.gang == gang}
        decisions = (*kept, *self._without_events(gang, kinds))
        return tuple(sorted((t for t in decisions if t.time > since), key=lambda each: each.time))

    def _without_events(self, key: str, kinds: set[DecisionKind]) -> Iterator[Decision]:
        """Decisions derived from the cluster's objects where their events are missing."""
        gang = self.snapshot.gangs.get(key)
        if gang is not None and gang.bound and DecisionKind.PLACED not in kinds:
            yield Decision(
                kind=DecisionKind.PLACED,
                gang=key,
                queue=gang.queue,
                time=gang.started,
                pods=tuple(str(member.pod) for member in gang.bound),
                nodes=tuple(dict.fromkeys(member.node for member in gang.bound)),
                message=EVENTS_MISSING,
            )
        if DecisionKind.EVICTED in kinds:
            return
        for share in self.plan.queues:
            for record in share.evictions:
                if record.gang == key:
                    yield Decision(
                        kind=DecisionKind.EVICTED,
                        gang=key,
                        queue=share.queue,
                        time=record.at,
                        message=_evicted(record.pods),
                    )
