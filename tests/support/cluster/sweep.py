"""How is a cluster made as new between two tests, faster than by making a new one?

What was there in the beginning is remembered by uid; sweeping deletes everything else of every
served kind, with no grace and, from the second round on, without its finalizers, until nothing is
left. The keys of etcd say, in one request in place of a hundred, of which kinds anything came.
Definitions of custom resources stay (their objects do not): establishing them again would cost more
than all the rest. Namespaces may still be terminating afterwards, emptied. The default namespace
gets back the labels and annotations that it had.
"""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp

from tests.support.cluster.api import Api, ApiError, Document, ResourceType
from tests.support.patience import patience

_KEPT_NAMESPACES = {"kube-system", "kube-public"}
# Written by the server for itself, or seen through another group as well.
_KEPT_ROOTS = ("/apis/apiregistration.k8s.io/", "/apis/events.k8s.io/", "/apis/flowcontrol.")
_KEPT_PLURALS = {"customresourcedefinitions", "ipaddresses", "servicecidrs"}
_INTERNAL = {"apiservices", "flowschemas", "masterleases", "prioritylevelconfigurations", "ranges"}
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_NOTHING_TO_LIST = {404, 405, 429}  # a definition that has just gone, or just come
_CONCURRENCY = 32
_PREFIX, _END = "/registry/", "/registry0"
_WRITTEN_AS = {
    "minions": "nodes",
    "specs": "services",
    "controllers": "replicationcontrollers",
    "ingress": "ingresses",
}
"""Names of kinds in the keys of etcd that are not their plurals."""
_DEFAULT_NAMESPACE = "/api/v1/namespaces/default"
_MARKS = ("labels", "annotations")
_AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


@dataclass(frozen=True)
class _Found:
    type: ResourceType
    name: str
    namespace: str
    uid: str
    terminating: bool

    @property
    def path(self) -> str:
        return self.type.path(self.name, namespace=self.namespace)

    @property
    def is_terminating_namespace(self) -> bool:
        return self.terminating and self.type.plural == "namespaces"


class _Name(NamedTuple):
    """What a key of etcd says of a kind; ``group``: "" where it does not say."""

    group: str
    plural: str


class Sweep:
    """Remembers the first state of the cluster that an etcd keeps, and brings it back to it."""

    def __init__(self, etcd: str) -> None:
        self._etcd = etcd
        self._kept: frozenset[str] | None = None
        self._kept_keys: frozenset[tuple[str, str]] = frozenset()
        self._kinds: list[ResourceType] = []
        self._marks: Document = {}

    async def remember(self, api: Api) -> None:
        """Take the present state for the first one, unless one is remembered already."""
        if self._kept is None:
            self._kept_keys = await self._keys()
            self._kinds = await _deletable(api)
            found, _ = await _objects(api, self._kinds)
            self._kept = frozenset(each.uid for each in found)
            self._marks = await _marks(api)

    async def clean(self, api: Api, *, within: float = 30.0) -> None:
        """Delete all that came since; raise AssertionError naming what would not go in time."""
        if self._kept is None:
            raise RuntimeError("nothing is remembered to go back to")
        deadline = time.monotonic() + patience(within)
        while left := await self._added(api):
            assert time.monotonic() < deadline, f"not deleted: {[found.path for found in left]}"
            # Again what is deleted with a grace period: there may be no kubelet to end it.
            await _delete(api, left)
            await _release(api, [found for found in left if found.terminating])
            await asyncio.sleep(0.02)
        await self._restore_marks(api)

    async def _restore_marks(self, api: Api) -> None:
        marks = await _marks(api)
        if marks != self._marks:
            added = {field: dict.fromkeys(marks[field]) for field in _MARKS}
            patch = {field: added[field] | self._marks[field] for field in _MARKS}
            await api.patch(_DEFAULT_NAMESPACE, {"metadata": patch})

    async def _added(self, api: Api) -> list[_Found]:
        kept = self._kept or frozenset()
        names = {_kind_in(key) for key, _ in await self._keys() - self._kept_keys}
        found, all_served = await _objects(api, await self._named(api, names))
        if not all_served:  # a definition has gone, or another version has come
            self._kinds = await _deletable(api)
            found, _ = await _objects(api, await self._named(api, names))
        return [
            each for each in found if each.uid not in kept and not each.is_terminating_namespace
        ]

    async def _named(self, api: Api, names: set[_Name]) -> list[ResourceType]:
        """The kinds of these names; all, where one is of no kind that is served."""
        names = {name for name in names if name.plural not in _KEPT_PLURALS | _INTERNAL}
        if not all(_kinds_of(name, self._kinds) for name in names):
            self._kinds = await _deletable(api)  # it may have been defined meanwhile
        by_name = [_kinds_of(name, self._kinds) for name in names]
        named = dict.fromkeys(kind for kinds in by_name for kind in kinds)
        return list(named) if all(by_name) else self._kinds

    async def _keys(self) -> frozenset[tuple[str, str]]:
        """The keys of all objects, with the revision at which each was created."""
        first, end = (base64.b64encode(each.encode()).decode() for each in (_PREFIX, _END))
        body = {"key": first, "range_end": end, "keys_only": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self._etcd}/v3/kv/range", json=body) as answer,
        ):
            answer.raise_for_status()
            found = (await answer.json())["kvs"]
        return frozenset(
            (base64.b64decode(each["key"]).decode(), each["create_revision"]) for each in found
        )


