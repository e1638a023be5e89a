"""The owner chain of a pod, from its nearest controller to the top, and how other objects are read.

The walk follows controller references, or the only reference where none controls. It ends at an
object without an owner, at a kind that is not served or that we may not read, and at an owner that
is not known (yet): then ``unknown`` names it, because a decision from below would be premature.
Whoever creates an object writes its owner references. One with the uid of an object of another name
or namespace names an owner that does not exist, as it does for the garbage collector.

Grouping reads other objects through ``Owners``, by reference or name, from a cache that the caller
keeps. An object that is missing is an ``Absence``, which says whether it may still come. Pods are
grouped again when such an object, or its kind, appears.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct, field

from kai_py.api.records.core import ObjectMeta, OwnerReference, PartialObjectMetadata, Pod
from kai_py.api.records.job import Job
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.composite_groups import CompositeGroups, Key

OwnerObject = Job | Pod | PartialObjectMetadata | Unstructured


class GroupKind(NamedTuple):
    """A kind in any version; the core group is empty."""

    group: str
    kind: str

    def __str__(self) -> str:
        """As CRDs and kubectl write it: ``JobSet.jobset.x-k8s.io``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


JOB = GroupKind("batch", "Job")
POD = GroupKind("", "Pod")


class Absence(Enum):
    """Why an object is missing."""

    NOT_FOUND = "not known"
    """Its kind is watched, or about to be: the object may still appear, or was deleted."""
    UNREADABLE = "closed"
    """Its kind is not served, or may not be read: its content stays unknown."""


class Owners(Protocol):
    """A read-only view of owners, namespaces and the objects that pods name as their group."""

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        """The object that ``reference`` points to, by uid."""

    def namespace(self, name: str) -> PartialObjectMetadata | None:
        """The namespace called ``name``."""

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        """An object that another one names, for example the group in a pod's annotation.

        ``collection`` is its plural, a custom resource's with the group:
        ``podgroups.scheduling.run.ai``.
        """

    def groups_within(self, root: Unstructured) -> CompositeGroups:
        """The groups by the one above them; of these, those within ``root`` are read."""

    def kept(self, key: Key) -> dict[object, Any]:
        """What was made of an object that was looked up, emptied when that changes."""

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        """The schedulers that pods of the native group of ``pod`` name, in order."""


def _no_object(_collection: str, _namespace: str, _name: str) -> object | None:
    return None


class KnownOwners(Struct, frozen=True):
    """Owners of which only a few objects can be read, and no namespace.

    ``found``: by uid; of others it is known that they are ``missing``. ``find_named``: reads an
    object by its collection, namespace and name.
    """

    found: Mapping[str, OwnerObject | Absence] = field(default_factory=dict)
    missing: Absence = Absence.UNREADABLE
    find_named: Callable[[str, str, str], object | None] = _no_object

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        """The object that ``reference`` points to."""
        return self.found.get(reference.uid, self.missing)

    def namespace(self, name: str) -> PartialObjectMetadata | None:
        """No namespace."""
        del name
        return None

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        """An object that another one names."""
        return self.find_named(collection, namespace, name)

    def groups_within(self, root: Unstructured) -> CompositeGroups:
        """No groups."""
        del root
        return CompositeGroups()

    def kept(self, key: Key) -> dict[object, Any]:
        """Nothing is kept."""
        del key
        return {}

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        """No schedulers."""
        del pod
        return ()


def kind_of(reference: OwnerReference) -> GroupKind:
    """The kind of the object that ``reference`` points to."""
    return _group_kind(reference.api_version, reference.kind)


@lru_cache(maxsize=4096)
def _group_kind(api_version: str, kind: str) -> GroupKind:
    return GroupKind(api_version.rpartition("/")[0], kind)


MAX_CHAIN_LENGTH = 10


class OwnerLink(msgspec.Struct, frozen=True):
    """An owner: the reference to it, the object, and its kind."""

    reference: OwnerReference
    found: OwnerObject
    kind: GroupKind


