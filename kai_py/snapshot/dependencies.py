"""What a pod was derived from, so that a change of any of it derives the pod again.

Beside the keys of ``object_cache`` there are those of kinds of owners, ("kind", group, kind), and
of the schedulers of a group, ("schedulers", namespace, group). Looking an object up through
``RecordingOwners`` records the key, found or not: an owner, claim or volume that appears later
finds the pods that wait for it.
"""

from collections.abc import Callable, Iterable, Mapping

from kai_py.api.records.core import ObjectMetadata, OwnerReference, Pod
from kai_py.api.records.document import Document
from kai_py.api.records.job import Job
from kai_py.api.records.resource import (
    ResourceClaim,
)
from kai_py.api.records.storage import (
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kai_py.grouping.owners import Absence, GroupKind, OwnerObject, kind_of
from kai_py.snapshot.group_schedulers import GroupSchedulers, group_key
from kai_py.snapshot.object_cache import Key, ObjectCache


class Dependencies:
    """Which pods (by uid) were derived from which objects."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: dict[str, tuple[Key, ...]] = {}
        self._pods: dict[Key, dict[str, None]] = {}

    def set(self, pod_uid: str, keys: Iterable[Key]) -> None:
        """Replace what ``pod_uid`` depends on."""
        wanted = tuple(dict.fromkeys(keys))
        if self._keys.get(pod_uid) == wanted:
            return
        self.forget(pod_uid)
        self._keys[pod_uid] = wanted
        for key in wanted:
            self._pods.setdefault(key, {})[pod_uid] = None

    def forget(self, pod_uid: str) -> None:
        """The pod depends on nothing any more."""
        for key in self._keys.pop(pod_uid, ()):
            pods = self._pods[key]
            pods.pop(pod_uid, None)
            if not pods:
                del self._pods[key]

    def of(self, keys: Iterable[Key]) -> tuple[str, ...]:
        """The pods that depend on any of ``keys``, in the order in which they came."""
        return tuple(dict.fromkeys(uid for key in keys for uid in self._pods.get(key, ())))

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """The pods that depend on any object of ``kind``."""
        return tuple(uid for uid, keys in self._keys.items() if any(key[0] == kind for key in keys))


class OwnerKinds:
    """Which kinds of owners can be known: those that are followed and may be read."""

    ALWAYS_FOLLOWED = frozenset(
        {
            GroupKind("", "Pod"),
            GroupKind("batch", "Job"),
            *(GroupKind("apps", kind) for kind in ("ReplicaSet", "Deployment", "StatefulSet")),
        }
    )
    NEVER_FOLLOWED = frozenset({GroupKind("", "Node")})

    def __init__(self, follow: Callable[[GroupKind], None] | None) -> None:
        """``follow`` is told once of every kind that a pod turns out to need."""
        self._follow = follow
        self._readable = dict.fromkeys(self.ALWAYS_FOLLOWED, True)
        self._readable.update(dict.fromkeys(self.NEVER_FOLLOWED, False))

    def absence(self, kind: GroupKind) -> Absence:
        """Why an object of ``kind`` is not there."""
        if kind not in self._readable:
            self._readable[kind] = self._follow is not None
            if self._follow is not None:
                self._follow(kind)
        return Absence.UNKNOWN if self._readable[kind] else Absence.CLOSED

    def set(self, kind: GroupKind, *, readable: bool) -> None:
        """Note whether objects of ``kind`` can be read."""
        self._readable[kind] = readable


class RecordingOwners:
    """Looks objects up and remembers every key it was asked for."""

    def __init__(
        self,
        objects: ObjectCache,
        pods: Mapping[str, Pod],
        kinds: OwnerKinds,
        group_schedulers: GroupSchedulers,
    ) -> None:
        """Look up in ``objects``, pods by uid in ``pods``."""
        self._objects = objects
        self._pods = pods
        self._kinds = kinds
        self._group_schedulers = group_schedulers
        self.seen: list[Key] = []

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        """The owner ``reference`` points to."""
        self.seen.append(("uid", reference.uid))
        found = self._objects.by_uid(reference.uid) or self._pods.get(reference.uid)
        if isinstance(found, Job | Pod | ObjectMetadata | Document):
            return found
        kind = kind_of(reference)
        self.seen.append(("kind", *kind))
        return self._kinds.absence(kind)

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        """A watched object by collection and name."""
        return self._get(collection, namespace, name)

    def below(self, collection: str, namespace: str, parent: str) -> tuple[Document, ...]:
        """Groups that name the composite group ``parent`` as theirs, by name."""
        self.seen.append(("below", collection, namespace, parent))
        return self._objects.below(collection, namespace, parent)

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        """The schedulers that pods of the native group of ``pod`` name, in order."""
        key = group_key(pod)
        if key is None:
            return ()
        self.seen.append(key)
        return self._group_schedulers.of(key)

    def namespace(self, name: str) -> ObjectMetadata | None:
        """The namespace called ``name``."""
        found = self._get("namespaces", "", name)
        return found if isinstance(found, ObjectMetadata) else None

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """A ResourceClaim."""
        self.seen.append(("resourceclaims", namespace, name))
        return self._objects.claim(namespace, name)

    def class_for(self, resource: str) -> str:
        """The DeviceClass that answers to an extended resource, or ""."""
        self.seen.append(("extendedresources", "", resource))
        return self._objects.class_for(resource)

    def volume_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """A PersistentVolumeClaim."""
        found = self._get("persistentvolumeclaims", namespace, name)
        return found if isinstance(found, PersistentVolumeClaim) else None

    def volume(self, name: str) -> PersistentVolume | None:
        """A PersistentVolume."""
        found = self._get("persistentvolumes", "", name)
        return found if isinstance(found, PersistentVolume) else None

    def storage_class(self, name: str) -> StorageClass | None:
        """A StorageClass."""
        found = self._get("storageclasses", "", name)
        return found if isinstance(found, StorageClass) else None

    def csi_driver(self, name: str) -> CSIDriver | None:
        """A CSIDriver."""
        found = self._get("csidrivers", "", name)
        return found if isinstance(found, CSIDriver) else None

    def _get(self, kind: str, namespace: str, name: str) -> object | None:
        self.seen.append((kind, namespace, name))
        return self._objects.get(kind, namespace, name)
