"""Verification of the demo: milestones, counts and violated invariants, from its events alone.

Invariants at every moment:

- no pod of a gang runs before minMember of the gang is bound, and none is left bound below it;
- no device is allocated to two claims.

Pure: the same events have the same result.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from kai_py.api.texts import count_of
from kai_py.demo.events import (
    AnyDemoEvent,
    ClaimChange,
    ClaimChanged,
    DemoSummary,
    EventSeen,
    EvictionDecided,
    JobCompleted,
    PodChange,
    PodChanged,
)
from kai_py.demo.script import Expectation, Milestone, MilestoneReached
from kai_py.demo.workloads import NAMESPACE, DemoWorkload

EVICTIONS = {"preempt": Milestone.PREEMPTED, "reclaim": Milestone.RECLAIMED}


class _Gang(Struct):
    workload: DemoWorkload
    bound: set[str] = field(default_factory=set)
    started: bool = False
    """Whether minMember has been bound since it last had no pods."""
    lost_pods: bool = False
    """Whether pods were evicted since all of them were bound."""


class Verification:
    """The progress of the script's workloads so far."""

    def __init__(self, workloads: Iterable[DemoWorkload]) -> None:
        self._gangs = {f"{NAMESPACE}/Job/{each.name}": _Gang(each) for each in workloads}
        self._milestones: dict[MilestoneReached, float] = {}
        self._device_holders: dict[str, str] = {}
        self._evicted: dict[str, set[str]] = {"preempt": set(), "reclaim": set()}
        self._violations: dict[str, None] = {}
        self._pods_bound = 0
        self._gangs_started = 0
        self._jobs_completed = 0

    def apply(self, event: AnyDemoEvent) -> None:
        """Apply an event."""
        match event:
            case PodChanged():
                self._pod(event)
            case ClaimChanged():
                self._claim(event)
            case EventSeen(reason="FailedScheduling", kind="Job"):
                self._record(event.gang, Milestone.WAITED, event.time)
            case EvictionDecided():
                self._evicted.setdefault(event.action, set()).add(event.pod)
            case JobCompleted():
                self._jobs_completed += 1
                self._record(event.gang, Milestone.COMPLETED, event.time)

    def has_reached(self, wanted: Iterable[MilestoneReached]) -> bool:
        """Whether all of these have been reached."""
        return all(each in self._milestones for each in wanted)

    def summary(self, expectations: Iterable[Expectation], time: float) -> DemoSummary:
        """The summary of the demo at ``time``."""
        shown = [each.sentence for each in expectations if self.has_reached(each.milestones)]
        missing = [each.sentence for each in expectations if not self.has_reached(each.milestones)]
        return DemoSummary(
            time=time,
            shown=tuple(shown),
            missing=(*missing, *self._violations, *self._partial_gangs()),
            pods_bound=self._pods_bound,
            gangs_started=self._gangs_started,
            preemptions=len(self._evicted["preempt"]),
            reclaims=len(self._evicted["reclaim"]),
            jobs_completed=self._jobs_completed,
        )

    def _pod(self, change: PodChanged) -> None:
        if change.change is PodChange.BOUND:
            self._pods_bound += 1
        gang = self._gangs.get(change.gang)
        if gang is None:
            return
        match change.change:
            case PodChange.BOUND:
                self._bound(change, gang)
            case PodChange.RUNNING:
                self._running(change, gang)
            case PodChange.TERMINATING | PodChange.DELETED | PodChange.FAILED | PodChange.SUCCEEDED:
                self._pod_ended(change, gang)

    def _bound(self, change: PodChanged, gang: _Gang) -> None:
        gang.bound.add(change.pod)
        if not gang.started and len(gang.bound) >= gang.workload.min_available:
            gang.started = True
            self._gangs_started += gang.workload.min_available > 1
        if len(gang.bound) == gang.workload.pods:
            self._record(change.gang, Milestone.STARTED, change.time)
            if gang.lost_pods:
                gang.lost_pods = False
                self._record(change.gang, Milestone.RETURNED, change.time)

    def _running(self, change: PodChanged, gang: _Gang) -> None:
        if change.pod in gang.bound and not gang.started:
            name, min_members = gang.workload.name, gang.workload.min_available
            pods = count_of(len(gang.bound), "pod")
            self._violations[f"{name} ran with {pods}, its minMember is {min_members}"] = None

    def _pod_ended(self, change: PodChanged, gang: _Gang) -> None:
        if change.pod not in gang.bound:
            return
        gang.bound.discard(change.pod)
        # A gang that has lost all of its pods has to start again.
        gang.started = gang.started and bool(gang.bound)
        if change.change is PodChange.SUCCEEDED:
            return
        gang.lost_pods = True
        for action, pods in self._evicted.items():
            if change.pod in pods and action in EVICTIONS:
                self._record(change.gang, EVICTIONS[action], change.time)

    def _partial_gangs(self) -> tuple[str, ...]:
        return tuple(
            f"{gang.workload.name} was left with {count_of(len(gang.bound), 'pod')} bound"
            for gang in self._gangs.values()
            if gang.bound and not gang.started
        )

    def _claim(self, change: ClaimChanged) -> None:
        for device in change.devices:
            holder = self._device_holders.get(device)
            if change.change is ClaimChange.RELEASED:
                if holder == change.claim:
                    del self._device_holders[device]
            elif holder not in (None, change.claim):
                self._violations[f"{device} was allocated to {holder} and to {change.claim}"] = None
            else:
                self._device_holders[device] = change.claim

    def _record(self, gang: str, milestone: Milestone, time: float) -> None:
        if gang in self._gangs:
            self._milestones.setdefault(
                MilestoneReached(self._gangs[gang].workload.name, milestone), time
            )
