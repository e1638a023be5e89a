"""Settings of the snapshot builder, and the registry of devices that it depends on."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from kai_py.api.node_departures import BUILT_IN, DepartureSignals
from kai_py.api.records.core import ObjectMeta, Pod
from kai_py.api.records.resource import ResourceSlice
from kai_py.snapshot.accounting import Accounting
from kai_py.snapshot.device_objects import DeviceObjects
from kai_py.snapshot.tables.queues import DeviceLimit, QueueInfo


class SnapshotSettings(Struct, frozen=True):
    """Settings of the builder, from the configuration.

    Nodes and our pods belong to the pool that their label ``pool_label`` names, or to the pool
    without a name; those of other pools are ignored. Without a ``pool_label`` there is one pool.
    ``nomination_seconds``: how long a node stays reserved. ``max_grace_seconds``: terminating pods
    of which more is left count as running. ``preemptible_below``: gangs of a lower
    priority are preemptible unless they say otherwise; None: all are.
    ``shared_claim_queue_label``: the label by which claims for GPUs that pods may share must name
    their queue; "" where they need not. ``default_queue`` exists unless there is an object of its
    name. ``open_queues``: whether any namespace may use a queue of ours that names none.
    ``departure_signals``: by which nodes are known that are about to go. ``gives_shared_gpus``:
    whether a pod that shares GPUs can only start if the webhook has prepared its container.
    """

    scheduler_name: str = "kai-scheduler"
    scheduler_aliases: tuple[str, ...] = ()
    nomination_seconds: float = 300.0
    max_grace_seconds: float = 1800.0
    preemptible_below: int | None = None
    pool_label: str = ""
    pool: str = ""
    shared_claim_queue_label: str = ""
    default_queue: QueueInfo | None = None
    open_queues: bool = True
    departure_signals: DepartureSignals = BUILT_IN
    gives_shared_gpus: bool = False

    @property
    def scheduler_names(self) -> frozenset[str]:
        """All names under which pods are ours."""
        return frozenset((self.scheduler_name, *self.scheduler_aliases))

    def names_us(self, pod: Pod) -> bool:
        """Whether the pod names this scheduler."""
        named = pod.spec.scheduler_name
        return named == self.scheduler_name or named in self.scheduler_aliases

    def may_allocate(self, slice_: ResourceSlice) -> bool:
        """Whether devices of the slice may be allocated in the pool.

        Those of one node are where the node is; others belong to the pool that their slice names,
        so that no two pools allocate the same device.
        """
        return bool(slice_.spec.node_name) or self.in_pool(slice_.metadata)

    def in_pool(self, meta: ObjectMeta) -> bool:
        """Whether an object belongs to the pool."""
        return not self.pool_label or meta.labels.get(self.pool_label, "") == self.pool


DEFAULT_SETTINGS = SnapshotSettings()


class DeviceRegistry(Protocol):
    """Knows what devices and classes stand for."""

    accounting: Accounting

    def set_limits(self, limits: Iterable[DeviceLimit]) -> None:
        """Count devices by these limits from the next ``sync`` on."""

    def prepare(self, objects: DeviceObjects) -> Iterator[None]:
        """Take in most of the objects in steps of bounded length, for the next ``sync``."""

    def sync(self, objects: DeviceObjects) -> bool:
        """Take in the objects; whether what classes stand for has changed."""

    def published_gpu_memory(self) -> Mapping[str, float]:
        """MiB of a GPU of which parts are given, by node; the same object while it is the same."""
