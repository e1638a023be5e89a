"""Access of grouping to other objects: by reference or name, from a cache that the caller keeps.

An object that is missing is an ``Absence``, which says whether it may still come. Pods are grouped
again when such an object, or its kind, appears.
"""

from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol

from kai_py.api.records.core import OwnerReference, PartialObjectMetadata, Pod
from kai_py.api.records.job import Job
from kai_py.api.records.unstructured import Unstructured

OwnerObject = Job | Pod | PartialObjectMetadata | Unstructured


class GroupKind(NamedTuple):
    """A kind in any version; the core group is empty."""

    group: str
    kind: str

    def __str__(self) -> str:
        """As CRDs and kubectl write it: ``JobSet.jobset.x-k8s.io``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


class Absence(Enum):
    """Why an object is missing."""

    NOT_FOUND = "not known"
    """Its kind is watched, or about to be: it may come, or was deleted."""
    UNREADABLE = "closed"
    """Its kind is not served, or we may not read it: its content stays unknown."""


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

    def child_groups(
        self, collection: str, namespace: str, parent: str
    ) -> tuple[Unstructured, ...]:
        """Groups that name the composite group ``parent`` as theirs, by name."""

    def schedulers(self, pod: Pod) -> tuple[str, ...]:
        """The schedulers that pods of the native group of ``pod`` name, in order."""


def kind_of(reference: OwnerReference) -> GroupKind:
    """The kind of the object that ``reference`` points to."""
    return _group_kind(reference.api_version, reference.kind)


@lru_cache(maxsize=4096)
def _group_kind(api_version: str, kind: str) -> GroupKind:
    group, slash, _ = api_version.rpartition("/")
    return GroupKind(group if slash else "", kind)
