"""Whose is a claim that is reserved for a PodGroup of which no pod was ever seen?

A scheduler that ended just after the last pod of a group leaves the claim of the group allocated,
and the next one has nothing to know the group by. The API server notes who wrote which field of an
object: the group is ours if the allocation is. Every such claim is read once.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from kai_py.api.records.document import Document, document_decoder
from kai_py.api.references import ClaimRef
from kai_py.commit.access import Access
from kai_py.commit.retry import ObjectBackoff
from kai_py.snapshot.group_claims import GroupKey
from kai_py.watch.errors import ApiError, NotFound
from kai_py.watch.kinds import RESOURCE_CLAIMS
from kai_py.watch.resource import Kind
from kai_py.watch.transport import FIELD_MANAGER

log = logging.getLogger(__name__)

WRITERS: Kind[Document] = Kind(
    name=RESOURCE_CLAIMS.name,
    plural=RESOURCE_CLAIMS.plural,
    group=RESOURCE_CLAIMS.group,
    versions=dict.fromkeys(RESOURCE_CLAIMS.versions, document_decoder(("metadata.managedFields",))),
)
"""Claims, read for who wrote them."""


class ClaimingGroups(Protocol):
    """PodGroups that claims are reserved for, and whose these groups are."""

    def own_groups(self) -> frozenset[GroupKey]:
        """Groups of ours, with pods or without: their claims are ours to give back."""

    def unknown_groups(self) -> Mapping[ClaimRef, frozenset[str]]:
        """Names of the groups, all without pods, of which it is not known whose they are."""

    def own_group(self, namespace: str, name: str) -> None:
        """The group is ours, also once it has no pods; nothing for one that is not there."""


class GroupOrigins:
    """Tells ``groups`` of those whose claims were allocated by us."""

    def __init__(self, access: Access, groups: ClaimingGroups, backoff: ObjectBackoff) -> None:
        """No claim was read yet."""
        self._access, self._groups, self._backoff = access, groups, backoff
        self._known: set[ClaimRef] = set()

    async def look(self) -> None:
        """Read the claims that are new; one that can't be read is read again later."""
        now = asyncio.get_running_loop().time()
        unknown = self._groups.unknown_groups()
        self._known &= unknown.keys()
        for claim, groups in unknown.items():
            if claim in self._known or not self._backoff.ready(claim.uid, now):
                continue
            try:
                ours = await self._is_ours(claim)
            except ApiError as error:
                self._backoff.failed(claim.uid, now)
                log.warning("claim %s, reserved for a PodGroup without pods: %s", claim, error)
                continue
            self._backoff.succeeded(claim.uid)
            self._known.add(claim)
            for group in groups if ours else ():
                self._groups.own_group(claim.namespace, group)

    async def _is_ours(self, claim: ClaimRef) -> bool:
        served = WRITERS.at(self._access.claims.version)
        try:
            found = await self._access.call(
                lambda: self._access.client.get(served, claim.name, namespace=claim.namespace)
            )
        except NotFound:
            return False
        return any(map(_allocated, found.all_at("metadata.managedFields.*")))


def _allocated(written: Mapping[str, Any]) -> bool:
    """Whether an entry of ``managedFields`` says that we wrote the allocation."""
    status = written.get("fieldsV1", {}).get("f:status", {})
    return written.get("manager") == FIELD_MANAGER and "f:allocation" in status