class OwnerChain(msgspec.Struct, frozen=True):
    """``owners`` are nearest first, as are ``metas``, which begin with the pod's.

    ``unknown`` is where the walk broke off, None if nowhere. ``groups``: what the pod names as its
    group, and the objects behind that; they take precedence over the pod and its owners.
    """

    pod: Pod
    metas: tuple[ObjectMeta, ...]
    owners: tuple[OwnerLink, ...] = ()
    unknown: OwnerReference | None = None
    groups: tuple[ObjectMeta, ...] = ()

    @property
    def metadata_sources(self) -> tuple[ObjectMeta, ...]:
        """All metadata whose labels and annotations count, in order of precedence."""
        return self.groups + self.metas if self.groups else self.metas

    def nearest(self, *keys: str) -> str:
        """The value of the first annotation or label of ``keys`` that the nearest object has."""
        for meta in self.metadata_sources:
            for key in keys:
                value = meta.annotations.get(key) or meta.labels.get(key)
                if value:
                    return value
        return ""

    def values(self, keys: frozenset[str]) -> dict[str, str]:
        """The nearest object's value under each of ``keys``, as annotation or else as label."""
        found: dict[str, str] = {}
        for meta in reversed(self.metadata_sources):
            for mapping in (meta.labels, meta.annotations):
                if not keys.isdisjoint(mapping):
                    found.update(
                        {key: text for key, text in mapping.items() if text and key in keys}
                    )
        return found


def owner_names(chain: OwnerChain) -> tuple[tuple[str, str], ...]:
    """Kind and name of each owner, and of the one above them that could not be read."""
    references = [link.reference for link in chain.owners]
    above = controlling_owner(chain.metas[-1])
    if above is not None and len(references) < MAX_CHAIN_LENGTH:
        references.append(above)
    return _names_of(tuple(references))


# Pods of one workload, which are read one after the other, share one copy.
@lru_cache(maxsize=4096)
def _names_of(references: tuple[OwnerReference, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((each.kind, each.name) for each in references)


def owner_chain(pod: Pod, owners: Owners) -> OwnerChain:
    """Walk from ``pod`` to the top. Cost: one look-up per owner."""
    links: list[OwnerLink] = []
    metas = [pod.metadata]
    unknown: OwnerReference | None = None
    reference = controlling_owner(pod.metadata)
    while reference is not None and len(links) < MAX_CHAIN_LENGTH:
        found = owners.owner(reference)
        if not isinstance(found, Absence) and not _is_owner(found, reference, metas[-1]):
            found = Absence.NOT_FOUND
        if isinstance(found, Absence):
            unknown = reference if found is Absence.NOT_FOUND else None
            break
        links.append(OwnerLink(reference, found, kind_of(reference)))
        metas.append(found.metadata)
        reference = controlling_owner(found.metadata)
    return OwnerChain(pod, tuple(metas), tuple(links), unknown)


def _is_owner(found: OwnerObject, reference: OwnerReference, owned: ObjectMeta) -> bool:
    """Whether the object with the uid of a reference is the one that the reference names."""
    meta, kind = found.metadata, kind_of(reference)
    if (isinstance(found, Job) and kind != JOB) or (isinstance(found, Pod) and kind != POD):
        return False
    return meta.name == reference.name and meta.namespace in ("", owned.namespace)


def controlling_owner(meta: ObjectMeta) -> OwnerReference | None:
    """The owner that controls an object, or its only owner."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return meta.owner_references[0] if len(meta.owner_references) == 1 else None


class LookupRecorder:
    """Owners that record every look-up by name."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self.lookups: dict[tuple[str, str, str], object] = {}

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        """The object that ``reference`` points to."""
        return self._owners.owner(reference)

    def namespace(self, name: str) -> PartialObjectMetadata | None:
        """The namespace called ``name``."""
        return self._owners.namespace(name)

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        """An object that another one names."""
        found = self._owners.named(collection, namespace, name)
        self.lookups[collection, namespace, name] = found
        return found

    def groups_within(self, root: Unstructured) -> CompositeGroups:
        """The groups by the one above them."""
        return self._owners.groups_within(root)

    def kept(self, key: Key) -> dict[object, Any]:
        """What was made of an object."""
        return self._owners.kept(key)

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        """The schedulers that pods of the native group of ``pod`` name."""
        return self._owners.schedulers(pod)
