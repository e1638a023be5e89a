"""How much storage can drivers still make, of which class and for which nodes?

CSIStorageCapacity objects, one per segment of the cluster and storage class, as far as they can be
used at all: kube-scheduler, too, passes over those without a capacity or without a topology.
"""

from dataclasses import dataclass

from kai_py.api.quantity import QuantityError
from kai_py.api.records.core import LabelSelector
from kai_py.api.records.storage import CSIStorageCapacity
from kai_py.snapshot.resources import amount


@dataclass(frozen=True, slots=True)
class NodeStorageCapacity:
    """Volumes of ``storage_class`` up to ``largest`` bytes for the nodes that ``nodes`` selects."""

    storage_class: str
    max_volume_size: float
    nodes: LabelSelector


class StorageCapacities:
    """What drivers offer, by namespace and name of the object that says so."""

    def __init__(self) -> None:
        """Nothing is offered yet."""
        self._known: dict[tuple[str, str], NodeStorageCapacity] = {}
        self._snapshot: tuple[NodeStorageCapacity, ...] | None = ()

    def apply(self, old: object | None, new: object | None) -> None:
        """Take in one change of a CSIStorageCapacity."""
        if isinstance(old, CSIStorageCapacity):
            self._snapshot = None
            self._known.pop((old.metadata.namespace, old.metadata.name), None)
        if isinstance(new, CSIStorageCapacity):
            self._snapshot = None
            offer = _parse_capacity(new)
            if offer is not None:
                self._known[new.metadata.namespace, new.metadata.name] = offer

    def snapshot(self) -> tuple[NodeStorageCapacity, ...]:
        """All of them, by name."""
        if self._snapshot is None:
            self._snapshot = tuple(
                offer for _, offer in sorted(self._known.items(), key=_object_name)
            )
        return self._snapshot


def _object_name(item: tuple[tuple[str, str], NodeStorageCapacity]) -> tuple[str, str]:
    return item[0]


def _parse_capacity(record: CSIStorageCapacity) -> NodeStorageCapacity | None:
    """An offer whose size can't be read is none; the size of one volume counts before the sum."""
    size = record.capacity if record.maximum_volume_size is None else record.maximum_volume_size
    if size is None or record.node_topology is None:
        return None
    try:
        return NodeStorageCapacity(
            record.storage_class_name, amount("storage", size), record.node_topology
        )
    except QuantityError:
        return None
