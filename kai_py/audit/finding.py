"""What the auditor finds, and the state that it looks at.

Every rule leaves out what ordinary life of a cluster shows for a moment: reads of several kinds are
not one instant, a pod is bound before its node or claim is seen, a gang starts pod by pod. Where an
object says since when it is as it is, a rule waits for ``GRACE`` seconds; what no object dates is
confirmed by looking again (``Confirmation``).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field

from kai_py.api.pod_phases import is_finished
from kai_py.api.records.core import Condition, Pod
from kai_py.api.records.node import Node
from kai_py.api.records.resource import DeviceClass, ResourceClaim
from kai_py.api.records.storage import PersistentVolumeClaim
from kai_py.dra.rows import ParsedSlice
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.pod_claims import GroupClaims, GroupKey
from kai_py.snapshot.tables.queues import QueueInfo

GRACE = 30.0
"""Seconds for which a change may be in progress."""
CLOCK_SKEW = 300.0
CONFIRM_SECONDS = 30.0
"""Seconds between the first and the last look that must have a finding."""


class FindingKind(StrEnum):
    """A rule that is broken."""

    POD_WITHOUT_CLAIM = "pod-without-claim"
    POD_WITHOUT_NODE = "pod-without-node"
    DEVICE_USED_TWICE = "device-used-twice"
    GANG_BELOW_MIN_MEMBER = "gang-below-min-member"
    QUEUE_OVER_MAX = "queue-over-max"
    RESERVATION_WITHOUT_POD = "reservation-without-pod"
    NODE_OVER_CAPACITY = "node-over-capacity"
    GPU_NOT_RESERVED = "gpu-not-reserved"
    VOLUME_USED_TWICE = "volume-used-twice"


class AuditFinding(Struct, frozen=True, order=True):
    """One breach. ``objects``: kind and name of each object concerned; ``message``: a sentence."""

    kind: FindingKind
    objects: tuple[str, ...]
    message: str

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for the same breach found again, whatever the numbers in its message."""
        return self.kind, *self.objects


Steps = Iterator[AuditFinding | None]
"""A rule at work: None after each object without a finding, so that the work can be paused."""


class AuditedCluster(Struct, frozen=True, kw_only=True):
    """Objects of a cluster at ``now`` (seconds since the epoch), and what accounting says of them.

    ``pods``: of all schedulers; ``pod_groups``: those of scheduling.k8s.io with their claims, by
    (namespace, name); None where they were not read.
    ``queue_allocated``: queue to what its bound pods cost. ``staleness_grace``: seconds that a gang
    may run below minMember, negative: forever.
    """

    now: float
    pods: Collection[Pod]
    claims: Collection[ResourceClaim] = ()
    nodes: Collection[Node] = ()
    slices: Collection[ParsedSlice] = ()
    classes: Collection[DeviceClass] = ()
    volume_claims: Collection[PersistentVolumeClaim] = ()
    pod_groups: Mapping[GroupKey, GroupClaims] | None = None
    gangs: Collection[Gang] = ()
    queues: Sequence[QueueInfo] = ()
    queue_allocated: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    scheduler_names: frozenset[str] = frozenset({"kai-scheduler"})
    staleness_grace: float = 60.0

    def is_settled(self, since: float) -> bool:
        """Whether what began at ``since`` has lasted longer than any ordinary transition.

        A time in the future, beyond what clocks differ by, is no reason to wait for it.
        """
        return not -CLOCK_SKEW < self.now - since < GRACE


def is_unfinished(pod: Pod) -> bool:
    """Whether the pod is bound, has not ended and is not terminating."""
    return (
        bool(pod.spec.node_name)
        and not is_finished(pod)
        and pod.metadata.deletion_timestamp is None
    )


def bound_since(pod: Pod) -> float:
    """When the pod was bound, as far as it says so; 0 where nothing does."""
    scheduled = condition_of(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "True" and scheduled.last_transition_time:
        return scheduled.last_transition_time.timestamp()
    return pod.status.start_time.timestamp() if pod.status.start_time else 0.0


def condition_of(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """The condition of this type."""
    return next((each for each in conditions if each.type == kind), None)


def name_of(namespace: str, name: str) -> str:
    """A name as messages write it."""
    return f"{namespace}/{name}" if namespace else name


class Confirmation:
    """Confirms findings that last, as opposed to effects of late watches.

    Watches of several kinds bring changes at different times, so a single look may find a pod whose
    claim has not arrived yet. A finding is confirmed if every look for some time has it, the last
    one after each kind has caught up with all that any kind had shown at the first look.
    """

    def __init__(self) -> None:
        """No look has found anything yet."""
        self._first: dict[tuple[str, ...], tuple[float, int]] = {}

    def confirm(
        self, findings: Iterable[AuditFinding], now: float, shown: int = 0, newest: int = 0
    ) -> list[AuditFinding]:
        """Of the findings of a look that began at ``now`` (seconds) those that have lasted.

        At least two looks, ``CONFIRM_SECONDS`` apart, have found each of them. ``shown``: the
        version up to which every kind was shown at the look, ``newest``: the greatest of any.
        """
        found = list(findings)
        known, this = self._first, (now, newest)
        self._first = {each.identity: known.get(each.identity, this) for each in found}
        return [each for each in found if _has_lasted(self._first[each.identity], now, shown)]


def _has_lasted(first: tuple[float, int], now: float, shown: int) -> bool:
    since, newest = first
    return now - since >= CONFIRM_SECONDS and shown >= newest
