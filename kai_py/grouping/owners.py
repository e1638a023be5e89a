"""How grouping reads owners: by reference, from whatever cache the caller keeps.

An owner that is not there (yet, any more, or by refusal of the API server) is None; grouping then
works with what it knows, and is asked again when the owner appears.
"""

from typing import Protocol

from kai_py.api.records.core import Job, ObjectMetadata, OwnerReference

OwnerObject = Job | ObjectMetadata


class Owners(Protocol):
    """A read-only view of owners and namespaces."""

    def owner(self, reference: OwnerReference) -> OwnerObject | None:
        """The object ``reference`` points to, by uid."""

    def namespace(self, name: str) -> ObjectMetadata | None:
        """The namespace called ``name``."""

    def named(self, collection: str, namespace: str, name: str) -> object | None:
        """An object that something names, for example the group in a pod's annotation.

        ``collection`` is its plural, a custom resource's with the group:
        ``podgroups.scheduling.run.ai``.
        """