async def _marks(api: Api) -> Document:
    metadata = (await api.get(_DEFAULT_NAMESPACE))["metadata"]
    return {field: metadata.get(field, {}) for field in _MARKS}


def _kind_in(key: str) -> _Name:
    """The kind's name: /registry/PLURAL/…, /registry/GROUP/PLURAL/… or /registry/services/…."""
    first, second, *_ = f"{key.removeprefix(_PREFIX)}/".split("/")
    if "." in first:
        return _Name(first, second)
    written = second if first == "services" else first
    return _Name("", _WRITTEN_AS.get(written, written))


def _kinds_of(name: _Name, kinds: Iterable[ResourceType]) -> list[ResourceType]:
    """Those of ``kinds`` that have the name: several groups may have one plural."""
    root = f"/apis/{name.group}/" if name.group else ""
    return [kind for kind in kinds if kind.plural == name.plural and kind.root.startswith(root)]


async def _objects(api: Api, kinds: Iterable[ResourceType]) -> tuple[list[_Found], bool]:
    """The objects of the kinds, and whether all of these are served."""
    lists = await asyncio.gather(*(_list(api, kind) for kind in kinds))
    found = [each for listed in lists for each in listed or () if not _is_of_the_system(each)]
    return found, None not in lists


def _is_of_the_system(found: _Found) -> bool:
    """Whether the control plane needs it; Leases and roles of ours are in the next test's way."""
    return found.namespace in _KEPT_NAMESPACES and not found.name.startswith("kai-")


async def _deletable(api: Api) -> list[ResourceType]:
    groups = (await api.get("/apis"))["groups"]
    served: dict[tuple[str, str], ResourceType] = {}
    for group in ({"versions": [{"groupVersion": "v1"}]}, *groups):  # its preferred version first
        for version in group["versions"]:
            for kind in (await api.types(version["groupVersion"])).values():
                served.setdefault((group.get("name", ""), kind.plural), kind)
    return [
        kind
        for kind in served.values()
        if {"list", "delete"} <= kind.verbs
        and kind.plural not in _KEPT_PLURALS
        and not kind.root.startswith(_KEPT_ROOTS)
    ]


async def _list(api: Api, kind: ResourceType) -> list[_Found] | None:
    """The objects of a kind; None if it is not served."""
    try:
        items = await api.items(kind.path(), accept=_METADATA_ONLY)
    except ApiError as error:
        if error.code not in _NOTHING_TO_LIST:
            raise
        return None
    return [_found(kind, item["metadata"]) for item in items]


def _found(kind: ResourceType, metadata: Document) -> _Found:
    return _Found(
        type=kind,
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata["uid"],
        terminating="deletionTimestamp" in metadata,
    )


async def _delete(api: Api, objects: Iterable[_Found]) -> None:
    await _each(lambda found: api.delete(found.path, _AT_ONCE), objects)


async def _release(api: Api, objects: Iterable[_Found]) -> None:
    """Take the finalizers from objects that only wait for those."""

    async def release(found: _Found) -> None:
        try:
            await api.patch(found.path, {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.code != 422:
                raise
            await _replace_without_finalizers(api, found)

    await _each(release, objects)


async def _replace_without_finalizers(api: Api, found: _Found) -> None:
    """Write a whole object as Python spells JSON.

    A patch writes the opaque parameters of a claim without blanks; where they were created with
    blanks, the server takes that for a change of the immutable spec.
    """
    document = await api.get(found.path)
    document["metadata"].pop("finalizers", None)
    await api.put(found.path, document)


async def _each(act: Callable[[_Found], Awaitable[object]], objects: Iterable[_Found]) -> None:
    limit = asyncio.Semaphore(_CONCURRENCY)

    async def limited(found: _Found) -> None:
        async with limit:
            try:
                await act(found)
            except ApiError as error:
                if error.code not in {404, 409}:  # gone, or changed meanwhile: the next round sees
                    raise

    await asyncio.gather(*(limited(found) for found in objects))
