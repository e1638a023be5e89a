"""Which events does a decision become, on which objects?

Scheduled         pod                  it was bound
FailedScheduling  pod, gang's owner    it stays pending, the same sentence as its condition
FailedAllocation  claim                the same, where its devices are what is lacking
FailedBinding     pod, gang's owner    the API refused what was decided
BindingConditionsPending  pod          its devices are allocated, drivers make them ready
Preempted         pod, gang's owner    it was evicted, for whom and by which rule
NotReady, Unschedulable, Evict         the same on a PodGroup of KAI, as KAI's users know it
EvictionBlocked   pod                  a disruption budget says not now
FailedEviction    pod, or its Job      the API refused what was decided: the pod, or the Job, stays
DeviceDoubleAllocated  both claims  they hold one device, and what becomes of ours
InvalidObject     node, slice, pod     it is not used (as it says), with what is wrong
TookRoom, LostRoom  both queues        when room moved between two of them
MissingParent, Cycle, …  queue         it can't be used as written, as its Ready condition says
Accepted          queue                it can be again
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kai_py.api import event_details
from kai_py.api.queue_status import READY
from kai_py.api.records.kai import POD_GROUP_API_VERSION
from kai_py.api.references import ClaimRef, PodRef
from kai_py.commit.binding import BindingOutcome
from kai_py.commit.claims.device_holders import Clash
from kai_py.commit.events import (
    Event,
    EventRecorder,
    EventType,
    claim_object,
    pod_object,
    queue_object,
)
from kai_py.commit.eviction import EvictionOutcome, EvictionResult
from kai_py.commit.statuses.pod import PendingStatus
from kai_py.commit.statuses.queue_conditions import ACCEPTED, Finding
from kai_py.commit.transaction import GangOutcome
from kai_py.grouping.gang import Owner
from kai_py.plan.plan import Eviction, GangPlacement, ObjectProblem, Stage, Unplaced
from kai_py.watch.kinds import WatchedQueue

NO_DETAILS: Mapping[str, str] = MappingProxyType({})

FindQueue = Callable[[str], Owner | None]
"""The Queue object of this name, to write events to."""

FindClaims = Callable[[PodRef], Sequence[ClaimRef]]
"""The claims of a pod that have no devices yet."""


class Narrator:
    """Turns outcomes into events."""

    def __init__(
        self,
        recorder: EventRecorder,
        find_queue: FindQueue,
        find_claims: FindClaims = lambda _pod: (),
    ) -> None:
        self._recorder = recorder
        self._find_queue = find_queue
        self._find_claims = find_claims

    def tell_outcome(self, outcome: GangOutcome) -> None:
        """A transaction ended."""
        owner = outcome.gang.owner
        for binding in outcome.bindings:
            if binding.outcome is BindingOutcome.BOUND:
                note = f"Successfully assigned {binding.pod} to {binding.node}"
                placed = _placed(outcome.gang, binding.node)
                self._tell(pod_object(binding.pod), "Scheduled", "Binding", note, placed)
        for failure in outcome.failures:
            self._warn(pod_object(failure.pod), "FailedBinding", "Binding", failure.reason)
        if outcome.reason:
            note = f"nothing of the gang was bound: {outcome.reason}"
            self._warn(owner, "FailedBinding", "Binding", note)

    def tell_not_resumed(self, job: Owner, why: str) -> None:
        """A suspended Job that fits could not be resumed."""
        self._warn(job, "FailedBinding", "Resuming", f"the Job could not be resumed: {why}")

    def tell_waiting(self, pod: PodRef, note: str) -> None:
        """A pod's devices have to be made ready before it is bound."""
        self._tell(pod_object(pod), "BindingConditionsPending", "Binding", note)

    def tell_eviction(self, result: EvictionResult) -> None:
        """An eviction was answered."""
        eviction = result.eviction
        pod, owner = pod_object(eviction.pod), eviction.owner
        if result.outcome is EvictionOutcome.BLOCKED:
            note = f"may not be evicted now: {result.reason}"
            self._tell(pod, "EvictionBlocked", "Preempting", note)
            return
        if result.outcome is EvictionOutcome.FAILED:
            what, done = (owner, "suspended") if eviction.suspend else (pod, "evicted")
            note = f"could not be {done} for {eviction.beneficiary}: {result.reason}"
            self._warn(what, "FailedEviction", "Preempting", note)
            return
        if result.outcome is not EvictionOutcome.EVICTED:
            return
        self._warn(pod, "Preempted", "Preempting", eviction.reason, _evicted(eviction))
        if owner.api_version == POD_GROUP_API_VERSION:
            self._tell(owner, "Evict", "Preempting", eviction.reason)
        elif owner.uid != eviction.pod.uid:
            note = f"Pod {eviction.pod} on node {eviction.node}: {eviction.reason}"
            self._warn(owner, "Preempted", "Preempting", note)
        if eviction.queue != eviction.beneficiary_queue:
            self._tell_queues(result)

    def tell_pending(self, unplaced: Unplaced) -> None:
        """A gang stays pending; the recorder leaves out what was said before."""
        owner = unplaced.owner
        if owner.api_version != POD_GROUP_API_VERSION:
            self._warn(owner, "FailedScheduling", "Scheduling", unplaced.message, _waits(unplaced))
            return
        missing = unplaced.stage in (Stage.MEMBERS, Stage.GATED)
        reason = "NotReady" if missing else "Unschedulable"
        self._tell(owner, reason, "Scheduling", unplaced.message, _waits(unplaced))

    def tell_clash(self, clash: Clash, verdict: str) -> None:
        """Two claims hold one device."""
        device = "/".join(clash.device)
        for claim, other in ((clash.earlier, clash.later), (clash.later, clash.earlier)):
            note = f"device {device} is also allocated to claim {other}: {verdict}"
            self._warn(claim_object(claim), "DeviceDoubleAllocated", "Allocating", note)

    def tell_problem(self, problem: ObjectProblem) -> None:
        """An object of the cluster cannot be used."""
        self._warn(problem.object, "InvalidObject", "Reading", problem.message)

    def tell_transition(self, status: PendingStatus) -> None:
        """A pod's condition is about to change."""
        self._warn(pod_object(status.pod), "FailedScheduling", "Scheduling", status.message)
        for claim in self._find_claims(status.pod) if status.lacks_devices else ():
            self._warn(claim_object(claim), "FailedAllocation", "Allocating", status.message)

    def tell_queue(self, known: WatchedQueue, finding: Finding) -> None:
        """A condition of a queue was written that differs from what ``known`` says."""
        if finding.type != READY:
            return
        queue = queue_object(known.metadata)
        if finding.reason != ACCEPTED:
            self._warn(queue, finding.reason, "Checking", finding.message)
        elif known.queue.status.conditions:
            self._tell(queue, ACCEPTED, "Checking", "The queue is used as it is written")

    def _tell_queues(self, result: EvictionResult) -> None:
        eviction = result.eviction
        loser = self._find_queue(eviction.queue)
        winner = self._find_queue(eviction.beneficiary_queue)
        if loser is not None:
            note = f"Gang {eviction.gang} lost room to {eviction.beneficiary}: {eviction.reason}"
            self._tell(loser, "LostRoom", "Reclaiming", note)
        if winner is not None:
            note = f"Gang {eviction.beneficiary} took room of {eviction.gang}: {eviction.reason}"
            self._tell(winner, "TookRoom", "Reclaiming", note)

    def _tell(
        self,
        regarding: Owner,
        reason: str,
        action: str,
        note: str,
        details: Mapping[str, str] = NO_DETAILS,
        *,
        kind: EventType = EventType.NORMAL,
    ) -> None:
        self._recorder.record(Event(regarding, reason, action, note, kind, details=details))

    def _warn(
        self,
        regarding: Owner,
        reason: str,
        action: str,
        note: str,
        details: Mapping[str, str] = NO_DETAILS,
    ) -> None:
        self._tell(regarding, reason, action, note, details, kind=EventType.WARNING)


def _placed(gang: GangPlacement, node: str) -> Mapping[str, str]:
    return {
        event_details.GANG: gang.gang,
        event_details.QUEUE: gang.queue,
        event_details.ACTION: gang.action.value,
        event_details.NODE: node,
    }


def _evicted(eviction: Eviction) -> Mapping[str, str]:
    return {
        event_details.GANG: eviction.gang,
        event_details.QUEUE: eviction.queue,
        event_details.ACTION: eviction.action.value,
        event_details.NODE: eviction.node,
        event_details.BENEFICIARY: eviction.beneficiary,
        event_details.BENEFICIARY_QUEUE: eviction.beneficiary_queue,
    }


def _waits(unplaced: Unplaced) -> Mapping[str, str]:
    return {
        event_details.GANG: unplaced.gang,
        event_details.QUEUE: unplaced.queue,
        event_details.STAGE: unplaced.stage.value,
    }
