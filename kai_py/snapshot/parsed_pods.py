"""What does a pod say, and what do the objects say that it names?

That changes only with the pod or with one of these objects, and not with where the pod goes: what
was read of a pod that waits is kept until then, so that assuming it on a node costs no second look.
Once it has a node, little is asked of it, and nothing is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.grouping.gang import GangSpec
from kai_py.grouping.owners import Owners
from kai_py.snapshot.dependencies import Dependencies, RecordingOwners
from kai_py.snapshot.derivation import GpuMemory, PodDemand, pod_demand
from kai_py.snapshot.placeholders import ExpectedMembers, expected_members
from kai_py.snapshot.settings import DeviceRegistry
from kai_py.snapshot.shape import ShapeTable
from kai_py.snapshot.suspended_jobs import with_admission_defaults

Identify = Callable[[Pod, Owners], GangSpec]


@dataclass(frozen=True, slots=True)
class ParsedPod:
    """``pod`` as admission leaves it; ``spec`` is None for pods that are not ours.

    ``expected``: what pods of its gang that may not exist yet are like.
    """

    pod: Pod
    demand: PodDemand
    gang_spec: GangSpec | None
    expected: tuple[ExpectedMembers, ...] = ()


class ParsedPods:
    """Reads pods, notes what they depend on, and keeps what it is told to."""

    def __init__(
        self,
        identify: Identify,
        devices: DeviceRegistry,
        gpu_memory: GpuMemory,
        dependencies: Dependencies,
        owners: Callable[[], RecordingOwners],
    ) -> None:
        """``owners``: where one pod looks up what it names."""
        self._identify = identify
        self._devices = devices
        self._gpu_memory = gpu_memory
        self._dependencies = dependencies
        self._owners = owners
        self._shapes = ShapeTable()
        self._cached: dict[str, ParsedPod] = {}

    def parse(self, pod: Pod, *, ours: bool, labels_matter: bool) -> ParsedPod:
        """What is kept of the pod, or else what is read now; ``labels_matter`` as for shapes."""
        kept = self._cached.get(pod.metadata.uid)
        if kept is not None:
            return kept
        owners, accounting = self._owners(), self._devices.accounting
        admitted, claims = with_admission_defaults(pod, owners)
        asks = pod_demand(
            admitted, owners, self._shapes, accounting, labels_matter=labels_matter, claims=claims
        )
        spec = self._identify(admitted, owners) if ours else None
        expected: tuple[ExpectedMembers, ...] = ()
        if spec is not None and spec.expected:
            expected = expected_members(
                spec.expected, owners, self._shapes, accounting, self._gpu_memory
            )
        self._dependencies.set(pod.metadata.uid, owners.looked_up)
        return ParsedPod(admitted, asks, spec, expected)

    def gang_key(self, pod: Pod) -> str:
        """The key of the gang of a pod that asks for nothing any more."""
        owners = self._owners()
        key = self._identify(pod, owners).key
        self._dependencies.set(pod.metadata.uid, owners.looked_up)
        return key

    def cache(self, parsed: ParsedPod) -> None:
        """It holds until it is forgotten."""
        self._cached[parsed.pod.metadata.uid] = parsed

    def forget(self, uid: str) -> None:
        """The pod, or something that it names, has changed, or it has gone its way."""
        self._cached.pop(uid, None)
