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
from kai_py.snapshot.awaited import Expected, expected_pods
from kai_py.snapshot.dependencies import Dependencies, RecordingOwners
from kai_py.snapshot.derivation import Demand, demand
from kai_py.snapshot.gpu_holdings import CardMemory
from kai_py.snapshot.settings import DeviceBook
from kai_py.snapshot.shape import ShapeTable
from kai_py.snapshot.suspended import as_admitted

Identify = Callable[[Pod, Owners], GangSpec]


@dataclass(frozen=True, slots=True)
class Reading:
    """``pod`` as admission leaves it; ``spec`` is None for pods that are not ours.

    ``expected``: what pods of its gang that may not exist yet are like.
    """

    pod: Pod
    asks: Demand
    spec: GangSpec | None
    expected: tuple[Expected, ...] = ()


class Readings:
    """Reads pods, notes what they depend on, and keeps what it is told to."""

    def __init__(
        self,
        identify: Identify,
        devices: DeviceBook,
        card_memory: CardMemory,
        dependencies: Dependencies,
        owners: Callable[[], RecordingOwners],
    ) -> None:
        """``owners``: where one pod looks up what it names."""
        self._identify = identify
        self._devices = devices
        self._card_memory = card_memory
        self._dependencies = dependencies
        self._owners = owners
        self._shapes = ShapeTable()
        self._kept: dict[str, Reading] = {}

    def of(self, pod: Pod, *, ours: bool, labels_matter: bool) -> Reading:
        """What is kept of the pod, or else what is read now; ``labels_matter`` as for shapes."""
        kept = self._kept.get(pod.metadata.uid)
        if kept is not None:
            return kept
        owners, accounting = self._owners(), self._devices.accounting
        admitted, claims = as_admitted(pod, owners)
        asks = demand(
            admitted, owners, self._shapes, accounting, labels_matter=labels_matter, claims=claims
        )
        spec = self._identify(admitted, owners) if ours else None
        expected: tuple[Expected, ...] = ()
        if spec is not None and spec.awaited:
            expected = expected_pods(
                spec.awaited, owners, self._shapes, accounting, self._card_memory
            )
        self._dependencies.set(pod.metadata.uid, owners.seen)
        return Reading(admitted, asks, spec, expected)

    def gang(self, pod: Pod) -> str:
        """The key of the gang of a pod that asks for nothing any more."""
        owners = self._owners()
        key = self._identify(pod, owners).key
        self._dependencies.set(pod.metadata.uid, owners.seen)
        return key

    def keep(self, reading: Reading) -> None:
        """It holds until it is forgotten."""
        self._kept[reading.pod.metadata.uid] = reading

    def forget(self, uid: str) -> None:
        """The pod, or something that it names, has changed, or it has gone its way."""
        self._kept.pop(uid, None)
