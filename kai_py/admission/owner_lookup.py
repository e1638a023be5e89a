"""Owners of a pod that is being created, read one by one.

Objects are cached for half a minute, so that of the pods of a workload only the first costs calls:
two or three to find where the kind is served, and one per owner. An owner that may not be read is
``UNREADABLE``, as in grouping; one that is not found, or a server that does not answer, is
``NOT_FOUND``.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from kai_py.api.records.core import OwnerReference, PartialObjectMetadata, Pod
from kai_py.grouping.owner_chain import (
    MAX_CHAIN_LENGTH,
    Absence,
    GroupKind,
    KnownOwners,
    OwnerChain,
    OwnerObject,
    controlling_owner,
    kind_of,
    owner_chain,
)
from kai_py.watch.client import Client
from kai_py.watch.discovery import ServedApis, find_kind
from kai_py.watch.errors import ApiError, Forbidden, NotFound, is_absent
from kai_py.watch.resource import Kind

CACHE_SECONDS = 30.0
CACHE_SIZE = 4096


@dataclass
class OwnerLookup:
    """Reads the chain of owners of pods."""

    client: Client
    _kinds: dict[GroupKind, Kind[Any]] = field(default_factory=dict)
    """Where kinds are served; those that are not are looked for again, as any text is a kind."""
    _cache: dict[tuple[str, OwnerReference], tuple[float, OwnerObject | Absence]] = field(
        default_factory=dict
    )
    """By namespace and reference: what one pod says of an owner is not asked of another."""

    async def chain_of(self, pod: Pod) -> OwnerChain:
        """The chain of owners of ``pod``."""
        found: dict[str, OwnerObject | Absence] = {}
        meta, reference = pod.metadata, controlling_owner(pod.metadata)
        while reference is not None and len(found) < MAX_CHAIN_LENGTH:
            owner = await self._owner(reference, meta.namespace)
            found[reference.uid] = owner
            if isinstance(owner, Absence):
                break
            reference = controlling_owner(owner.metadata)
        return owner_chain(pod, KnownOwners(found, Absence.NOT_FOUND))

    async def _owner(self, reference: OwnerReference, namespace: str) -> OwnerObject | Absence:
        key = namespace, reference
        cached = self._cache.get(key)
        if cached is not None and time.monotonic() - cached[0] < CACHE_SECONDS:
            return cached[1]
        try:
            found = await self._read(reference, namespace)
        except Forbidden:
            found = Absence.UNREADABLE
        except ApiError:
            return Absence.NOT_FOUND
        if len(self._cache) >= CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = (time.monotonic(), found)
        return found

    async def _read(self, reference: OwnerReference, namespace: str) -> OwnerObject | Absence:
        group_kind = kind_of(reference)
        kind = self._kinds.get(group_kind)
        if kind is None:
            kind = await find_kind(ServedApis(self.client), group_kind, None)
        if kind is None:
            return Absence.UNREADABLE
        self._kinds[group_kind] = kind
        owner_namespace = namespace if kind.namespaced else ""
        try:
            found: PartialObjectMetadata = await self.client.get(
                kind.at(), reference.name, namespace=owner_namespace
            )
        except NotFound as error:
            if not is_absent(error, reference.name):
                # The version is not served any more; another one may be.
                self._kinds.pop(group_kind, None)
            raise
        return found if found.metadata.uid == reference.uid else Absence.NOT_FOUND
