"""Quarantine: objects that could not be processed are set aside one by one; the others go on.

An exception while one object is read, derived or counted is a bug of the scheduler, or caused by an
object that the code does not expect. Either way it affects only that object, which gets an event
(``InvalidObject``) for each thing that goes wrong, and is tried again with its next change.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.api.numbers import shortened
from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.gang import Owner
from kai_py.snapshot.tables.pod_table import ObjectTable

KINDS = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "namespaces": ("v1", "Namespace"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "persistentvolumes": ("v1", "PersistentVolume"),
    "jobs": ("batch/v1", "Job"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "deployments": ("apps/v1", "Deployment"),
    "statefulsets": ("apps/v1", "StatefulSet"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "storageclasses": ("storage.k8s.io/v1", "StorageClass"),
    "csinodes": ("storage.k8s.io/v1", "CSINode"),
    "csidrivers": ("storage.k8s.io/v1", "CSIDriver"),
    "csistoragecapacities": ("storage.k8s.io/v1", "CSIStorageCapacity"),
    "volumeattachments": ("storage.k8s.io/v1", "VolumeAttachment"),
    "resourceclaims": ("resource.k8s.io/v1", "ResourceClaim"),
    "resourceclaimtemplates": ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    "resourceslices": ("resource.k8s.io/v1", "ResourceSlice"),
    "deviceclasses": ("resource.k8s.io/v1", "DeviceClass"),
    "devicetaintrules": ("resource.k8s.io/v1", "DeviceTaintRule"),
    "queues.scheduling.kai.io": ("scheduling.kai.io/v1alpha1", "Queue"),
    "queues.scheduling.run.ai": ("scheduling.run.ai/v2", "Queue"),
    "podgroups.scheduling.run.ai": ("scheduling.run.ai/v2alpha2", "PodGroup"),
    "topologies.kai.scheduler": ("kai.scheduler/v1alpha1", "Topology"),
}
"""API version and kind of the records that do not say it, by collection."""


@dataclass(frozen=True, slots=True)
class InvalidObject:
    """An object that is set aside, in full or in part, and why."""

    object: Owner
    message: str


OnFailure = Callable[[InvalidObject, Exception], None]
"""Called with every new failure; it may raise, and does where a failure must not be contained."""


def raise_failure(_object: InvalidObject, error: Exception) -> None:
    """Contain nothing: the exception ends what is being done."""
    raise error


def ignore_failure(_object: InvalidObject, _error: Exception) -> None:
    """Contain the failure; the snapshot lists the object."""


def reference(kind: str, changed: object) -> Owner:
    """The reference to a record of the collection ``kind``."""
    meta = getattr(changed, "metadata", None)
    if not isinstance(meta, ObjectMeta):
        meta = ObjectMeta(name=str(getattr(changed, "name", "")))
    api_version, name = KINDS.get(kind, ("", kind))
    api_version = getattr(changed, "api_version", "") or api_version
    name = getattr(changed, "kind", "") or name
    return Owner(api_version, name, meta.namespace, meta.name, meta.uid)


class Quarantine:
    """Objects that could not be processed, with the part that failed."""

    def __init__(self, on_failure: OnFailure = raise_failure) -> None:
        """Start empty."""
        self._on_failure = on_failure
        self._parts: dict[Owner, dict[str, str]] = {}

    def report(self, affected: Owner, part: str, error: Exception) -> InvalidObject:
        """Set ``part`` of an object aside; the listener is called once."""
        reason = shortened(f"{type(error).__name__}: {error}")
        message = f"it cannot be processed ({part}: {reason}) and is set aside until it changes"
        invalid = InvalidObject(affected, message)
        parts = self._parts.setdefault(affected, {})
        if parts.get(part) != message:
            parts[part] = message
            self._on_failure(invalid, error)
        return invalid

    def apply(self, table: ObjectTable, kind: str, old: object | None, new: object | None) -> None:
        """Pass a change of an object on to a table; a version that failed was never taken in."""
        part, record = type(table).__name__, new if new is not None else old
        if self._parts and part in self._parts.get(reference(kind, record), ()):
            old = None
        try:
            if old is not None or new is not None:
                table.apply(kind, old, new)
        except Exception as error:
            self.report(reference(kind, record), part, error)
        else:
            self.clear_record(kind, record, part)

    def forget(self, affected: Owner) -> None:
        """Forget an object that was deleted."""
        self._parts.pop(affected, None)

    def clear(self, affected: Owner, part: str) -> None:
        """Note that the part of the object has been processed without an error."""
        parts = self._parts.get(affected) if self._parts else None
        if parts is not None and parts.pop(part, None) is not None and not parts:
            del self._parts[affected]

    def clear_record(self, kind: str, record: object, part: str) -> None:
        """As ``clear``, for a record of the collection ``kind``."""
        if self._parts:
            self.clear(reference(kind, record), part)

    def snapshot(self) -> tuple[InvalidObject, ...]:
        """All invalid objects, in order of their references."""
        listed = sorted(self._parts.items(), key=lambda item: _order(item[0]))
        return tuple(
            InvalidObject(affected, message)
            for affected, parts in listed
            for message in parts.values()
        )


def _order(affected: Owner) -> tuple[str, ...]:
    return affected.kind, affected.namespace, affected.name, affected.uid
