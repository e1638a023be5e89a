"""References to objects by name, pinned to one incarnation by uid."""

from dataclasses import dataclass
from typing import Self

from kai_py.api.records.core import ObjectMeta


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
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


@dataclass(frozen=True, slots=True, order=True)
class PodRef(ObjectRef):
    """A pod."""


@dataclass(frozen=True, slots=True, order=True)
class GroupRef(ObjectRef):
    """A PodGroup of scheduling.k8s.io."""


@dataclass(frozen=True, slots=True, order=True)
class ClaimRef(ObjectRef):
    """A ResourceClaim or PersistentVolumeClaim."""
