"""The owner chain of a pod, from its nearest controller to the top.

The walk follows controller references, or the only reference where none controls. It ends at an
object without an owner, at a kind that is not served or that we may not read, and at an owner that
is not known (yet): then ``unknown`` names it, because a decision from below would be premature.
"""

import msgspec

from kai_py.api.records.core import ObjectMeta, OwnerReference, Pod
from kai_py.grouping.owners import Absence, GroupKind, OwnerObject, Owners, kind_of

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


def owner_chain(pod: Pod, owners: Owners) -> OwnerChain:
    """Walk from ``pod`` to the top. Cost: one look-up per owner."""
    links: list[OwnerLink] = []
    metas = [pod.metadata]
    unknown: OwnerReference | None = None
    reference = controlling_owner(pod.metadata)
    while reference is not None and len(links) < MAX_CHAIN_LENGTH:
        found = owners.owner(reference)
        if isinstance(found, Absence):
            unknown = reference if found is Absence.NOT_FOUND else None
            break
        links.append(OwnerLink(reference, found, kind_of(reference)))
        metas.append(found.metadata)
        reference = controlling_owner(found.metadata)
    return OwnerChain(pod, tuple(metas), tuple(links), unknown)


def controlling_owner(meta: ObjectMeta) -> OwnerReference | None:
    """The owner that controls an object, or its only owner."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return meta.owner_references[0] if len(meta.owner_references) == 1 else None
