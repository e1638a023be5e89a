"""Who is above a pod that is about to be stored? Its owners, read one by one.

Objects are kept for half a minute, so that of the pods of a workload only the first costs calls:
two or three to find where the kind is served, and one per owner. An owner that cannot be read is
``CLOSED``, as in grouping; one that is not found, or a server that does not answer, is ``UNKNOWN``.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kai_py.api.records.core import OwnerReference, PartialObjectMetadata, Pod
from kai_py.api.records.unstructured import Unstructured
from kai_py.grouping.owner_chain import MAX_CHAIN_LENGTH, OwnerChain, controlling_owner, owner_chain
from kai_py.grouping.owners import Absence, GroupKind, OwnerObject, kind_of
from kai_py.watch.client import Client
from kai_py.watch.discovery import find_kind
from kai_py.watch.errors import ApiError, Forbidden
from kai_py.watch.resource import Kind

CACHE_SECONDS = 30.0
CACHE_SIZE = 4096


@dataclass(frozen=True, slots=True)
class _KnownOwners:
    """What was found above one pod; no more is asked of it here."""

    found: Mapping[str, OwnerObject | Absence]

    def owner(self, reference: OwnerReference) -> OwnerObject | Absence:
        return self.found.get(reference.uid, Absence.NOT_FOUND)

    def namespace(self, _name: str) -> PartialObjectMetadata | None:
        return None

    def named(self, _collection: str, _namespace: str, _name: str) -> object | None:
        return None

    def child_groups(
        self, _collection: str, _namespace: str, _parent: str
    ) -> tuple[Unstructured, ...]:
        return ()

    def schedulers(self, _pod: Pod) -> tuple[str, ...]:
        return ()


@dataclass
class OwnerLookup:
    """Walks from pods to the top."""

    client: Client
    _kinds: dict[GroupKind, Kind[Any] | None] = field(default_factory=dict)
    _cache: dict[str, tuple[float, OwnerObject | Absence]] = field(default_factory=dict)

    async def lineage(self, pod: Pod) -> OwnerChain:
        """What is above ``pod``."""
        found: dict[str, OwnerObject | Absence] = {}
        meta, reference = pod.metadata, controlling_owner(pod.metadata)
        while reference is not None and len(found) < MAX_CHAIN_LENGTH:
            owner = await self._owner(reference, meta.namespace)
            found[reference.uid] = owner
            if isinstance(owner, Absence):
                break
            reference = controlling_owner(owner.metadata)
        return owner_chain(pod, _KnownOwners(found))

    async def _owner(self, reference: OwnerReference, namespace: str) -> OwnerObject | Absence:
        kept = self._cache.get(reference.uid)
        if kept is not None and time.monotonic() - kept[0] < CACHE_SECONDS:
            return kept[1]
        try:
            found = await self._read(reference, namespace)
        except Forbidden:
            found = Absence.UNREADABLE
        except ApiError:
            return Absence.NOT_FOUND
        if len(self._cache) >= CACHE_SIZE:
            self._cache.clear()
        self._cache[reference.uid] = (time.monotonic(), found)
        return found

    async def _read(self, reference: OwnerReference, namespace: str) -> OwnerObject | Absence:
        wanted = kind_of(reference)
        if self._kinds.get(wanted) is None:
            self._kinds[wanted] = await find_kind(self.client, wanted, None)
        kind = self._kinds[wanted]
        if kind is None:
            return Absence.UNREADABLE
        place = namespace if kind.namespaced else ""
        found: PartialObjectMetadata = await self.client.get(
            kind.at(), reference.name, namespace=place
        )
        return found if found.metadata.uid == reference.uid else Absence.NOT_FOUND
