"""Client for the Kubernetes API: its verbs with typed records and typed errors.

Paths come from a ``Resource``, answers are decoded by its record type. A body is a mapping (or a
Struct) as in a manifest; ``apiVersion`` and ``kind`` are filled in from the resource, so that the
caller need not know which version this server serves.

The versions that this process wrote are kept until its watches show them (``OwnWrites``).

All errors are ``kai_py.watch.errors.ApiError``; see there for the hierarchy.
"""

import asyncio
import enum
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

import msgspec

from kai_py.watch.errors import Malformed
from kai_py.watch.machine import Machine
from kai_py.watch.resource import Decode, Kind, Resource, T
from kai_py.watch.transport import JSON, ApiCall, Transport
from kai_py.watch.wire import decode_kind, decode_nested, decode_page

COALESCE_SECONDS = 0.5
"""Writes so close to each other are kept as one."""
MAX_UNSEEN = 256
"""Most entries of a kind: later writes join the last one."""


class _Writes(NamedTuple):
    """Writes kept as one: the newest version, and when the first and the last were answered."""

    version: int
    first: float
    last: float


@dataclass
class OwnWrites:
    """Unseen writes by kind, oldest first; kinds that are not followed are not recorded.

    A version that is no number can't be compared and is not recorded either.
    """

    _unseen: dict[str, deque[_Writes]] = field(default_factory=dict)

    def follow(self, kind: Kind[Any]) -> None:
        """Record writes to a kind from now on."""
        self._unseen.setdefault(kind.permission, deque())

    def record(self, kind: Kind[Any], version: str, now: float) -> None:
        """Record a write that the server answered with ``version``; ``now`` in seconds."""
        unseen = self._unseen.get(kind.permission)
        if unseen is None or not version.isdecimal():
            return
        written = _Writes(int(version), now, now)
        if unseen and (now - unseen[-1].first < COALESCE_SECONDS or len(unseen) >= MAX_UNSEEN):
            before = unseen.pop()
            written = _Writes(max(before.version, written.version), before.first, now)
        unseen.append(written)

    def unseen_since(self, kind: Kind[Any], seen: str, listed: float) -> float | None:
        """When the oldest write was made that is newer than version ``seen``; None if all are seen.

        Writes from before the moment ``listed``, when a complete list began, are seen.
        """
        unseen = self._unseen.get(kind.permission)
        if not seen.isdecimal():
            return None
        while unseen and (unseen[0].version <= int(seen) or unseen[0].last < listed):
            unseen.popleft()
        return max(unseen[0].first, listed) if unseen else None


Body = Mapping[str, Any]


class PatchType(enum.StrEnum):
    """Content type of a patch."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A whole collection at one resourceVersion."""

    items: tuple[T, ...]
    resource_version: str


