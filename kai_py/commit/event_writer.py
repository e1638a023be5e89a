"""Kubernetes events for the scheduler's decisions.

    Scheduled                 pod               it was bound
    FailedScheduling          pod, gang's owner it stays pending, in the words of its condition
    FailedAllocation          claim             the same, where devices for the claim are lacking
    FailedBinding             pod, gang's owner the API refused the decision
    BindingConditionsPending  pod               its devices are allocated, drivers make them ready
    Preempted                 pod, gang's owner it was evicted, for which gang and by which rule
    NotReady, Unschedulable,
    Evict                     KAI's PodGroup    the same in KAI's words
    EvictionBlocked           pod               a disruption budget forbids the eviction now
    FailedEviction            pod, or its Job   the API refused the eviction: it stays
    DeviceDoubleAllocated     both claims       they have one device, and what happens to ours
    DevicesLost               pod, claim        a bound pod lost its devices, and what was done
    CheckpointRequested       pod               it is asked to save its work before its node goes
    NodeDeparting             gang's owner      a node of it is about to go, and what follows
    GangNotReady              gang's owner      it was started, and its pods are not ready in time
    NodeAvoided               node              gangs did not get ready there
    CapacityHeld, CapacityReleased
                              gang's owner      capacity is kept for pods to come, or no longer
    InvalidObject             any object        it is not used (or only in part), and why
    Reclaiming, Reclaimed     both queues       capacity was reclaimed by one from the other
    MissingParent, Cycle, …   queue             it can't be used, as its Ready condition says
    Accepted                  queue             it can be used again

Annotations of an event say the same for programs: the gang, its queue, the action, the preemptor.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kai_py.api.event_annotations import (
    ACTION,
    GANG,
    NODE,
    PREEMPTOR,
    PREEMPTOR_QUEUE,
    QUEUE,
    STAGE,
)
from kai_py.api.queue_status import READY
from kai_py.api.records.kai import POD_GROUP_API_VERSION
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.binding import BindingOutcome
from kai_py.commit.claims.device_holders import DeviceConflict
from kai_py.commit.events import (
    Event,
    EventRecorder,
    EventType,
    claim_reference,
    queue_reference,
)
from kai_py.commit.eviction import EvictionOutcome, EvictionResult
from kai_py.commit.statuses.pod import PendingPodStatus
from kai_py.commit.statuses.queue_conditions import ACCEPTED, QueueCondition
from kai_py.commit.transaction import GangOutcome
from kai_py.grouping.gang import Owner, pod_owner
from kai_py.plan.observations import CapacityHold, CheckpointRequest, GangAtRisk, ObjectProblem
from kai_py.plan.plan import Eviction, Plan, Stage, Unplaced
from kai_py.watch.kinds import WatchedQueue

NO_DETAILS: Mapping[str, str] = MappingProxyType({})

FindQueue = Callable[[str], Owner | None]
"""Reference to the Queue object of this name, None if there is none."""

FindClaims = Callable[[PodRef], Sequence[ClaimRef]]
"""The claims of a pod that are not allocated yet."""

ReadableText = Callable[[str, str], str]
"""A text as it may be written in a namespace, without names of other namespaces' workloads."""


