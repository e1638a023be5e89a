"""References to objects by name, pinned to one incarnation by uid."""

from typing import Self

from msgspec import Struct

from kai_py.api.records.core import ObjectMeta


class ObjectRef(Struct, frozen=True, order=True):
    """An object by name, pinned to one incarnation by its uid; its class says of which kind."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, meta: ObjectMeta) -> Self:
        """The object with this metadata."""
        return cls(meta.namespace, meta.name, meta.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodRef(ObjectRef, frozen=True, order=True):
    """A pod."""


class GroupRef(ObjectRef, frozen=True, order=True):
    """A PodGroup of scheduling.k8s.io."""


class ClaimRef(ObjectRef, frozen=True, order=True):
    """A ResourceClaim or PersistentVolumeClaim."""
