"""How do tests talk to an API server without the client under test?

Plain JSON documents over aiohttp, one coroutine per verb. Where a kind lives (its plural, whether
it has namespaces) is asked from the server, so any document of a served kind can be created.
"""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from yarl import URL

from tests.support import yaml_text
from tests.support.patience import patience

Document = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class ApiError(RuntimeError):
    """The server refused; `code`, `reason` and `details` are those of its Status."""

    def __init__(self, method: str, path: str, code: int, status: Mapping[str, Any]) -> None:
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.details: Mapping[str, Any] = status.get("details") or {}
        super().__init__(f"{method} {path}: {code} {status.get('message', self.reason)}")


@dataclass(frozen=True)
class ResourceType:
    """Where the objects of a kind live: `/api/v1` or `/apis/GROUP/VERSION`, and the plural."""

    root: str
    plural: str
    namespaced: bool
    verbs: frozenset[str]

    def path(self, name: str = "", *, namespace: str = "") -> str:
        """Return the path of one object, or of the collection when there is no name."""
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.root}{middle}/{self.plural}" + (f"/{name}" if name else "")


class Api:
    """A session with one API server, by the kubeconfig's current context."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._types: dict[str, dict[str, ResourceType]] = {}

    async def __aenter__(self) -> Self:
        document = yaml_text.read(self.kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        token = document["users"][0]["user"].get("token")
        self._session = aiohttp.ClientSession(
            cluster["server"],
            headers={"Authorization": f"Bearer {token}"} if token else {},
            connector=aiohttp.TCPConnector(limit=0, ssl=_trust(cluster)),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=patience(10)),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    def impersonate(self, user: str, *groups: str) -> None:
        """Send all further requests as ``user``, a member of ``groups``."""
        self._session.headers.add("Impersonate-User", user)
        for group in groups:
            self._session.headers.add("Impersonate-Group", group)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        parameters: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send one request and return the answer's body; raise ApiError from 400 on."""
        async with self._session.request(
            method,
            path,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, "Accept": accept},
            params=parameters,
        ) as answer:
            content = await answer.read()
            if answer.status >= 400:
                raise ApiError(method, path, answer.status, _status(content))
            return content

    def open(
        self, method: str, url: URL, *, body: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request as it is, as this session's user; give the answer as it comes."""
        return self._session.request(method, url, data=body or None, headers=headers)

    async def get(self, path: str, **parameters: str) -> Document:
        """Read the object or list at `path`."""
        return _document(await self.request("GET", path, parameters=parameters))

    async def items(
        self, path: str, *, accept: str = "application/json", **parameters: str
    ) -> list[Document]:
        """Read the items of the list at `path`, `accept` as the content type."""
        answer = await self.request("GET", path, accept=accept, parameters=parameters)
        found: list[Document] | None = _document(answer)["items"]
        return found or []  # null in the metadata of nothing

    async def post(self, path: str, body: Document) -> Document:
        """Create `body` in the collection or subresource at `path`."""
        return _document(await self.request("POST", path, body))

    async def put(self, path: str, body: Document) -> Document:
        """Replace the object at `path`."""
        return _document(await self.request("PUT", path, body))

    async def patch(self, path: str, body: Any, *, content_type: str = MERGE_PATCH) -> Document:
        """Patch the object at `path`."""
        return _document(await self.request("PATCH", path, body, content_type=content_type))

    async def delete(self, path: str, options: Document | None = None, **parameters: str) -> None:
        """Delete the object or collection at `path`."""
        await self.request("DELETE", path, options, parameters=parameters)

    async def create(self, document: Document, *, namespace: str = "") -> Document:
        """Create `document`, in `namespace` unless it names its own."""
        return await self.post(await self._collection(document, namespace), document)

    async def watch(self, path: str, **parameters: str) -> AsyncIterator[bytes]:
        """Yield the events of one watch as JSON lines until the server ends it."""
        async with self._session.get(path, params={"watch": "true", **parameters}) as answer:
            if answer.status >= 400:
                raise ApiError("WATCH", path, answer.status, _status(await answer.read()))
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line

    async def types(self, api_version: str) -> dict[str, ResourceType]:
        """Return the kinds of one API version as served now; an unserved version has none."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            listed = (await self.get(root))["resources"]
        except ApiError as error:
            if error.code != 404:
                raise
            listed = []
        self._types[api_version] = {
            r["kind"]: ResourceType(root, r["name"], r["namespaced"], frozenset(r["verbs"]))
            for r in listed
            if "/" not in r["name"]
        }
        return self._types[api_version]

    async def _collection(self, document: Document, namespace: str) -> str:
        api_version, kind = document["apiVersion"], document["kind"]
        known = self._types.get(api_version, {}).get(kind)
        found = known or (await self.types(api_version)).get(kind)
        if found is None:
            raise LookupError(f"{api_version} {kind} is not served")
        return found.path(namespace=document["metadata"].get("namespace", namespace or "default"))


def _trust(cluster: Mapping[str, Any]) -> ssl.SSLContext | bool:
    authority = cluster.get("certificate-authority-data")
    if authority is None:
        return True
    return ssl.create_default_context(cadata=base64.b64decode(authority).decode())


def _document(content: bytes) -> Document:
    parsed: Document = json.loads(content)
    return parsed


def _status(content: bytes) -> Document:
    try:
        return _document(content)
    except ValueError:
        return {"message": content.decode(errors="replace").strip()}
