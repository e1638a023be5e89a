"""Access to the paths under /v1, by bearer token, and the rights of readers who may not see all.

Accepted are the configured token, and tokens that ``review`` accepts for the path. A token of any
other user whom the API server knows gets what that user may see (``readers``). Without any token,
only requests from the machine itself are answered; these must also name it as their host, so that a
web page whose name was made to resolve to loopback (DNS rebinding) reads nothing.

The API server's proxy for Services removes the header Authorization, so a token may come in
``OWN_HEADER`` instead. What that proxy brings to /metrics needs a token, too: it comes from outside
of the cluster's network.

For a reader with limited rights the API server is asked for rights on the objects in an answer: to
list the pods of a namespace, to get queues, to list nodes. So a user who sees its pods with
``kubectl`` sees their gangs here, and no role for paths is needed. The number of reviews of an
answer is bounded; the namespaces that a question names come first.
"""

import asyncio
import hmac
import ipaddress
import os
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct

from kai_py.api.queue import GROUP as QUEUE_GROUP
from kai_py.observe.cluster_view import ClusterView
from kai_py.observe.http_answers import READER, Reader
from kai_py.observe.token_review import (
    OWN_HEADER,
    TOKEN_VARIABLE,
    AccessDenial,
    ObjectAccess,
    TokenReviews,
    UserInfo,
)
from kai_py.observe.visibility import Visibility, named_queues, own_queues, workload_namespaces
from kai_py.snapshot.tables.queues import with_ancestors

PROTECTED_PREFIX = "/v1/"
METRICS_PATH = "/metrics"
PROXY_HEADERS = ("X-Forwarded-Uri", "Upgrade")
"""Set by the API server's proxy; without the first only connections to be upgraded pass it."""
TOKEN_NEEDED = "a bearer token is required: Authorization: Bearer TOKEN"
TokenReviewer = Callable[[str, str], Awaitable[AccessDenial | None]]
"""(token, path) to why the path may not be read with it; None if it may."""
ReaderFinder = Callable[[str], Awaitable[Reader | AccessDenial]]
"""The reader whose token it is."""


class HttpAccess(Struct, frozen=True):
    """The listen address, the token's file if one is configured, and a reviewer of other tokens.

    ``find_reader``: who sees its own part with a token that ``review`` refuses for a path.
    """

    host: str
    token_file: Path | None = None
    review: TokenReviewer | None = None
    find_reader: ReaderFinder | None = None

    def token(self) -> str | None:
        """The token, None if none is configured. Raises OSError if its file can't be read."""
        if self.token_file is not None:
            return self.token_file.read_text(encoding="utf-8").strip()
        return os.environ.get(TOKEN_VARIABLE) or None

    def denial(self, authorization: str, host: str) -> str:
        """Why a request with these headers is refused; "" if it is not."""
        try:
            token = self.token()
        except (OSError, UnicodeDecodeError):
            return f"the token file {self.token_file} cannot be read"
        if token is None:
            return self._without_token(host)
        if not token:
            return f"the token file {self.token_file} is empty"
        # Constant time, so that the time of a refusal tells nothing of the token.
        if hmac.compare_digest(_as_bytes(bearer(authorization)), _as_bytes(token)):
            return ""
        return TOKEN_NEEDED

    async def denial_after_review(
        self, authorization: str, host: str, path: str
    ) -> AccessDenial | None:
        """Why a request is refused after a review of its token; None if it is not."""
        refusal, token = self.denial(authorization, host), bearer(authorization)
        if refusal and token and self.review is not None:
            return await self.review(token, path)
        return AccessDenial(401, refusal) if refusal else None

    def _without_token(self, host: str) -> str:
        if not is_loopback(self.host):
            if self.review is not None:
                return TOKEN_NEEDED
            return f"no token is configured: set http.tokenFile or {TOKEN_VARIABLE}"
        if not is_loopback(_without_port(host)):
            return "without a token only requests to localhost are answered"
        return ""


def bearer(authorization: str) -> str:
    """The token of an Authorization header; "" if it has none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _as_bytes(token: str) -> bytes:
    """The token as it was sent: headers may have bytes that are no text."""
    return token.encode(errors="surrogateescape")


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, by name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]  # "" where no bracket closes it
    return host.partition(":")[0]


def require_access(access: HttpAccess) -> Middleware:
    """Middleware that answers 401, 403 or 503 where ``access`` refuses."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = await _refusal(access, request) if _is_protected(request) else None
        if refusal is None:
            return await handler(request)
        challenge = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
        return web.Response(status=refusal.status, text=f"{refusal.reason}\n", headers=challenge)

    return check