class EventWriter:
    """Turns outcomes into events."""

    def __init__(
        self,
        recorder: EventRecorder,
        find_queue: FindQueue,
        find_claims: FindClaims = lambda _pod: (),
        readable: ReadableText = lambda text, _namespace: text,
    ) -> None:
        self._recorder = recorder
        self._readable = readable
        self._find_queue = find_queue
        self._find_claims = find_claims

    def report_outcome(self, outcome: GangOutcome) -> None:
        """Report the end of a transaction."""
        owner = outcome.gang.owner
        for binding in outcome.bindings:
            if binding.outcome is BindingOutcome.BOUND:
                note = f"Successfully assigned {binding.pod} to {binding.node}"
                details = {
                    GANG: outcome.gang.gang,
                    QUEUE: outcome.gang.queue,
                    ACTION: outcome.gang.action.value,
                    NODE: binding.node,
                }
                self._record(pod_owner(binding.pod), "Scheduled", "Binding", note, details)
        for failure in outcome.failures:
            self._warn(pod_owner(failure.pod), "FailedBinding", "Binding", failure.reason)
        if outcome.reason and not outcome.is_overtaken:
            note = f"no pod of the gang was bound: {outcome.reason}"
            self._warn(owner, "FailedBinding", "Binding", note)

    def report_not_resumed(self, job: Owner, error: str) -> None:
        """Report that a suspended Job that was placed could not be resumed."""
        self._warn(job, "FailedBinding", "Resuming", f"the Job could not be resumed: {error}")

    def report_waiting(self, pod: PodRef, note: str) -> None:
        """Report that drivers make a pod's devices ready before it is bound."""
        self._record(pod_owner(pod), "BindingConditionsPending", "Binding", note)

    def report_eviction(self, result: EvictionResult) -> None:
        """Report the answer to an eviction."""
        eviction = result.eviction
        pod, owner = pod_owner(eviction.pod), eviction.owner
        if result.outcome is EvictionOutcome.BLOCKED:
            note = f"may not be evicted now: {result.reason}"
            self._record(pod, "EvictionBlocked", "Preempting", note)
            return
        if result.outcome is EvictionOutcome.FAILED:
            regarding, verb = (owner, "suspended") if eviction.suspend else (pod, "evicted")
            note = f"could not be {verb} for {eviction.preemptor}: {result.reason}"
            self._warn(regarding, "FailedEviction", "Preempting", note)
            return
        if result.outcome is not EvictionOutcome.EVICTED:
            return
        self._warn(pod, "Preempted", "Preempting", eviction.reason, _eviction_details(eviction))
        if owner.api_version == POD_GROUP_API_VERSION:
            self._record(owner, "Evict", "Preempting", eviction.reason)
        elif owner.uid != eviction.pod.uid:
            note = f"Pod {eviction.pod} on node {eviction.node}: {eviction.reason}"
            self._warn(owner, "Preempted", "Preempting", note)
        if eviction.queue != eviction.preemptor_queue:
            self._report_reclaim(result)

    def report_pending(self, unplaced: Unplaced) -> None:
        """Report a gang that stays pending; the recorder drops repetitions."""
        owner = unplaced.owner
        if owner.api_version != POD_GROUP_API_VERSION:
            self._warn(
                owner,
                "FailedScheduling",
                "Scheduling",
                unplaced.message,
                _pending_details(unplaced),
            )
            return
        not_ready = unplaced.stage in (Stage.BELOW_MIN_MEMBER, Stage.SCHEDULING_GATED)
        reason = "NotReady" if not_ready else "Unschedulable"
        self._record(owner, reason, "Scheduling", unplaced.message, _pending_details(unplaced))

    def report_device_conflict(self, conflict: DeviceConflict, resolution: str) -> None:
        """Report on both claims that they have the same device."""
        device = "/".join(conflict.device)
        for claim, other in (
            (conflict.earlier, conflict.later),
            (conflict.later, conflict.earlier),
        ):
            note = f"device {device} is also allocated to claim {other}: {resolution}"
            self._warn(claim_reference(claim), "DeviceDoubleAllocated", "Allocating", note)

    def report_repair(self, pod: PodRef, claim: ClaimRef, note: str) -> None:
        """Report a bound pod whose claim had lost its devices."""
        for regarding in (pod_owner(pod), claim_reference(claim)):
            self._warn(regarding, "DevicesLost", "Repairing", note)

    def report_gpu_lost(self, pod: PodRef, note: str) -> None:
        """Report a bound pod whose shared GPU is not reserved any more."""
        self._warn(pod_owner(pod), "DevicesLost", "Repairing", note)

    def report_problem(self, problem: ObjectProblem) -> None:
        """Report an object of the cluster that cannot be used."""
        self._warn(problem.object, "InvalidObject", "Reading", problem.message)

    def report_hold(self, hold: CapacityHold) -> None:
        """Report capacity that is held for pods to come, or was; repetitions are dropped."""
        if hold.is_over:
            self._warn(hold.owner, "CapacityReleased", "Scheduling", hold.message)
        else:
            self._record(hold.owner, "CapacityHeld", "Scheduling", hold.message)

    def report_at_risk(self, gang: GangAtRisk) -> None:
        """Report that a node of a gang is about to go; repetitions are dropped."""
        self._warn(gang.owner, "NodeDeparting", "Scheduling", gang.message)

    def report_running(self, plan: Plan) -> None:
        """Report what concerns running gangs, and nodes and devices that are avoided."""
        for each in plan.at_risk:
            self.report_at_risk(each)
        for gang in plan.starting:
            self._warn(gang.owner, "GangNotReady", "Scheduling", gang.message)
        for node in plan.avoided_nodes:
            self._report_avoided(node.node, node.message)
        for device in plan.avoided_devices:
            note = (
                f"device {'/'.join(device.key)}: {device.message}; it is not allocated for a while"
            )
            self._report_avoided(device.node, note)

    def _report_avoided(self, node: str, note: str) -> None:
        self._warn(Owner("v1", "Node", "", node, node), "NodeAvoided", "Scheduling", note)

    def report_checkpoint(self, pod: PodRef, request: CheckpointRequest) -> None:
        """Report that a pod was asked to save its work."""
        self._record(pod_owner(pod), "CheckpointRequested", "Evicting", request.message)

    def report_transition(self, status: PendingPodStatus) -> None:
        """Report that a pod's condition is about to change."""
        self._warn(pod_owner(status.pod), "FailedScheduling", "Scheduling", status.message)
        for claim in self._find_claims(status.pod) if status.lacks_devices else ():
            self._warn(claim_reference(claim), "FailedAllocation", "Allocating", status.message)

    def report_queue(self, known: WatchedQueue, condition: QueueCondition) -> None:
        """Report a condition of a queue that differs from the one in ``known``."""
        if condition.type != READY:
            return
        queue = queue_reference(known.metadata)
        if condition.reason != ACCEPTED:
            self._warn(queue, condition.reason, "Checking", condition.message)
        elif known.queue.status.conditions:
            self._record(queue, ACCEPTED, "Checking", "The queue is used as written")

    def _report_reclaim(self, result: EvictionResult) -> None:
        eviction = result.eviction
        loser = self._find_queue(eviction.queue)
        winner = self._find_queue(eviction.preemptor_queue)
        if loser is not None:
            note = f"Gang {eviction.gang} was evicted for {eviction.preemptor}: {eviction.reason}"
            self._record(loser, "Reclaimed", "Reclaiming", note)
        if winner is not None:
            note = (
                f"Gang {eviction.preemptor} reclaimed capacity from {eviction.gang}: "
                f"{eviction.reason}"
            )
            self._record(winner, "Reclaiming", "Reclaiming", note)

    def _record(
        self,
        regarding: Owner,
        reason: str,
        action: str,
        note: str,
        details: Mapping[str, str] = NO_DETAILS,
        *,
        kind: EventType = EventType.NORMAL,
    ) -> None:
        note = self._readable(note, regarding.namespace)
        allowed = {
            name: text
            for name, text in details.items()
            if self._may_name(name, text, regarding.namespace)
        }
        self._recorder.record(Event(regarding, reason, action, note, kind, details=allowed))

    def _may_name(self, detail: str, value: str, namespace: str) -> bool:
        """Whether a detail of an event names nothing that ``namespace`` may not know of."""
        if detail not in (PREEMPTOR, PREEMPTOR_QUEUE):
            return True
        text = value if detail == PREEMPTOR else f"queue {value}"
        return self._readable(text, namespace) == text

    def _warn(
        self,
        regarding: Owner,
        reason: str,
        action: str,
        note: str,
        details: Mapping[str, str] = NO_DETAILS,
    ) -> None:
        self._record(regarding, reason, action, note, details, kind=EventType.WARNING)


def _eviction_details(eviction: Eviction) -> Mapping[str, str]:
    return {
        GANG: eviction.gang,
        QUEUE: eviction.queue,
        ACTION: eviction.action.value,
        NODE: eviction.node,
        PREEMPTOR: eviction.preemptor,
        PREEMPTOR_QUEUE: eviction.preemptor_queue,
    }


def _pending_details(unplaced: Unplaced) -> Mapping[str, str]:
    return {
        GANG: unplaced.gang,
        QUEUE: unplaced.queue,
        STAGE: unplaced.stage.value,
    }
