"""Has the demo shown what it should? Milestones, counts and broken promises, from happenings alone.

Promises that must hold at every moment:

- no pod of a gang runs before the floor of the gang is bound, and none is left bound below it;
- no device is allocated to two claims.

Pure: the same happenings give the same story.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kai_py.demo.events import (
    AnyHappening,
    ClaimChange,
    ClaimChanged,
    EventSeen,
    EvictionDecided,
    JobCompleted,
    PodChange,
    PodChanged,
    Told,
)
from kai_py.demo.script import Expectation, Milestone, Seen
from kai_py.demo.workloads import NAMESPACE, Workload

EVICTIONS = {"preempt": Milestone.PREEMPTED, "reclaim": Milestone.RECLAIMED}


@dataclass(slots=True)
class _Gang:
    workload: Workload
    bound: set[str] = field(default_factory=set)
    whole: bool = False
    """Its floor has been bound since it last had no pods."""
    thinned: bool = False
    """Pods had to leave since all of them were bound."""


class Story:
    """What has happened to the script's workloads so far."""

    def __init__(self, workloads: Iterable[Workload]) -> None:
        self._gangs = {f"{NAMESPACE}/Job/{each.name}": _Gang(each) for each in workloads}
        self._seen: dict[Seen, float] = {}
        self._holders: dict[str, str] = {}
        self._evicted: dict[str, set[str]] = {"preempt": set(), "reclaim": set()}
        self._broken: dict[str, None] = {}
        self._pods_bound = 0
        self._gangs_started = 0
        self._jobs_completed = 0

    def apply(self, happening: AnyHappening) -> None:
        """Take over what happened."""
        match happening:
            case PodChanged():
                self._pod(happening)
            case ClaimChanged():
                self._claim(happening)
            case EventSeen(reason="FailedScheduling", kind="Job"):
                self._note(happening.gang, Milestone.WAITED, happening.time)
            case EvictionDecided():
                self._evicted.setdefault(happening.action, set()).add(happening.pod)
            case JobCompleted():
                self._jobs_completed += 1
                self._note(happening.gang, Milestone.COMPLETED, happening.time)

    def has_seen(self, wanted: Iterable[Seen]) -> bool:
        """Whether all of these have been seen."""
        return all(each in self._seen for each in wanted)

    @property
    def broken(self) -> tuple[str, ...]:
        """Promises that were broken, in words."""
        return tuple(self._broken)

    def told(self, expectations: Iterable[Expectation], time: float) -> Told:
        """The end of the story at ``time``."""
        shown = [each.sentence for each in expectations if self.has_seen(each.seen)]
        missing = [each.sentence for each in expectations if not self.has_seen(each.seen)]
        return Told(
            time=time,
            shown=tuple(shown),
            missing=(*missing, *self._broken, *self._left_in_part()),
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
            case PodChange.LEAVING | PodChange.GONE | PodChange.FAILED | PodChange.SUCCEEDED:
                self._left(change, gang)

    def _bound(self, change: PodChanged, gang: _Gang) -> None:
        gang.bound.add(change.pod)
        if not gang.whole and len(gang.bound) >= gang.workload.floor:
            gang.whole = True
            self._gangs_started += gang.workload.floor > 1
        if len(gang.bound) == gang.workload.pods:
            self._note(change.gang, Milestone.STARTED, change.time)
            if gang.thinned:
                gang.thinned = False
                self._note(change.gang, Milestone.RETURNED, change.time)

    def _running(self, change: PodChanged, gang: _Gang) -> None:
        if change.pod in gang.bound and not gang.whole:
            name, floor = gang.workload.name, gang.workload.floor
            self._broken[f"{name} ran with {len(gang.bound)} pods, its floor is {floor}"] = None

    def _left(self, change: PodChanged, gang: _Gang) -> None:
        if change.pod not in gang.bound:
            return
        gang.bound.discard(change.pod)
        gang.whole = gang.whole and bool(gang.bound)
        if change.change is PodChange.SUCCEEDED:
            return
        gang.thinned = True
        for action, pods in self._evicted.items():
            if change.pod in pods and action in EVICTIONS:
                self._note(change.gang, EVICTIONS[action], change.time)

    def _left_in_part(self) -> tuple[str, ...]:
        return tuple(
            f"{gang.workload.name} was left with {len(gang.bound)} pods bound"
            for gang in self._gangs.values()
            if gang.bound and not gang.whole
        )

    def _claim(self, change: ClaimChanged) -> None:
        for device in change.devices:
            holder = self._holders.get(device)
            if change.change is ClaimChange.RELEASED:
                if holder == change.claim:
                    del self._holders[device]
            elif holder not in (None, change.claim):
                self._broken[f"{device} was given to {holder} and to {change.claim}"] = None
            else:
                self._holders[device] = change.claim

    def _note(self, gang: str, milestone: Milestone, time: float) -> None:
        if gang in self._gangs:
            self._seen.setdefault(Seen(self._gangs[gang].workload.name, milestone), time)
