"""Discovery: which of our kinds a server serves, and at which version.

Of each kind the first of our versions that the server serves is chosen, if it can be listed and
watched there. A missing group, version or kind is normal: a CRD that is not installed, an older
Kubernetes. A group whose server cannot answer now (an aggregated API that is down) keeps its last
known state; where there is none, its kinds are unanswered. Costs one call for the groups and one
for each group and version of ours.

What operators must know is logged once per change: without any kind of Queue no gang starts but
those of a default queue, and of kinds that are served in unknown versions no object is known.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from kai_py.api.records.core import PartialObjectMetadata
from kai_py.api.records.record import record_decoder
from kai_py.grouping.owner_chain import GroupKind
from kai_py.watch.client import Client
from kai_py.watch.errors import ApiError, Malformed
from kai_py.watch.kinds import KAI_QUEUES, QUEUES
from kai_py.watch.resource import Decode, Kind, Resource

METADATA: Decode[PartialObjectMetadata] = record_decoder(PartialObjectMetadata)

Served = Mapping[Kind[Any], Resource[Any]]
"""The kinds that are served, each at the version to use."""


class Discovery(Struct, frozen=True):
    """``unanswered``: why it is unknown whether a kind is served, of which nothing was known.

    ``unknown_versions``: those of kinds that are served, but in no version that is known here.
    """

    served: Served
    unanswered: Mapping[Kind[Any], str]
    unknown_versions: Mapping[Kind[Any], tuple[str, ...]]


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    name: str
    versions: list[_Version]


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _ServedResource(msgspec.Struct):
    name: str
    verbs: list[str]
    kind: str = ""
    namespaced: bool = True


class _Resources(msgspec.Struct):
    resources: list[_ServedResource]


Document = TypeVar("Document")


async def discover(client: Client, kinds: Iterable[Kind[Any]], known: Served) -> Discovery:
    """Find the kinds that are served now; raises ApiError if the server cannot be asked at all."""
    kinds = tuple(kinds)
    groups = await _read(client, "/apis", _Groups)
    versions = {(group.name, item.version) for group in groups.groups for item in group.versions}
    versions.add(("", "v1"))
    candidates = [
        resource
        for kind in kinds
        for resource in map(kind.at, kind.versions)
        if (kind.group, resource.version) in versions
    ]
    watchable = await _all_watchable(client, (resource.root for resource in candidates))
    served: dict[Kind[Any], Resource[Any]] = {}
    unanswered: dict[Kind[Any], str] = {}
    for resource in candidates:
        kind, names = resource.kind, watchable[resource.root]
        if not isinstance(names, ApiError):
            if kind.plural in names:
                served.setdefault(kind, resource)
        # The group's server is down. Its kinds keep the version they had.
        elif _same(known.get(kind), resource):
            served.setdefault(kind, known[kind])
        elif kind not in known:
            unanswered[kind] = str(names)
    unanswered = {kind: unanswered[kind] for kind in unanswered if kind not in served}
    missing = [kind for kind in kinds if kind not in served and kind not in unanswered]
    return Discovery(served, unanswered, await _unknown_versions(client, groups, missing))


async def _unknown_versions(
    client: Client, groups: _Groups, missing: Sequence[Kind[Any]]
) -> dict[Kind[Any], tuple[str, ...]]:
    """The versions of ``missing`` kinds that are served all the same."""
    listed = {g.name: [each.version for each in g.versions] for g in groups.groups}
    roots = [
        (kind, version, f"/apis/{kind.group}/{version}")
        for kind in missing
        for version in listed.get(kind.group, ())
        if version not in kind.versions
    ]
    watchable = await _all_watchable(client, (root for *_, root in roots))
    found: dict[Kind[Any], tuple[str, ...]] = {}
    for kind, version, root in roots:
        names = watchable[root]
        if not isinstance(names, ApiError) and kind.plural in names:
            found[kind] = (*found.get(kind, ()), version)
    return found


class ServedApis:
    """What a server serves now, each document of which is read once.

    Of any number of kinds that tenants name, no more calls are made than there are groups.
    """

    def __init__(self, client: Client) -> None:
        """Nothing has been read yet."""
        self._client = client
        self._groups: _Groups | None = None
        self._resources: dict[str, _Resources] = {}

    async def groups(self) -> Sequence[_Group]:
        """The groups and their versions; raises ApiError."""
        if self._groups is None:
            self._groups = await _read(self._client, "/apis", _Groups)
        return self._groups.groups

    async def resources(self, root: str) -> Sequence[_ServedResource]:
        """The resources of a group and version; raises ApiError."""
        if root not in self._resources:
            self._resources[root] = await _read(self._client, root, _Resources)
        return self._resources[root].resources


async def find_kind(
    apis: ServedApis, wanted: GroupKind, decode: Decode[Any] | None
) -> Kind[Any] | None:
    """Find a kind of which only group and name are known; None if it is not served.

    In every version that serves it, the server's preferred one first; without a decoder its
    metadata only. Raises ApiError if the server cannot be asked.
    """
    versions = ["v1"]
    if wanted.group:
        groups = await apis.groups()
        versions = [each.version for g in groups if g.name == wanted.group for each in g.versions]
    found: dict[str, _ServedResource] = {}
    for version in versions:
        root = f"/apis/{wanted.group}/{version}" if wanted.group else f"/api/{version}"
        for resource in await apis.resources(root):
            watchable = {"list", "watch"} <= {*resource.verbs} and "/" not in resource.name
            if resource.kind == wanted.kind and watchable:
                found[version] = resource
    if not found:
        return None
    first = next(iter(found.values()))
    return Kind(
        name=wanted.kind,
        plural=first.name,
        versions=dict.fromkeys(found, decode or METADATA),
        group=wanted.group,
        namespaced=first.namespaced,
        metadata_only=decode is None,
    )


def _same(known: Resource[Any] | None, resource: Resource[Any]) -> bool:
    return known is not None and known.version == resource.version


async def _all_watchable(
    client: Client, roots: Iterable[str]
) -> dict[str, frozenset[str] | ApiError]:
    """What can be watched below each root, or why the server does not say."""
    every = list(dict.fromkeys(roots))
    listed = await asyncio.gather(*(_watchable(client, root) for root in every))
    return dict(zip(every, listed, strict=True))


async def _watchable(client: Client, root: str) -> frozenset[str] | ApiError:
    """Collections that can be listed and watched, or why the server cannot answer now."""
    try:
        found = await _read(client, root, _Resources)
    except ApiError as error:
        # Even a 404: the server has just listed the group, so something else answered.
        return error
    return frozenset(
        resource.name for resource in found.resources if {"list", "watch"} <= {*resource.verbs}
    )


async def _read(client: Client, path: str, document: type[Document]) -> Document:
    body = await client.read(path, kind="Discovery")
    try:
        return msgspec.json.decode(body, type=document)
    except ValueError as error:
        raise Malformed(f"GET {path}: {error}") from error


logger = logging.getLogger(__name__)


class DiscoveryLog:
    """Compares each discovery with the one before."""

    def __init__(self, kinds: Collection[Kind[Any]]) -> None:
        """``kinds``: those that are looked for."""
        self._wants_queues = QUEUES in kinds
        self._unknown_versions: Mapping[Kind[Any], tuple[str, ...]] = {}
        self._lacks_queues = False

    def tell(self, found: Discovery) -> None:
        """Log what has changed."""
        self._tell_unknown_versions(found.unknown_versions)
        known = (*found.served, *found.unanswered, *found.unknown_versions)
        lacks_queues = self._wants_queues and QUEUES not in known and KAI_QUEUES not in known
        if lacks_queues and not self._lacks_queues:
            logger.warning(
                "the API server serves no Queues (%s): the CRD is not installed, so gangs that "
                "name a queue stay pending; install it with `kai-py crds | kubectl apply -f -`, "
                "no restart is needed",
                QUEUES.permission,
            )
        elif self._lacks_queues and not lacks_queues:
            logger.info("the API server serves Queues now; they are read")
        self._lacks_queues = lacks_queues

    def _tell_unknown_versions(self, found: Mapping[Kind[Any], tuple[str, ...]]) -> None:
        """Warn of kinds whose objects stay unread."""
        for kind, versions in found.items():
            if self._unknown_versions.get(kind) != versions:
                logger.warning(
                    "%s of %s is served in %s, but read only in %s: its objects are not known",
                    kind.name,
                    kind.group,
                    ", ".join(versions),
                    ", ".join(kind.versions),
                )
        self._unknown_versions = found
