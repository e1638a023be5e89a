"""Who may read /v1? Whoever has the bearer token; without a token, only the machine itself.

On loopback without a token the request must also name the machine itself as its host, so that a
page from elsewhere, whose name was made to resolve to loopback, reads nothing.
"""

import hmac
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

TOKEN_VARIABLE = "KAI_PY_HTTP_TOKEN"  # the variable's name, not a token
PROTECTED = "/v1/"


@dataclass(frozen=True, slots=True)
class Access:
    """The address that is listened on, and the file of the token if one is configured."""

    host: str
    token_file: Path | None = None

    def token(self) -> str | None:
        """The token, None if none is configured. Raises OSError if its file can't be read."""
        if self.token_file is not None:
            return self.token_file.read_text(encoding="utf-8").strip()
        return os.environ.get(TOKEN_VARIABLE) or None

    def refusal(self, authorization: str, host: str) -> str:
        """Why a request with these headers is refused; "" if it is not."""
        try:
            token = self.token()
        except (OSError, UnicodeDecodeError):
            return f"the token file {self.token_file} cannot be read"
        if token is None:
            return self._without_token(host)
        if not token:
            return f"the token file {self.token_file} is empty"
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(), token.encode()
        ):
            return ""
        return "a bearer token is needed: Authorization: Bearer TOKEN"

    def _without_token(self, host: str) -> str:
        if not is_loopback(self.host):
            return f"no token is configured: set http.tokenFile or {TOKEN_VARIABLE}"
        if not is_loopback(_without_port(host)):
            return "without a token only requests to localhost are answered"
        return ""


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine, by name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    return host[: host.index("]") + 1] if host.startswith("[") else host.partition(":")[0]


def guard(access: Access) -> Middleware:
    """Middleware that answers 401 where ``access`` refuses."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(PROTECTED):
            headers = request.headers
            refusal = access.refusal(headers.get("Authorization", ""), headers.get("Host", ""))
            if refusal:
                challenge = {"WWW-Authenticate": "Bearer"}
                raise web.HTTPUnauthorized(text=f"{refusal}\n", headers=challenge)
        return await handler(request)

    return check
