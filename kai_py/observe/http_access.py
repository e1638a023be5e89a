"""Access control of the paths under /v1, by bearer token.

Accepted are the configured token, and tokens that ``review`` accepts for the path. A token of any
other user whom the API server knows gets what that user may see (``readers``). Without any token,
only requests from the machine itself are answered; these must also name it as their host, so that a
web page whose name was made to resolve to loopback (DNS rebinding) reads nothing.

The API server's proxy for Services removes the header Authorization, so a token may come in
``OWN_HEADER`` instead. What that proxy brings to /metrics needs a token, too: it comes from outside
of the cluster's network.
"""

import hmac
import ipaddress
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kai_py.observe.http_answers import READER, Reader
from kai_py.observe.token_review import AccessDenial

TOKEN_VARIABLE = "KAI_PY_HTTP_TOKEN"  # the variable's name, not a token
PROTECTED_PREFIX = "/v1/"
METRICS_PATH = "/metrics"
OWN_HEADER = "X-Kai-Authorization"
PROXY_HEADERS = ("X-Forwarded-Uri", "Upgrade")
"""Set by the API server's proxy; without the first only connections to be upgraded pass it."""
TOKEN_NEEDED = "a bearer token is required: Authorization: Bearer TOKEN"
TokenReviewer = Callable[[str, str], Awaitable[AccessDenial | None]]
"""(token, path) to why the path may not be read with it; None if it may."""
ReaderFinder = Callable[[str], Awaitable[Reader | AccessDenial]]
"""The reader whose token it is."""


@dataclass(frozen=True, slots=True)
class HttpAccess:
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
