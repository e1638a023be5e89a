"""Objects that pods were derived from, so that a change of any of them derives the pod again.

In addition to the keys of ``object_cache`` there are keys of kinds of owners, ("kind", group,
kind), and of the schedulers of a group, ("schedulers", namespace, group). Looking an object up
through ``RecordingOwners`` records the key, found or not: an owner, claim or volume that appears
later finds the pods that wait for it.

Deleted owners are kept until their last pod is gone: those pods stay what they were.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kai_py.api.records.core import OwnerReference, PartialObjectMetadata, Pod
from kai_py.api.records.job import Job
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.records.storage import (
    CSIDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.composite_groups import COMPOSITE_GROUPS, CompositeGroups, Key, within
from kai_py.grouping.owner_chain import Absence, GroupKind, OwnerObject, kind_of
from kai_py.snapshot.object_cache import ObjectCache

GroupSchedulersKey = tuple[str, ...]


def group_schedulers_key(pod: Pod) -> GroupSchedulersKey | None:
    """The key of the group that ``pod`` names, None if it names none."""
    namespace = pod.metadata.namespace
    group, workload = pod.spec.scheduling_group, pod.spec.workload_ref
    if group is not None:
        return "schedulers", namespace, group.pod_group_name
    if workload is not None:
        parts = (workload.name, workload.pod_group, workload.pod_group_replica_key)
        return "schedulers", namespace, *parts
    return None


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
        self.clear(pod_uid)
        self._keys[pod_uid] = wanted
        for key in wanted:
            self._pods.setdefault(key, {})[pod_uid] = None

    def clear(self, pod_uid: str) -> None:
        """The pod depends on nothing any more."""
        for key in self._keys.pop(pod_uid, ()):
            pods = self._pods[key]
            pods.pop(pod_uid, None)
            if not pods:
                del self._pods[key]

    def dependents(self, keys: Iterable[Key]) -> tuple[str, ...]:
        """The pods that depend on any of ``keys``, in the order in which they came."""
        return tuple(dict.fromkeys(uid for key in keys for uid in self._pods.get(key, ())))

    def dependents_of_kind(self, kind: str) -> tuple[str, ...]:
        """The pods that depend on any object of ``kind``."""
        return tuple(uid for uid, keys in self._keys.items() if any(key[0] == kind for key in keys))


class ReadableKinds:
    """The kinds of owners that can be known: those that are watched and may be read."""

    ALWAYS_WATCHED = frozenset(
        {
            GroupKind("", "Pod"),
            GroupKind("batch", "Job"),
            *(GroupKind("apps", kind) for kind in ("ReplicaSet", "Deployment", "StatefulSet")),
        }
    )
    NEVER_WATCHED = frozenset({GroupKind("", "Node")})

    def __init__(
        self,
        watch_kind: Callable[[GroupKind], None] | None,
        on_unneeded: Callable[[GroupKind], None] = lambda _: None,
    ) -> None:
        """``watch_kind`` is called once with every kind that a pod turns out to need.

        ``on_unneeded`` is called with one that cannot be read when its last pod is gone.
        """
        self._watch_kind = watch_kind
        self._on_unneeded = on_unneeded
        self._readable = dict.fromkeys(self.ALWAYS_WATCHED, True)
        self._readable.update(dict.fromkeys(self.NEVER_WATCHED, False))

    def absence(self, kind: GroupKind) -> Absence:
        """Why an object of ``kind`` is not there."""
        if kind not in self._readable:
            self._readable[kind] = self._watch_kind is not None
            if self._watch_kind is not None:
                self._watch_kind(kind)
        return Absence.NOT_FOUND if self._readable[kind] else Absence.UNREADABLE

    def set(self, kind: GroupKind, *, readable: bool) -> None:
        """Note whether objects of ``kind`` can be read."""
        self._readable[kind] = readable

    def drop_unneeded(self, dependencies: Dependencies) -> None:
        """Forget kinds that cannot be read and that own no pod any more: any text is a kind."""
        unreadable = [kind for kind, readable in self._readable.items() if not readable]
        for kind in unreadable:
            if kind not in self.NEVER_WATCHED and not dependencies.dependents((("kind", *kind),)):
                del self._readable[kind]
                self._on_unneeded(kind)


class RecordingOwners:
    """Looks up the objects that one pod names and records their keys, found or not."""

    def __init__(
        self,
        objects: ObjectCache,
        pods: Mapping[str, Pod],
        kinds: ReadableKinds,
        group_schedulers: Callable[[GroupSchedulersKey], tuple[str, ...]],
    ) -> None:
        """Look up in ``objects``, pods by uid in ``pods``; ``group_schedulers``: of a group."""
        self._objects = objects
        self._pods = pods
        self._kinds = kinds
        self._group_schedulers = group_schedulers
        self.looked_up: list[Key] = []

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        """The owner ``reference`` points to."""
        self.looked_up.append(("uid", reference.uid))
        found = self._objects.by_uid(reference.uid) or self._pods.get(reference.uid)
        if isinstance(found, Job | Pod | PartialObjectMetadata | Unstructured):
            return found
        kind = kind_of(reference)
        self.looked_up.append(("kind", *kind))
        return self._kinds.absence(kind)

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        """A watched object by collection and name."""
        return self._get(collection, namespace, name)

    def groups_within(self, root: Unstructured) -> CompositeGroups:
        """The groups by the one above them; of these, those within ``root`` are read."""
        self.looked_up.append(within(COMPOSITE_GROUPS, root))
        return self._objects.composite_groups

    def kept(self, key: Key) -> dict[object, Any]:
        """What was made of an object that was looked up, emptied when that changes."""
        return self._objects.kept(key)

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        """The schedulers that pods of the native group of ``pod`` name, in order."""
        key = group_schedulers_key(pod)
        if key is None:
            return ()
        self.looked_up.append(key)
        return self._group_schedulers(key)

    def namespace(self, name: str) -> PartialObjectMetadata | None:
        """The namespace called ``name``."""
        found = self._get("namespaces", "", name)
        return found if isinstance(found, PartialObjectMetadata) else None

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """A ResourceClaim."""
        self.looked_up.append(("resourceclaims", namespace, name))
        return self._objects.claim(namespace, name)

    def device_class_for(self, resource: str) -> str:
        """The DeviceClass that serves an extended resource, or ""."""
        self.looked_up.append(("extendedresources", "", resource))
        return self._objects.device_class_for(resource)

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
        self.looked_up.append((kind, namespace, name))
        return self._objects.get(kind, namespace, name)


class DeletedOwners:
    """Deleted owners that ``objects`` keeps for as long as pods depend on them."""

    def __init__(self, objects: ObjectCache, dependencies: Dependencies) -> None:
        """Start empty."""
        self._objects = objects
        self._dependencies = dependencies
        self._deleted: dict[str, None] = {}

    def keep(self, old: object | None, new: object | None) -> bool:
        """Whether the change deletes an owner that still has pods; then it is kept."""
        if isinstance(new, OwnerObject):
            self._deleted.pop(new.metadata.uid, None)
        if new is not None or not isinstance(old, OwnerObject):
            return False
        uid = old.metadata.uid
        if not self._has_pods(uid):
            return False
        self._objects.keep_deleted_owner(old)
        self._deleted[uid] = None
        return True

    def drop_unused(self) -> None:
        """Drop the deleted owners whose last pod is gone."""
        for uid in tuple(self._deleted):
            if not self._has_pods(uid):
                del self._deleted[uid]
                self._objects.drop_deleted_owner(uid)

    def _has_pods(self, uid: str) -> bool:
        return bool(self._dependencies.dependents((("uid", uid),)))