class Client:
    """The verbs of the API over a transport; ``machine`` is that of the process."""

    def __init__(self, transport: Transport, machine: Machine | None = None) -> None:
        self.transport = transport
        self.machine = machine or Machine()
        self.own_writes = OwnWrites()

    async def get(
        self, resource: Resource[T], name: str, *, namespace: str = "", subresource: str = ""
    ) -> T:
        """Read one object; an answer without its name and a uid is Malformed."""
        path = resource.object(name, namespace, subresource)
        call = ApiCall("get", _counted(resource, subresource), path)
        record = await self._record(resource, call)
        # As every field has a default, any JSON object would pass for an object without a node.
        if record.metadata.name != name or not record.metadata.uid:
            raise Malformed(f"{call}: the answer is not this object")
        return record

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
    ) -> Listing[T]:
        """Read a collection, page by page; all pages show the same point in time."""
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        parameters = {key: text for key, text in selectors.items() if text} | {
            "limit": str(page_size)
        }
        items: list[T] = []
        while True:
            path = resource.collection(namespace)
            call = ApiCall("list", resource.kind.name, path, parameters)
            page = decode_page(await self.transport.send(call), call)
            items.extend(_decoded(call, resource.decode, item) for item in page.items or ())
            if not page.metadata.continue_token:
                return Listing(tuple(items), page.metadata.resource_version)
            parameters = parameters | {"continue": page.metadata.continue_token}

    async def check_list(self, resource: Resource[Any]) -> None:
        """Check that a collection may be listed; raises Forbidden if not."""
        parameters = {"limit": "1"}
        call = ApiCall("list", resource.kind.name, resource.collection(), parameters)
        decode_page(await self.transport.send(call), call)

    async def create(self, resource: Resource[T], body: Body, *, namespace: str = "") -> T:
        """Create an object; raises AlreadyExists if the name is in use."""
        path = resource.collection(namespace)
        encoded = msgspec.json.encode(_with_type(resource, body))
        return await self._record(
            resource, ApiCall("create", resource.kind.name, path, body=encoded)
        )

    async def review(self, resource: Resource[T], body: Body) -> T:
        """Ask the server for a review, such as a TokenReview, which it answers and doesn't keep."""
        encoded = msgspec.json.encode(_with_type(resource, body))
        call = ApiCall("create", resource.kind.name, resource.collection(), body=encoded)
        return _decoded(call, resource.decode, await self.transport.send(call))

    async def evict(self, *, namespace: str, pod: str, uid: str, **options: int) -> None:
        """Evict a pod; ``options``: further delete options.

        Raises TooManyRequests if a budget protects it, Conflict if it has another uid.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}, **options},
        }
        await self._act(ApiCall("create", "Pod/eviction", path, body=msgspec.json.encode(eviction)))

    async def bind(
        self,
        *,
        namespace: str,
        pod: str,
        uid: str,
        node: str,
        version: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Bind a pod to a node; raises Conflict if it is bound, or not as at ``version``.

        An empty ``version`` stands for any: then a binding that arrives late takes effect, too.
        The server copies the ``annotations`` to the pod as it binds it, and answers with a Status
        that says no more than the HTTP code.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding"
        binding: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod,
                "namespace": namespace,
                "uid": uid,
                **({"resourceVersion": version} if version else {}),
            },
            "target": {"kind": "Node", "name": node},
        }
        if annotations:
            binding["metadata"]["annotations"] = dict(annotations)
        await self._act(ApiCall("create", "Pod/binding", path, body=msgspec.json.encode(binding)))

    async def update(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Replace an object; raises Conflict unless the body has its current resourceVersion."""
        path = resource.object(name, namespace, subresource)
        encoded = msgspec.json.encode(_with_type(resource, body))
        call = ApiCall("update", _counted(resource, subresource), path, body=encoded)
        return await self._record(resource, call)

    async def replace(
        self,
        resource: Resource[T],
        name: str,
        body: bytes,
        *,
        namespace: str = "",
        subresource: str = "",
        content_type: str,
    ) -> T:
        """Replace an object by one in any form that the server takes, as ``update`` does."""
        path = resource.object(name, namespace, subresource)
        kind = _counted(resource, subresource)
        call = ApiCall("update", kind, path, body=body, content_type=content_type)
        return await self._record(resource, call)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body | Sequence[Body],
        *,
        namespace: str = "",
        subresource: str = "",
        patch_type: PatchType = PatchType.MERGE,
    ) -> T:
        """Change a part of an object; a JSON patch is a sequence of operations."""
        path = resource.object(name, namespace, subresource)
        encoded = msgspec.json.encode(body)
        kind = _counted(resource, subresource)
        call = ApiCall("patch", kind, path, body=encoded, content_type=patch_type.value)
        return await self._record(resource, call)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object; raises Conflict if it has another uid than given."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid} if uid else None,
            "gracePeriodSeconds": grace_seconds,
        }
        body = {key: option for key, option in options.items() if option is not None}
        path = resource.object(name, namespace)
        await self._act(ApiCall("delete", resource.kind.name, path, body=msgspec.json.encode(body)))

    async def read(self, path: str, *, kind: str, accept: str = JSON) -> bytes:
        """Read any path of the server, such as ``/version``, or a whole collection."""
        call = ApiCall("get", kind, path, accept=accept, max_bytes=math.inf)
        return await self.transport.send(call)

    async def _act(self, call: ApiCall) -> None:
        """Make a call whose answer says only that it was done; Malformed if it doesn't.

        A proxy before the server may answer with success and a page of its own.
        """
        body = await self.transport.send(call)
        try:
            kind = decode_kind(body)
        except ValueError as error:
            raise Malformed(f"{call}: {error}") from error
        if not kind:
            raise Malformed(f"{call}: the answer is neither a Status nor an object")

    async def _record(self, resource: Resource[T], call: ApiCall) -> T:
        record = _decoded(call, resource.decode, await self.transport.send(call))
        if call.verb != "get":
            if not record.metadata.resource_version:
                raise Malformed(f"{call}: the answer is not the object as written")
            now, version = asyncio.get_running_loop().time(), record.metadata.resource_version
            self.own_writes.record(resource.kind, version, now)
        return record


def _decoded(call: ApiCall, decode: Decode[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decode_nested(decode, body)
    except ValueError as error:
        raise Malformed(f"{call}: {error}") from error


def _counted(resource: Resource[T], subresource: str) -> str:
    return f"{resource.kind.name}/{subresource}" if subresource else resource.kind.name


def _with_type(resource: Resource[T], body: Body) -> Body:
    return {"apiVersion": resource.api_version, "kind": resource.kind.name, **body}