def _is_protected(request: web.Request) -> bool:
    if request.path == METRICS_PATH:
        return any(name in request.headers for name in PROXY_HEADERS)
    return request.path.startswith(PROTECTED_PREFIX)


async def _refusal(access: HttpAccess, request: web.Request) -> AccessDenial | None:
    """Why a request is refused; notes its reader where that does not see everything."""
    headers = request.headers
    authorization = headers.get(OWN_HEADER, "") or headers.get("Authorization", "")
    refusal = await access.denial_after_review(authorization, headers.get("Host", ""), request.path)
    is_shared = request.path.startswith(PROTECTED_PREFIX)
    if refusal is None or refusal.status != 403 or access.find_reader is None or not is_shared:
        return refusal
    reader = await access.find_reader(bearer(authorization))
    if isinstance(reader, AccessDenial):
        return reader
    request[READER] = reader
    return None


MAX_NAMESPACES = 64
"""Most namespaces that are reviewed for one answer."""
MAX_QUEUES = 64
"""Most queues that are reviewed by their names for one answer."""
ALL_PODS = ObjectAccess("list", "pods")
ALL_NODES = ObjectAccess("list", "nodes")
ALL_QUEUES = ObjectAccess("get", "queues", QUEUE_GROUP)


class TenantReader(Struct, frozen=True):
    """A user, and the reviews that say what it may see."""

    user: UserInfo
    reviews: TokenReviews

    @property
    def name(self) -> str:
        """The user's name."""
        return self.user.username

    async def visibility(self, view: ClusterView, asked: Collection[str] = ()) -> Visibility | None:
        """The part of ``view`` that the reader may see; None: all of it. Raises ApiError.

        ``asked``: the namespaces in question, which are reviewed before all others.
        """
        pods, nodes, queues = await self._may_each((ALL_PODS, ALL_NODES, ALL_QUEUES))
        if pods and nodes and queues:
            return None
        known = workload_namespaces(view)
        if pods:
            namespaces, unreviewed = known | set(asked), 0
        else:
            ordered = list(dict.fromkeys((*asked, *sorted(known))))
            namespaces = frozenset(await self._with_pods(ordered[:MAX_NAMESPACES]))
            unreviewed = len(ordered[MAX_NAMESPACES:])
        seen = await self._queues(view, namespaces, may_see_all=queues)
        existing = frozenset(spec.name for spec in view.snapshot.queues)
        named = named_queues(view, namespaces)
        return Visibility(
            namespaces=namespaces,
            queues=seen,
            nodes=nodes,
            hidden=known - namespaces,
            unreviewed=unreviewed,
            hidden_queues=existing - seen - named,
            missing_queues=named - existing,
        )

    async def _with_pods(self, namespaces: Collection[str]) -> Iterable[str]:
        questions = [ObjectAccess("list", "pods", namespace=each) for each in namespaces]
        answers = await self._may_each(questions)
        return (each for each, may in zip(namespaces, answers, strict=True) if may)

    async def _queues(
        self, view: ClusterView, namespaces: Collection[str], *, may_see_all: bool
    ) -> frozenset[str]:
        specs = view.snapshot.queues
        if may_see_all:
            return frozenset(spec.name for spec in specs)
        own = with_ancestors(own_queues(view, namespaces), specs)
        # An ancestor bounds what an own queue gets; those of other queues need the right.
        others = sorted({spec.name for spec in specs} - own)[:MAX_QUEUES]
        answers = await self._may_each(
            [ObjectAccess("get", "queues", QUEUE_GROUP, name=each) for each in others]
        )
        readable = (each for each, may in zip(others, answers, strict=True) if may)
        return own.union(readable)

    async def _may_each(self, questions: Iterable[ObjectAccess]) -> list[bool]:
        return list(await asyncio.gather(*(self.reviews.may(self.user, q) for q in questions)))


def reader_finder(reviews: TokenReviews) -> ReaderFinder:
    """Finds the reader of a token."""

    async def find(token: str) -> Reader | AccessDenial:
        user = await reviews.user(token)
        return user if isinstance(user, AccessDenial) else TenantReader(user, reviews)

    return find
